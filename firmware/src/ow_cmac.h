/*
 * AES-128-CMAC (NIST SP 800-38B, RFC 4493), which proves a key and derives others. Bytes in, one at
 * a time; 16 bytes out. No table depends on the key, and only the S-box is looked up.
 */
#ifndef OW_CMAC_H
#define OW_CMAC_H

#include <stdint.h>

#define OW_KEY_SIZE 16

struct ow_cmac {
    const uint8_t *key; /* OW_KEY_SIZE bytes; the caller keeps them until the end */
    uint8_t used;       /* bytes of the block under way */
    uint8_t block[OW_KEY_SIZE];
};

void ow_cmac_begin(struct ow_cmac *cmac, const uint8_t *key);
void ow_cmac_put(struct ow_cmac *cmac, const uint8_t *bytes, uint8_t length);

/* The result is in `block` then. */
void ow_cmac_end(struct ow_cmac *cmac);

/* One block of AES-128 (FIPS 197), in place. */
void ow_aes_encrypt(uint8_t *block, const uint8_t *key);

#endif
