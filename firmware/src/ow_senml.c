#include "ow_senml.h"

#include <string.h>

#include "ow_bytes.h"

/* CBOR major types and the labels of RFC 8428 section 6 */
enum { CBOR_U32 = 0x1A, CBOR_NEGATIVE = 0x20, CBOR_TEXT = 0x60, CBOR_TEXT_U8 = 0x78, CBOR_SHORT = 23, CBOR_ARRAY = 0x80, CBOR_MAP = 0xA0, CBOR_FLOAT32 = 0xFA };
enum { BASE_NAME = CBOR_NEGATIVE + 1, BASE_TIME = CBOR_NEGATIVE + 2, NAME = 0, UNIT = 1, VALUE = 2 };

/* extra: characters that the caller appends */
static uint8_t *put_text(uint8_t *at, uint8_t label, const char *text, uint8_t extra)
{
    uint8_t length = (uint8_t)strlen(text);
    uint8_t whole = (uint8_t)(length + extra);
    *at++ = label;
    if (whole > CBOR_SHORT) {
        *at++ = CBOR_TEXT_U8;
        *at++ = whole;
    } else {
        *at++ = (uint8_t)(CBOR_TEXT + whole);
    }
    memcpy(at, text, length);
    return at + length;
}

/* IEEE 754 single precision bits, without a float library. */
static uint32_t float_bits(struct ow_senml_value value)
{
    if (value.numerator == 0) {
        return 0;
    }
    uint8_t exponent = (uint8_t)(127 + 23 - value.shift);
    while (value.numerator < (1ul << 23)) {
        value.numerator <<= 1;
        exponent--;
    }
    return (uint32_t)exponent << 23 | (value.numerator & ((1ul << 23) - 1));
}

uint8_t ow_senml_encode(uint8_t *out, const struct ow_senml_record *record)
{
    uint8_t *at = out;
    *at++ = CBOR_ARRAY + 1;
    *at++ = (uint8_t)(CBOR_MAP + (record->time ? 5 : 4));
    at = put_text(at, BASE_NAME, record->device, 1);
    *at++ = ':';
    if (record->time) {
        *at++ = BASE_TIME;
        *at++ = CBOR_U32;
        ow_put_u32(at, record->time);
        at += 4;
    }
    at = put_text(at, NAME, record->name, 0);
    at = put_text(at, UNIT, record->unit, 0);
    *at++ = VALUE;
    *at++ = CBOR_FLOAT32;
    ow_put_u32(at, float_bits(record->value));
    return (uint8_t)(at + 4 - out);
}
