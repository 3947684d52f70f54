/* CRC-16 with the polynomial 0x1021 (CRC-16/XMODEM), any initial value. `binascii.crc_hqx` in
 * Python gives the same. */
#ifndef OW_CRC_H
#define OW_CRC_H

#include <stdint.h>

#define OW_CRC_INITIAL 0xFFFFu
#define OW_CRC_RESIDUE 0x1D0Fu /* of anything that ends in its own inverted CRC */

uint16_t ow_crc_byte(uint16_t crc, uint8_t byte);
uint16_t ow_crc(uint16_t initial, const uint8_t *bytes, uint8_t length);

#endif
