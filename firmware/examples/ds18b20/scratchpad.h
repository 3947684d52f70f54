/* Decoder of a DS18B20's scratchpad and ROM code: a value or a fault. */
#ifndef SCRATCHPAD_H
#define SCRATCHPAD_H

#include <stdint.h>

#include <Onceway.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DS18B20_SCRATCHPAD = 9, DS18B20_ROM = 8, DS18B20_FAMILY = 0x28 };
#define DS18B20_12_BITS 0x7F /* the configuration register */

/* The family code and the CRC of a ROM code. */
enum ow_sensor_fault ds18b20_check_rom(const uint8_t *rom);

/*
 * Reads a scratchpad. mark: what was written into its two alarm registers before the measurement. A
 * sensor that lost its power since has lost the mark, and reports 85 degrees without a measurement.
 * sixteenths: of a degree Celsius, set if the result is OW_SENSOR_WELL.
 */
enum ow_sensor_fault ds18b20_decode(const uint8_t *bytes, uint8_t mark, int16_t *sixteenths);

#ifdef __cplusplus
}
#endif

#endif
