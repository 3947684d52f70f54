/* Decoder of a DHT22's answer of five bytes: values or a fault. */
#ifndef FRAME_H
#define FRAME_H

#include <stdint.h>

#include <Onceway.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DHT22_BYTES = 5 };

/*
 * Reads an answer. temperature: tenths of a degree Celsius, from a sign and a magnitude as in the
 * data sheet, or from two's complement as clones send it. humidity: tenths of a percent. Both are
 * set if the result is OW_SENSOR_WELL, and may exceed the sensor's range.
 *
 * A DHT11 in its place sends whole degrees and percents in the high bytes: OW_SENSOR_OTHER.
 */
enum ow_sensor_fault dht22_decode(const uint8_t *bytes, int16_t *temperature, uint16_t *humidity);

#ifdef __cplusplus
}
#endif

#endif
