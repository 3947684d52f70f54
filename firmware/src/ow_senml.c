#include "Onceway.h"

#include <stdbool.h>
#include <string.h>

#include "ow_bytes.h"

/* CBOR's major types and some initial bytes (RFC 8949 section 3), and the labels of RFC 8428
 * section 6. */
enum {
    CBOR_UNSIGNED = 0x00,
    CBOR_NEGATIVE = 0x20,
    CBOR_TEXT = 0x60,
    CBOR_ARRAY = 0x80,
    CBOR_MAP = 0xA0,
    CBOR_DECIMAL_FRACTION = 0xC4,
    CBOR_FLOAT32 = 0xFA
};
enum { HEAD_ONE = 24, HEAD_TWO = 25, HEAD_FOUR = 26 };
enum { BASE_NAME = 0x21, BASE_TIME = 0x22, NAME = 0, UNIT = 1, VALUE = 2, TIME = 6 };
enum { LONGEST_TEXT = 127, FRACTION_BITS = 23, BIAS = 127, LARGEST_EXPONENT = 254 };

/* Where the next byte goes; NULL after a value that did not fit or cannot be written. */
struct writer {
    uint8_t *at;
    const uint8_t *end;
};

static void put_bytes(struct writer *writer, const void *bytes, uint8_t length)
{
    if (!writer->at || writer->end - writer->at < length) {
        writer->at = NULL;
        return;
    }
    memcpy(writer->at, bytes, length);
    writer->at += length;
}

static void put_u8(struct writer *writer, uint8_t byte)
{
    put_bytes(writer, &byte, 1);
}

static void put_u32(struct writer *writer, uint8_t type, uint32_t value)
{
    uint8_t bytes[4];
    ow_put_u32(bytes, value);
    put_u8(writer, type);
    put_bytes(writer, bytes, sizeof bytes);
}

/* An initial byte with its argument in the shortest form (RFC 8949 section 4.2.1). */
static void put_head(struct writer *writer, uint8_t major, uint32_t value)
{
    if (value < HEAD_ONE) {
        put_u8(writer, (uint8_t)(major + value));
    } else if (value <= 0xFF) {
        put_u8(writer, major + HEAD_ONE);
        put_u8(writer, (uint8_t)value);
    } else if (value <= 0xFFFF) {
        put_u8(writer, major + HEAD_TWO);
        put_u8(writer, (uint8_t)(value >> 8));
        put_u8(writer, (uint8_t)value);
    } else {
        put_u32(writer, major + HEAD_FOUR, value);
    }
}

static void put_integer(struct writer *writer, int32_t value)
{
    put_head(writer, value < 0 ? CBOR_NEGATIVE : CBOR_UNSIGNED, (uint32_t)(value ^ value >> 31));
}

static uint8_t length_of(struct writer *writer, const char *text)
{
    size_t length = strlen(text);
    if (length > LONGEST_TEXT) {
        writer->at = NULL;
        return 0;
    }
    return (uint8_t)length;
}

static void put_text(struct writer *writer, uint8_t label, const char *text)
{
    uint8_t length = length_of(writer, text);
    put_u8(writer, label);
    put_head(writer, CBOR_TEXT, length);
    put_bytes(writer, text, length);
}

static void put_base_name(struct writer *writer, const char *device, const char *channel)
{
    uint8_t first = length_of(writer, device), rest = length_of(writer, channel);
    put_u8(writer, BASE_NAME);
    put_head(writer, CBOR_TEXT, (uint32_t)first + 1 + rest);
    put_bytes(writer, device, first);
    put_u8(writer, ':');
    put_bytes(writer, channel, rest);
}

/* IEEE 754 single precision, without a float library. */
static void put_float(struct writer *writer, int32_t number, uint8_t shift)
{
    uint32_t sign = number < 0 ? 0x80000000ul : 0;
    uint32_t fraction = sign ? 0 - (uint32_t)number : (uint32_t)number;
    int16_t exponent = (int16_t)(BIAS + FRACTION_BITS - shift);
    while (fraction >> (FRACTION_BITS + 1) && !(fraction & 1)) {
        fraction >>= 1;
        exponent++;
    }
    while (fraction && !(fraction >> FRACTION_BITS)) {
        fraction <<= 1;
        exponent--;
    }
    if (fraction == 0) {
        exponent = 0;
    } else if (fraction >> (FRACTION_BITS + 1) || exponent < 1 || exponent > LARGEST_EXPONENT) {
        writer->at = NULL; /* the value has more digits than a float */
    }
    put_u32(writer, CBOR_FLOAT32,
        sign | (uint32_t)exponent << FRACTION_BITS |
            (fraction & ((1ul << FRACTION_BITS) - 1)));
}

static void put_value(struct writer *writer, struct ow_senml_value value)
{
    put_u8(writer, VALUE);
    if (value.shift) {
        put_float(writer, value.number, value.shift);
        if (value.exponent) {
            writer->at = NULL;
        }
        return;
    }
    if (value.exponent) {
        put_u8(writer, CBOR_DECIMAL_FRACTION);
        put_u8(writer, CBOR_ARRAY + 2);
        put_integer(writer, value.exponent);
    }
    put_integer(writer, value.number);
}

uint8_t *ow_senml_pack(uint8_t *at, const uint8_t *end, uint8_t records)
{
    struct writer writer = {at, end};
    put_u8(&writer, (uint8_t)(CBOR_ARRAY + records));
    return records < HEAD_ONE ? writer.at : NULL;
}

uint8_t *ow_senml_record(uint8_t *at, const uint8_t *end, const struct ow_senml_record *record)
{
    struct writer writer = {at, end};
    uint8_t members = 1;
    put_u8(&writer, CBOR_MAP);
    if (record->device) {
        put_base_name(&writer, record->device, record->channel ? record->channel : "");
        members++;
    }
    if (record->base_time) {
        put_u8(&writer, BASE_TIME);
        put_head(&writer, CBOR_UNSIGNED, record->base_time);
        members++;
    }
    if (record->name) {
        put_text(&writer, NAME, record->name);
        members++;
    }
    if (record->unit) {
        put_text(&writer, UNIT, record->unit);
        members++;
    }
    if (record->offset) {
        put_u8(&writer, TIME);
        put_head(&writer, CBOR_UNSIGNED, record->offset);
        members++;
    }
    if (record->time_error) {
        static const uint8_t label[] = {CBOR_TEXT + 2, 't', 'u'};
        put_bytes(&writer, label, sizeof label);
        put_head(&writer, CBOR_UNSIGNED, record->time_error);
        members++;
    }
    put_value(&writer, record->value);
    if (writer.at) {
        *at += members;
    }
    return writer.at;
}
