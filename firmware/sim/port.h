/* The serial port of the simulated board: a pseudo-terminal under a name of your choice.
 *
 * In: what a program writes to it. Out: what the board sends. A pty has no DTR, so opening it
 * stands for the edge of DTR that resets an Uno: each first open does it, unless the last opener
 * has cleared HUPCL (`stty -hupcl`), as on a real port. */
#ifndef SIM_PORT_H
#define SIM_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct port {
    int master;  /* -1: unplugged */
    int watcher; /* becomes readable when a program opens or closes the port */
    const char *link;
    bool open, drops_dtr;
    int openers;
};

/* Make the pty and its symbolic link. False after a message on standard error. */
bool port_plug(struct port *port, const char *link);
/* Take the pty away: programs that have it open get a hang-up. */
void port_unplug(struct port *port);

/* Look whether a program has the port open. Returns true once per edge of DTR. */
bool port_check(struct port *port);
/* The bit rate that the host has set, or 0 for one this platform cannot name. */
uint32_t port_baud(const struct port *port);
/* Both return the number of bytes taken, 0 when none can be. */
size_t port_read(struct port *port, uint8_t *bytes, size_t room);
size_t port_write(struct port *port, const uint8_t *bytes, size_t count);

#endif
