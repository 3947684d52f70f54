/*
 * A log for debugging, which `onceway device log NAME` reads over the link.
 *
 * In: lines of the program, and of the client: its start, its connections, and how they ended. They
 * stay in a ring in RAM; new lines replace the oldest. Out, when the gateway asks: each line as a
 * publication at QoS 0 on `logs/NAME`, the oldest first: its time, a space, the text. The time is
 * UTC seconds, or `+` and seconds since the start if the board does not know UTC. The last line is a
 * number alone: the count of lines that were dropped since the start.
 *
 * Without OW_LOG_SIZE the functions do nothing, and cost nothing.
 */
#ifndef OW_LOG_H
#define OW_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "ow_config.h"

#define OW_LOG_LINE 40 /* characters of a line; the rest is cut off */

struct ow_mqtt;

#if OW_LOG_SIZE

struct ow_log {
    /* bytes written, given up, and sent so far, modulo 2^16 */
    uint16_t head, tail, sent;
    uint16_t lost; /* dropped lines; 0xFFFF: or more */
    bool asked;
    uint8_t ring[OW_LOG_SIZE]; /* lines: length of the text:u8, time:u32, text */
};

/* For the client: the next line, if one is due; a new connection has not asked yet. */
void ow_log_advance(struct ow_mqtt *client);
void ow_log_connect(struct ow_mqtt *client);

#else

static inline void ow_log_advance(struct ow_mqtt *client)
{
    (void)client;
}

static inline void ow_log_connect(struct ow_mqtt *client)
{
    (void)client;
}

#endif

#endif
