#include "ow_bytes.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
    "the swaps below turn this machine's order into the wire's");

uint16_t ow_get_u16(const uint8_t *bytes)
{
    return (uint16_t)((uint16_t)bytes[0] << 8 | bytes[1]);
}

uint32_t ow_get_u32(const uint8_t *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return __builtin_bswap32(value);
}

void ow_put_u16(uint8_t *bytes, uint16_t value)
{
    bytes[0] = (uint8_t)(value >> 8);
    bytes[1] = (uint8_t)value;
}

void ow_put_u32(uint8_t *bytes, uint32_t value)
{
    value = __builtin_bswap32(value);
    memcpy(bytes, &value, sizeof value);
}
