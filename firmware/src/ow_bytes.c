#include "ow_bytes.h"

uint16_t ow_get_u16(const uint8_t *bytes)
{
    return (uint16_t)((uint16_t)bytes[0] << 8 | bytes[1]);
}

uint32_t ow_get_u32(const uint8_t *bytes)
{
    return (uint32_t)ow_get_u16(bytes) << 16 | ow_get_u16(bytes + 2);
}

void ow_put_u16(uint8_t *bytes, uint16_t value)
{
    bytes[0] = (uint8_t)(value >> 8);
    bytes[1] = (uint8_t)value;
}

void ow_put_u32(uint8_t *bytes, uint32_t value)
{
    ow_put_u16(bytes, (uint16_t)(value >> 16));
    ow_put_u16(bytes + 2, (uint16_t)value);
}
