/* The board's end of the ether: a Unix socket to `python -m hil.air.server`, which has the lines
 * that go over it.
 *
 * In: what the radio sends and where it listens. Out: frames that it hears, as commands of the
 * simulator (`heard RSSI SNR HEX`), so that a recording has them.
 *
 * Board time and the ether's differ by milliseconds: an action of the radio waits until the ether
 * is done with its frame. */
#ifndef SIM_AIR_H
#define SIM_AIR_H

#include <stdbool.h>
#include <stddef.h>

#include "sx1276.h"

enum { AIR_LINE = 640 };

struct air {
    int fd; /* -1: none */
    bool sending; /* the ether has yet to say that the frame is over */
    char after[AIR_LINE]; /* line to send then */
    char in[AIR_LINE];
    size_t count;
    void (*heard)(void *context, char *command);
    void *context;
};

/* Join the ether under a name, at a place in metres ("X,Y"). False after a message on standard
 * error. */
bool air_open(struct air *air, const char *path, const char *name, const char *place);

/* Take lines of the ether. */
void air_serve(struct air *air);

void air_transmit(
    struct air *air, const struct sx1276_way *way, const uint8_t *frame, unsigned length);

/* NULL: the radio sleeps; a frame that it was sending is cut off. */
void air_listen(struct air *air, const struct sx1276_way *way);

#endif
