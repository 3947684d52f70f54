#include "scratchpad.h"

#include <stdbool.h>

enum { POLYNOMIAL = 0x8C };

/* The CRC of zeros is zero: the line is shorted to ground. */
static bool is_whole(const uint8_t *bytes, uint8_t count)
{
    uint8_t crc = 0, any = 0;
    for (uint8_t i = 0; i < count; i++) {
        any |= bytes[i];
        crc ^= bytes[i];
        for (uint8_t bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? (uint8_t)(crc >> 1 ^ POLYNOMIAL) : crc >> 1;
        }
    }
    return crc == 0 && any;
}

enum ow_sensor_fault ds18b20_check_rom(const uint8_t *rom)
{
    if (!is_whole(rom, DS18B20_ROM)) {
        return OW_SENSOR_GARBLED;
    }
    return rom[0] == DS18B20_FAMILY ? OW_SENSOR_WELL : OW_SENSOR_OTHER;
}

enum ow_sensor_fault ds18b20_decode(const uint8_t *bytes, uint8_t mark, int16_t *sixteenths)
{
    if (!is_whole(bytes, DS18B20_SCRATCHPAD)) {
        return OW_SENSOR_GARBLED;
    }
    if (bytes[2] != mark || (bytes[3] ^ mark) != 0xFF || bytes[4] != DS18B20_12_BITS) {
        return OW_SENSOR_UNMEASURED;
    }
    *sixteenths = (int16_t)(bytes[0] | bytes[1] << 8);
    return OW_SENSOR_WELL;
}
