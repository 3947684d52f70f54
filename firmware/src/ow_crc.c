#include "ow_crc.h"

/* Eight steps of the shift register at once: for this polynomial the feedback of a byte is x ^ x<<5
 * ^ x<<12 with x = t ^ t>>4. */
uint16_t ow_crc_byte(uint16_t crc, uint8_t byte)
{
    uint8_t x = (uint8_t)(crc >> 8) ^ byte;
    x ^= x >> 4;
    return (uint16_t)((uint16_t)(crc << 8) ^ (uint16_t)((uint16_t)x << 12) ^
                      (uint16_t)((uint16_t)x << 5) ^ x);
}

uint16_t ow_crc(uint16_t initial, const uint8_t *bytes, uint8_t length)
{
    uint16_t crc = initial;
    while (length--) {
        crc = ow_crc_byte(crc, *bytes++);
    }
    return crc;
}

uint32_t ow_crc32_byte(uint32_t crc, uint8_t byte)
{
    crc ^= byte;
    for (uint8_t bit = 0; bit < 8; bit++) {
        crc = crc & 1 ? crc >> 1 ^ 0xEDB88320ul : crc >> 1;
    }
    return crc;
}

uint32_t ow_crc32(uint32_t initial, const uint8_t *bytes, uint8_t length)
{
    uint32_t crc = initial;
    while (length--) {
        crc = ow_crc32_byte(crc, *bytes++);
    }
    return crc;
}
