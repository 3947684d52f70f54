/*
 * How far the time that the client tells may be wrong. The gateway tells it at each connection and
 * every half of the keep-alive time; between, the board counts by itself.
 *
 * In: the client, in each turn. Out: seconds of error, and UTC of times that were kept before the
 * gateway had told it, always the same one however often a reading is sent.
 */
#ifndef OW_CLOCK_H
#define OW_CLOCK_H

#include <stdint.h>

#include "ow_mqtt.h"

struct ow_clock {
    uint32_t utc_at_start; /* by the first time that the gateway told, 0: none yet */
    uint32_t learnt;       /* uptime then */
    uint32_t told;         /* UTC seconds that the gateway told last */
    uint32_t told_at;      /* uptime then */
};

/** Looks whether the gateway has told the time. Call it right after ow_mqtt_poll. */
void ow_clock_poll(struct ow_clock *clock, const struct ow_mqtt *client);

/**
 * @param time  as ow_mqtt_time gave it, in this start
 * @return UTC seconds; 0: not known yet
 */
uint32_t ow_clock_utc(const struct ow_clock *clock, uint32_t time);

/**
 * @return by how many seconds the UTC of ow_mqtt_time may be wrong now, either way: the gateway
 *         told whole seconds, its answer took less than one, ours are whole ones too; and since
 *         then the board's clock was wrong by one part of OW_CLOCK_PARTS at most
 */
uint32_t ow_clock_error(const struct ow_clock *clock, const struct ow_mqtt *client);

/** The same for a time with OW_UPTIME_BIT, whose UTC is reckoned back from the first one told. */
uint32_t ow_clock_error_before(const struct ow_clock *clock, uint32_t time);

#endif
