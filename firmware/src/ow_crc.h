/*
 * CRC-16 with the polynomial 0x1021 (CRC-16/XMODEM), any initial value, as `binascii.crc_hqx` in
 * Python gives it; and CRC-32 of IEEE 802.3, lowest bit first, which `zlib.crc32` inverts at both
 * ends.
 */
#ifndef OW_CRC_H
#define OW_CRC_H

#include <stdint.h>

#include "ow_config.h"

#define OW_CRC_INITIAL 0xFFFFu
#define OW_CRC_RESIDUE 0x1D0Fu /* of anything that ends in its own inverted CRC */

uint16_t ow_crc_byte(uint16_t crc, uint8_t byte);
uint16_t ow_crc(uint16_t initial, const uint8_t *bytes, uint8_t length);
uint32_t ow_crc32_byte(uint32_t crc, uint8_t byte);
uint32_t ow_crc32(uint32_t initial, const uint8_t *bytes, uint8_t length);

/* The check of a frame: 32 bits where boards have keys. */
#if OW_KEYS
typedef uint32_t ow_check;
#define OW_CHECK_INITIAL 0xFFFFFFFFul
#define OW_CHECK_RESIDUE 0xDEBB20E3ul
#define ow_check_byte ow_crc32_byte
#define ow_check_bytes ow_crc32
#else
typedef uint16_t ow_check;
#define OW_CHECK_INITIAL OW_CRC_INITIAL
#define OW_CHECK_RESIDUE OW_CRC_RESIDUE
#define ow_check_byte ow_crc_byte
#define ow_check_bytes ow_crc
#endif

#endif
