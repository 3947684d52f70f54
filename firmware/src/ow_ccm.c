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

/* The CBC-MAC of header and content. */
static void authenticate(
    const struct nonce *nonce, const uint8_t *frame, uint8_t length, uint8_t *block)
{
    nonce_block(nonce, FIRST_OF_MAC, length, block);
    block[1] ^= OW_CCM_HEADER;
    for (uint8_t i = 0; i < OW_CCM_HEADER; i++) {
        block[2 + i] ^= frame[i];
    }
    ow_aes_encrypt(block, nonce->key);
    for (uint8_t i = 0; i < length; i++) {
        block[i & (BLOCK - 1)] ^= frame[OW_CCM_HEADER + i];
        if ((i & (BLOCK - 1)) == BLOCK - 1 || i + 1 == length) {
            ow_aes_encrypt(block, nonce->key);
        }
    }
}

/* Encrypts or decrypts the content. */
static void add_stream(const struct nonce *nonce, uint8_t *content, uint8_t length)
{
    uint8_t stream[BLOCK];
    for (uint8_t i = 0; i < length; i++) {
        if ((i & (BLOCK - 1)) == 0) {
            nonce_block(nonce, FIRST_OF_STREAM, (uint8_t)(1 + i / BLOCK), stream);
        }
        content[i] ^= stream[i & (BLOCK - 1)];
    }
}

/* The tag that belongs to the content, which is not encrypted. */
static void make_tag(const struct nonce *nonce, const uint8_t *frame, uint8_t length, uint8_t *tag)
{
    uint8_t stream[BLOCK];
    authenticate(nonce, frame, length, tag);
    nonce_block(nonce, FIRST_OF_STREAM, 0, stream);
    for (uint8_t i = 0; i < OW_CCM_TAG; i++) {
        tag[i] ^= stream[i];
    }
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
    uint8_t tag[BLOCK];
    make_tag(&nonce, frame, content, tag);
    add_stream(&nonce, frame + OW_CCM_HEADER, content);
    memcpy(frame + OW_CCM_HEADER + content, tag, OW_CCM_TAG);
}

bool ow_ccm_open(const uint8_t *key, enum ow_direction direction, uint16_t counter, uint8_t *frame,
    uint8_t length)
{
    struct nonce nonce = {key, direction, counter};
    uint8_t tag[BLOCK];
    if (length < OW_CCM_OVERHEAD) {
        return false;
    }
    uint8_t content = (uint8_t)(length - OW_CCM_OVERHEAD);
    add_stream(&nonce, frame + OW_CCM_HEADER, content);
    make_tag(&nonce, frame, content, tag);
    return ow_ccm_equal(tag, frame + OW_CCM_HEADER + content);
}
