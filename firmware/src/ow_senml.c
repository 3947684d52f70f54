#include "ow_senml.h"

#include <string.h>

#include "ow_bytes.h"

/* CBOR initial bytes (RFC 8949 section 3) and the labels of RFC 8428 section 6. */
enum {
    CBOR_U16 = 0x19,
    CBOR_U32 = 0x1A,
    CBOR_TEXT = 0x60,
    CBOR_TEXT_U8 = 0x78,
    CBOR_ARRAY = 0x80,
    CBOR_MAP = 0xA0,
    CBOR_FLOAT32 = 0xFA
};
enum { CBOR_SHORT = 23 };
enum { BASE_NAME = 0x21, BASE_TIME = 0x22, NAME = 0, UNIT = 1, VALUE = 2, TIME = 6 };

static uint8_t *put_characters(uint8_t *at, const char *text)
{
    uint8_t length = (uint8_t)strlen(text);
    memcpy(at, text, length);
    return at + length;
}

static uint8_t *put_text_head(uint8_t *at, uint8_t label, uint8_t length)
{
    *at++ = label;
    if (length > CBOR_SHORT) {
        *at++ = CBOR_TEXT_U8;
        *at++ = length;
    } else {
        *at++ = (uint8_t)(CBOR_TEXT + length);
    }
    return at;
}

static uint8_t *put_text(uint8_t *at, uint8_t label, const char *text)
{
    return put_characters(put_text_head(at, label, (uint8_t)strlen(text)), text);
}

static uint8_t *put_u16(uint8_t *at, uint8_t label, uint16_t value)
{
    *at++ = label;
    *at++ = CBOR_U16;
    ow_put_u16(at, value);
    return at + 2;
}

static uint8_t *put_u32(uint8_t *at, uint8_t label, uint8_t type, uint32_t value)
{
    *at++ = label;
    *at++ = type;
    ow_put_u32(at, value);
    return at + 4;
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

static uint8_t *put_base_name(uint8_t *at, const char *device, const char *channel)
{
    uint8_t length = (uint8_t)(strlen(device) + 1 + strlen(channel));
    at = put_characters(put_text_head(at, BASE_NAME, length), device);
    *at++ = ':';
    return put_characters(at, channel);
}

uint8_t *ow_senml_pack(uint8_t *at, uint8_t records)
{
    *at = (uint8_t)(CBOR_ARRAY + records);
    return at + 1;
}

uint8_t *ow_senml_record(uint8_t *at, const struct ow_senml_record *record)
{
    uint8_t *head = at++;
    uint8_t members = 1;
    if (record->device) {
        at = put_base_name(at, record->device, record->channel ? record->channel : "");
        members++;
    }
    if (record->base_time) {
        at = put_u32(at, BASE_TIME, CBOR_U32, record->base_time);
        members++;
    }
    if (record->name) {
        at = put_text(at, NAME, record->name);
        members++;
    }
    if (record->unit) {
        at = put_text(at, UNIT, record->unit);
        members++;
    }
    if (record->offset) {
        at = put_u16(at, TIME, record->offset);
        members++;
    }
    if (record->value.shift) {
        at = put_u32(at, VALUE, CBOR_FLOAT32, float_bits(record->value));
    } else {
        at = put_u16(at, VALUE, (uint16_t)record->value.numerator);
    }
    *head = (uint8_t)(CBOR_MAP + members);
    return at;
}
