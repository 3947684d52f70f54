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
