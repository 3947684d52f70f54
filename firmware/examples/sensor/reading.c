#include "reading.h"

_Static_assert(READING_SIZE <= OW_SCRATCH, "a payload fits where the client wants it");
_Static_assert(SENSOR_READINGS == 1 || (SENSOR_READINGS == 3 && SENSOR_INTERVAL_MS % 1000 == 0),
    "see reading.h");

enum { TIME_AT = 0, VALUE_AT = 4, KIND_AT = 6, DETAIL_AT = 7 };
enum { REFERENCE_VOLTS = 5, ADC_BITS = 10, ADC_MASK = 0x3FF };
#define THREE 0xC0000000ul

enum { CHANNEL_MASK = 7, ERROR_SHIFT = 3, ERROR_CODES = 30 };

static uint32_t error_seconds(uint8_t code)
{
    return code ? (2ul + ((code - 1) & 1)) << ((code - 1) >> 1) : 0;
}

uint8_t reading_make_kind(uint8_t channel, uint32_t time_error)
{
    uint8_t code = 0;
    while (code < ERROR_CODES && error_seconds(code) < time_error) {
        code++;
    }
    return (uint8_t)(code << ERROR_SHIFT | channel);
}

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
    return (struct ow_senml_value){.number = (int32_t)raw * REFERENCE_VOLTS, .shift = ADC_BITS};
}

/* A status: as many records as there is room for, the more important ones first. */
struct status {
    uint8_t *at;
    const uint8_t *end;
    uint8_t records;
};

static void add(struct status *status, const char *name, uint16_t number, int8_t exponent)
{
    struct ow_senml_record record = {.name = name, .value = {number, exponent, 0}};
    uint8_t *at = ow_senml_record(status->at, status->end, &record);
    if (at) {
        status->at = at;
        status->records++;
    }
}

static uint8_t *encode_status(uint8_t *out, const uint8_t *end, struct ow_senml_record *record,
    const uint8_t *source, const struct reading_context *context)
{
    uint16_t value = ow_get_u16(source + VALUE_AT);
    record->name = value & READING_FAULT ? "adc0.fault" : "boot";
    record->value.number = value & ~READING_FAULT;
    if (value & READING_FAULT) {
        return ow_senml_record(ow_senml_pack(out, end, 1), end, record);
    }
    struct status status = {
        ow_senml_record(ow_senml_pack(out, end, 1), end, record), end, 1};
    add(&status, "cause", source[DETAIL_AT], 0);
    if (context->denied != READING_NOT_DENIED) {
        add(&status, "denied", context->denied, -1);
    }
    add(&status, "worn", context->health->worn, 0);
    add(&status, "life", context->life, -1);
    add(&status, "aside", context->health->aside, 0);
    add(&status, "bad", context->health->broken, 0);
    add(&status, "again", context->health->repeats, 0);
    ow_senml_pack(out, end, status.records);
    return status.at;
}

static uint16_t time_error(const uint8_t *source, const struct ow_clock *clock)
{
    uint32_t time = ow_get_u32(source + TIME_AT);
    uint8_t kind = source[KIND_AT];
    if (time & OW_UPTIME_BIT) {
        kind = reading_make_kind(0, ow_clock_error_before(clock, time));
    }
    return (uint16_t)error_seconds(kind >> ERROR_SHIFT);
}

static uint8_t *encode_one(uint8_t *at, const uint8_t *end, struct ow_senml_record *record,
    const uint8_t *source, const struct ow_clock *clock)
{
    char name[] = "adc0";
    name[3] = (char)('0' + (source[KIND_AT] & CHANNEL_MASK));
    if (record->base_time) {
        record->time_error = time_error(source, clock);
    }
    record->name = name;
    record->unit = "V";
    record->value = volts(ow_get_u16(source + VALUE_AT));
    if (source[DETAIL_AT] == 0) {
        return ow_senml_record(ow_senml_pack(at, end, 1), end, record);
    }
    at = ow_senml_record(ow_senml_pack(at, end, 2), end, record);
    *record = (struct ow_senml_record){.name = "missed", .value = {.number = source[DETAIL_AT]}};
    return ow_senml_record(at, end, record);
}

static uint8_t *encode_three(
    uint8_t *at, const uint8_t *end, struct ow_senml_record *record, const uint8_t *source)
{
    uint32_t values = ow_get_u32(source + VALUE_AT);
    at = ow_senml_pack(at, end, 3);
    record->channel = "adc0";
    record->unit = "V";
    for (uint8_t i = 0; i < 3; i++) {
        record->value = volts((uint16_t)(values >> 20) & ADC_MASK);
        at = ow_senml_record(at, end, record);
        record->device = 0;
        record->base_time = 0;
        record->offset = (uint16_t)(record->offset + SENSOR_INTERVAL_MS / 1000);
        values <<= 10;
    }
    return at;
}

uint8_t reading_encode(uint8_t *out, uint8_t size, const uint8_t *source,
    const struct reading_context *context)
{
    const uint8_t *limit = out + size;
    struct ow_senml_record record = {.device = context->device,
        .base_time = ow_mqtt_utc(ow_get_u32(source + TIME_AT),
            context->clock ? context->clock->utc_at_start : 0)};
    uint8_t *end;
    if (is_three(source)) {
        end = encode_three(out, limit, &record, source);
    } else if (source[KIND_AT] == READING_STATUS) {
        end = encode_status(out, limit, &record, source, context);
    } else {
        end = encode_one(out, limit, &record, source, context->clock);
    }
    return end ? (uint8_t)(end - out) : 0;
}
