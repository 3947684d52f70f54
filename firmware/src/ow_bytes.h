/* Integers on the wire and in EEPROM: big-endian, at any address. */
#ifndef OW_BYTES_H
#define OW_BYTES_H

#include <stdint.h>

/** @return the integer in 2 bytes */
uint16_t ow_get_u16(const uint8_t *bytes);

/** @return the integer in 4 bytes */
uint32_t ow_get_u32(const uint8_t *bytes);

/** Writes 2 bytes. */
void ow_put_u16(uint8_t *bytes, uint16_t value);

/** Writes 4 bytes. */
void ow_put_u32(uint8_t *bytes, uint32_t value);

#endif
