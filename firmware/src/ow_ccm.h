/*
 * The frames of radio links (gateway/links/lora/README.md): AES-128-CCM (RFC 3610, NIST SP 800-38C)
 * with a tag of 4 bytes, over a header of 3 bytes that any receiver can read. A frame in, the same
 * bytes encrypted or decrypted out; nothing is kept.
 */
#ifndef OW_CCM_H
#define OW_CCM_H

#include <stdbool.h>
#include <stdint.h>

#define OW_CCM_HEADER 3
#define OW_CCM_TAG 4
#define OW_CCM_OVERHEAD (OW_CCM_HEADER + OW_CCM_TAG)

enum ow_direction { OW_UP, OW_DOWN };

/* Encrypts the content of a frame, in place, and puts the tag after it. key, direction and counter
 * must be unique for each frame.
 * frame: header, content, room for the tag. length: of all three. */
void ow_ccm_seal(const uint8_t *key, enum ow_direction direction, uint16_t counter, uint8_t *frame,
    uint8_t length);

/* Decrypts the content in place. False: the tag is wrong, or the frame is too short; the bytes
 * are then garbage. In constant time for a length. */
bool ow_ccm_open(const uint8_t *key, enum ow_direction direction, uint16_t counter, uint8_t *frame,
    uint8_t length);

/* Whether two tags are equal, in constant time. */
bool ow_ccm_equal(const uint8_t *tag, const uint8_t *other);

#endif
