#include "reading.h"

#include "ow_bytes.h"
#include "ow_mqtt.h"
#include "ow_senml.h"

_Static_assert(READING_SIZE <= OW_SCRATCH, "a payload fits where the client wants it");
_Static_assert(SENSOR_READINGS == 1 || (SENSOR_READINGS == 3 && SENSOR_INTERVAL_MS % 1000 == 0),
    "see reading.h");

enum { TIME_AT = 0, VALUE_AT = 4, KIND_AT = 6, DETAIL_AT = 7 };
enum { REFERENCE_VOLTS = 5, ADC_BITS = 10, ADC_MASK = 0x3FF };
#define THREE 0xC0000000ul

void reading_put(uint8_t *source, uint32_t time, uint16_t value, uint8_t kind, uint8_t detail)
{
    ow_put_u32(source + TIME_AT, time);
    ow_put_u16(source + VALUE_AT, value);
    source[KIND_AT] = kind;
    source[DETAIL_AT] = detail;
}

void reading_put_three(uint8_t *source, uint32_t time, const uint16_t *values)
{
    ow_put_u32(source + TIME_AT, time);
    ow_put_u32(source + VALUE_AT,
        THREE | (uint32_t)values[0] << 20 | (uint32_t)values[1] << 10 | values[2]);
}

static bool is_three(const uint8_t *source)
{
    return SENSOR_READINGS == 3 && source[VALUE_AT] >= 0xC0;
}

uint8_t reading_kind(const uint8_t *source)
{
    return is_three(source) ? 0 : source[KIND_AT];
}

static struct ow_senml_value volts(uint16_t raw)
{
    return (struct ow_senml_value){(uint32_t)raw * REFERENCE_VOLTS, ADC_BITS};
}

static uint8_t *encode_status(uint8_t *at, struct ow_senml_record *record, const uint8_t *source,
    const struct ow_link_counts *counts)
{
    const struct {
        const char *name;
        uint16_t value;
    } others[] = {
        {"cause", source[DETAIL_AT]}, {"bad", counts->broken}, {"again", counts->repeats}};
    at = ow_senml_pack(at, 4);
    record->name = "boot";
    record->value.numerator = ow_get_u16(source + VALUE_AT);
    at = ow_senml_record(at, record);
    for (uint8_t i = 0; i < 3; i++) {
        struct ow_senml_record other = {.name = others[i].name, .value = {others[i].value, 0}};
        at = ow_senml_record(at, &other);
    }
    return at;
}

static uint8_t *encode_one(uint8_t *at, struct ow_senml_record *record, const uint8_t *source)
{
    char name[] = "adc0";
    name[3] = (char)('0' + source[KIND_AT]);
    record->name = name;
    record->unit = "V";
    record->value = volts(ow_get_u16(source + VALUE_AT));
    if (source[DETAIL_AT] == 0) {
        return ow_senml_record(ow_senml_pack(at, 1), record);
    }
    struct ow_senml_record missed = {.name = "missed", .value = {source[DETAIL_AT], 0}};
    return ow_senml_record(ow_senml_record(ow_senml_pack(at, 2), record), &missed);
}

static uint8_t *encode_three(uint8_t *at, struct ow_senml_record *record, const uint8_t *source)
{
    uint32_t values = ow_get_u32(source + VALUE_AT);
    at = ow_senml_pack(at, 3);
    record->channel = "adc0";
    record->unit = "V";
    for (uint8_t i = 0; i < 3; i++) {
        record->value = volts((uint16_t)(values >> 20) & ADC_MASK);
        at = ow_senml_record(at, record);
        record->device = 0;
        record->base_time = 0;
        record->offset = (uint16_t)(record->offset + SENSOR_INTERVAL_MS / 1000);
        values <<= 10;
    }
    return at;
}

/* 0: not known */
static uint32_t utc(uint32_t time, uint32_t utc_at_start)
{
    if (!(time & OW_UPTIME_BIT)) {
        return time;
    }
    return utc_at_start ? utc_at_start + (time & ~OW_UPTIME_BIT) : 0;
}

uint8_t reading_encode(uint8_t *out, const uint8_t *source, const struct reading_context *context)
{
    struct ow_senml_record record = {.device = context->device,
        .base_time = utc(ow_get_u32(source + TIME_AT), context->utc_at_start)};
    uint8_t *end;
    if (is_three(source)) {
        end = encode_three(out, &record, source);
    } else if (source[KIND_AT] == READING_STATUS) {
        end = encode_status(out, &record, source, context->counts);
    } else {
        end = encode_one(out, &record, source);
    }
    return (uint8_t)(end - out);
}
