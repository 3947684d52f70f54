#include "ow_ccm.h"

#include <string.h>

#include "ow_bytes.h"
#include "ow_cmac.h"

/* First byte of a block: the tag's size, 2 bytes of length, and that there is a header (RFC 3610,
 * 2.2); of the key stream (2.3). */
enum { FIRST_OF_MAC = 0x49, FIRST_OF_STREAM = 0x01 };
enum { BLOCK = OW_KEY_SIZE, DIRECTION_AT = 1, COUNTER_AT = 12, LAST_AT = 14 };

struct nonce {
    const uint8_t *key;
    uint8_t direction;
    uint16_t counter;
};

/* Encrypts the block of this nonce; `last` is the length or the number of the block. */
static void nonce_block(const struct nonce *nonce, uint8_t first, uint8_t last, uint8_t *block)
{
    memset(block, 0, BLOCK);
    block[0] = first;
    block[DIRECTION_AT] = nonce->direction;
    ow_put_u16(block + COUNTER_AT, nonce->counter);
    block[LAST_AT + 1] = last;
    ow_aes_encrypt(block, nonce->key);
}

/* Encrypts or decrypts these bytes with the key stream from block `number` on. */
static void add_stream(const struct nonce *nonce, uint8_t number, uint8_t *bytes, uint8_t length)
{
    uint8_t stream[BLOCK];
    for (uint8_t i = 0; i < length; i++) {
        if ((i & (BLOCK - 1)) == 0) {
            nonce_block(nonce, FIRST_OF_STREAM, number++, stream);
        }
        bytes[i] ^= stream[i & (BLOCK - 1)];
    }
}

/* The tag that belongs to the content, which is not encrypted: the CBC-MAC of header and content,
 * which is a CMAC without its end. */
static void make_tag(const struct nonce *nonce, const uint8_t *frame, uint8_t length, uint8_t *tag)
{
    struct ow_cmac mac = {.key = nonce->key, .used = BLOCK};
    nonce_block(nonce, FIRST_OF_MAC, length, mac.block);
    mac.block[1] ^= OW_CCM_HEADER;
    for (uint8_t i = 0; i < OW_CCM_HEADER; i++) {
        mac.block[2 + i] ^= frame[i];
    }
    ow_cmac_put(&mac, frame + OW_CCM_HEADER, length);
    ow_aes_encrypt(mac.block, nonce->key);
    add_stream(nonce, 0, mac.block, OW_CCM_TAG);
    memcpy(tag, mac.block, OW_CCM_TAG);
}

bool ow_ccm_equal(const uint8_t *tag, const uint8_t *other)
{
    uint8_t different = 0;
    for (uint8_t i = 0; i < OW_CCM_TAG; i++) {
        different |= tag[i] ^ other[i];
    }
    return different == 0;
}

void ow_ccm_seal(const uint8_t *key, enum ow_direction direction, uint16_t counter, uint8_t *frame,
    uint8_t length)
{
    struct nonce nonce = {key, direction, counter};
    uint8_t content = (uint8_t)(length - OW_CCM_OVERHEAD);
    make_tag(&nonce, frame, content, frame + OW_CCM_HEADER + content);
    add_stream(&nonce, 1, frame + OW_CCM_HEADER, content);
}

bool ow_ccm_open(const uint8_t *key, enum ow_direction direction, uint16_t counter, uint8_t *frame,
    uint8_t length)
{
    struct nonce nonce = {key, direction, counter};
    uint8_t tag[OW_CCM_TAG];
    if (length < OW_CCM_OVERHEAD) {
        return false;
    }
    uint8_t content = (uint8_t)(length - OW_CCM_OVERHEAD);
    add_stream(&nonce, 1, frame + OW_CCM_HEADER, content);
    make_tag(&nonce, frame, content, tag);
    return ow_ccm_equal(tag, frame + OW_CCM_HEADER + content);
}
