/*
 * Readings: their 8 bytes in the journal, and their payload.
 *
 *     source = time:u32 value:u16 kind:u8 detail:u8       time: see ow_mqtt_time
 *     kind & 7: an ADC channel, value 0…1023, detail = samples not taken before this one because
 *     the journal was full (255: or more); kind >> 3: possible error of the time, 0: not given,
 *     n: (2 + (n - 1) % 2) * 2^((n - 1) / 2) seconds, so 2, 3, 4, 6, 8, 12 … 49152 (or more)
 *     kind 0xFF: status, value = number of the start modulo 2^14, detail = reset cause; or value =
 *     0x8000 and a fault of the sensor (ow_sensor.h)
 *
 * Three readings in one, when SENSOR_READINGS is 3: time:u32, then 11 and three values of 10 bits
 * each; time is that of the first, the others follow SENSOR_INTERVAL_MS apart.
 *
 * Payload: SenML-CBOR. "tu" of a single reading is the possible error of its time, in
 * seconds. A reading has a time unless UTC was unknown when it was taken and the board
 * has started again since.
 */
#ifndef READING_H
#define READING_H

#include <stdint.h>

#include "Onceway.h"

#ifndef SENSOR_INTERVAL_MS
#define SENSOR_INTERVAL_MS 60000 /* the EEPROM lives 11.4 years */
#endif

#ifndef SENSOR_READINGS
/* in a packet: 1, or 3 at an interval that is fixed and in whole seconds */
#define SENSOR_READINGS 1
#endif

/* What the sensor at A0 can give, in steps of the converter (1,024 are 5 V): without these options
 * anything. A transmitter of 1 to 5 V has -DSENSOR_LEAST=164: less than 0.8 V means that it is absent
 * or has no supply. SENSOR_STEP: the largest step between two values that needs no second one near
 * it. */
#define SENSOR_LARGEST 1023
#ifndef SENSOR_LEAST
#define SENSOR_LEAST 0
#endif
#ifndef SENSOR_MOST
#define SENSOR_MOST SENSOR_LARGEST
#endif
#ifndef SENSOR_STEP
#define SENSOR_STEP SENSOR_LARGEST
#endif
#define SENSOR_HAS_LIMITS                                                                          \
    (SENSOR_LEAST > 0 || SENSOR_MOST < SENSOR_LARGEST || SENSOR_STEP < SENSOR_LARGEST)

enum { READING_STATUS = 0xFF, READING_BOOT_MASK = 0x3FFF, READING_FAULT = 0x8000 };

/* The longest payload that is no status: three readings of a device whose name has 23
 * characters. */
#define READING_SIZE 72

void reading_put(uint8_t *source, uint32_t time, uint16_t value, uint8_t kind, uint8_t detail);
void reading_put_three(uint8_t *source, uint32_t time, const uint16_t *values);

/* Of a channel's reading, whose time may be wrong by so many seconds. */
uint8_t reading_make_kind(uint8_t channel, uint32_t time_error);

uint8_t reading_kind(const uint8_t *source);

/* Data of a reading's payload that are not in its source. */
struct reading_context {
    const char *device;
    const struct ow_clock *clock; /* NULL: the reading was taken in an earlier life */

    /* present values for a status: */
    uint16_t denied; /* tenths of years that a refused interval would have left */
    uint16_t life;   /* tenths of years that the EEPROM lives at the present interval */
    const struct ow_health *health;
};

#define READING_NOT_DENIED 0xFFFF

/* Writes at most `size` bytes; returns the length of the payload. A status has as many records
 * as fit. */
uint8_t reading_encode(uint8_t *out, uint8_t size, const uint8_t *source,
    const struct reading_context *context);

#endif
