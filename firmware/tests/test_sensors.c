/* The judge of sensors, and what the examples make of all raw values that a sensor can send. */
#include "../examples/dht22/frame.h"
#include "../examples/ds18b20/scratchpad.h"
#include "board.h"
#include "check.h"

static const struct ow_sensor_limits limits = {-400, 1250, 50, 4};
static struct ow_sensor sensor;

static void begin(void)
{
    sensor = (struct ow_sensor){0};
}

static bool judge(int32_t value)
{
    return ow_sensor_judge(&sensor, &limits, OW_SENSOR_WELL, value);
}

static void a_first_value_needs_a_second_one_near_it(void)
{
    begin();
    CHECK(!judge(200), "one");
    CHECK(judge(250), "a step away");
    CHECK_EQUAL(sensor.value, 250);
    CHECK_EQUAL(ow_sensor_due(&sensor), OW_SENSOR_VALUE);
}

static void a_jump_counts_when_it_stays(void)
{
    begin();
    judge(200);
    judge(200);
    CHECK(judge(150), "near");
    CHECK(!judge(201), "51 away");
    CHECK_EQUAL(sensor.value, 150);
    CHECK(judge(150), "it was a glitch");
    CHECK(!judge(1000), "a jump");
    CHECK(judge(1010), "that stays");
    CHECK_EQUAL(sensor.value, 1010);
    CHECK(!judge(200), "a jump");
    CHECK(!ow_sensor_judge(&sensor, &limits, OW_SENSOR_GARBLED, 0), "garbled");
    CHECK(!judge(200), "near means one right after the other");
    CHECK(judge(200), "now");
}

static void every_value_of_16_bits_and_beyond_is_kept_to_the_range(void)
{
    for (int32_t value = -70000; value <= 70000; value++) {
        begin();
        bool fits = value >= limits.least && value <= limits.most;
        bool stands = false;
        for (int i = 0; i < limits.tries && !stands; i++) {
            stands = judge(value);
            CHECK_EQUAL(stands, i == (fits ? 1 : limits.tries - 1));
        }
        CHECK_EQUAL(sensor.fault, fits ? OW_SENSOR_WELL : OW_SENSOR_RANGE);
        CHECK_EQUAL(ow_sensor_due(&sensor), fits ? OW_SENSOR_VALUE : OW_SENSOR_STATUS);
        CHECK(!fits || sensor.value == value, "%d", value);
    }
}

static void tries_are_bounded_for_each_fault(void)
{
    for (int fault = OW_SENSOR_ABSENT; fault < OW_SENSOR_FAULTS; fault++) {
        begin();
        for (int i = 1; i < limits.tries; i++) {
            CHECK(!ow_sensor_judge(&sensor, &limits, fault, 200), "fault %d, try %d", fault, i);
        }
        CHECK(ow_sensor_judge(&sensor, &limits, fault, 200), "fault %d", fault);
        CHECK_EQUAL(sensor.fault, fault);
        CHECK_EQUAL(ow_sensor_due(&sensor), OW_SENSOR_STATUS);
        ow_sensor_told(&sensor);
        CHECK_EQUAL(ow_sensor_due(&sensor), OW_SENSOR_NOTHING);
        CHECK(!judge(200), "a value after a fault needs a second one");
        CHECK(judge(200), "well again");
        CHECK_EQUAL(ow_sensor_due(&sensor), OW_SENSOR_STATUS);
        ow_sensor_told(&sensor);
        CHECK_EQUAL(ow_sensor_due(&sensor), OW_SENSOR_VALUE);
    }
    begin();
    for (int i = 1; i < limits.tries; i++) {
        CHECK(!judge(i * 200), "try %d", i);
    }
    CHECK(judge(0), "values that wander");
    CHECK_EQUAL(sensor.fault, OW_SENSOR_UNSTEADY);
}

static void the_largest_step_reaches_over_16_bits(void)
{
    const struct ow_sensor_limits widest = {INT16_MIN, INT16_MAX, UINT16_MAX, 2};
    const struct ow_sensor_limits narrow = {INT16_MIN, INT16_MAX, UINT16_MAX - 1, 3};
    begin();
    CHECK(!ow_sensor_judge(&sensor, &widest, OW_SENSOR_WELL, INT16_MIN), "first");
    CHECK(ow_sensor_judge(&sensor, &widest, OW_SENSOR_WELL, INT16_MAX), "any step");
    CHECK(!ow_sensor_judge(&sensor, &narrow, OW_SENSOR_WELL, INT16_MIN), "too far");
}

/* --- DHT22: each temperature and each humidity that an answer can hold --- */

static enum ow_sensor_fault decode_dht22(
    uint16_t humidity, uint16_t temperature, int16_t *tenths, uint16_t *percent)
{
    uint8_t bytes[] = {(uint8_t)(humidity >> 8), (uint8_t)humidity, (uint8_t)(temperature >> 8),
        (uint8_t)temperature, 0};
    bytes[4] = (uint8_t)(bytes[0] + bytes[1] + bytes[2] + bytes[3]);
    enum ow_sensor_fault fault = dht22_decode(bytes, tenths, percent);
    bytes[4] ^= 1;
    int16_t none;
    uint16_t nothing;
    CHECK_EQUAL(dht22_decode(bytes, &none, &nothing), OW_SENSOR_GARBLED);
    return fault;
}

static void each_temperature_of_a_dht22(void)
{
    for (uint32_t raw = 0; raw <= 0xFFFF; raw++) {
        int16_t tenths = 0;
        uint16_t percent = 0;
        CHECK_EQUAL(decode_dht22(402, (uint16_t)raw, &tenths, &percent), OW_SENSOR_WELL);
        CHECK_EQUAL(percent, 402);
        bool possible = tenths >= -400 && tenths <= 800;
        if (raw <= 800) {
            CHECK_EQUAL(tenths, raw);
        } else if (raw >= 0x8000 && raw <= 0x8000 + 400) { /* sign and magnitude */
            CHECK_EQUAL(tenths, -(int)(raw - 0x8000));
        } else if (raw >= 0x10000 - 400) { /* two's complement */
            CHECK_EQUAL(tenths, (int)raw - 0x10000);
        } else {
            CHECK(!possible, "%04x is no %d", raw, tenths);
        }
    }
}

static void each_humidity_of_a_dht22(void)
{
    for (uint32_t raw = 0; raw <= 0xFFFF; raw++) {
        int16_t tenths = 0;
        uint16_t percent = 0;
        enum ow_sensor_fault fault = decode_dht22((uint16_t)raw, 250, &tenths, &percent);
        CHECK_EQUAL(fault, OW_SENSOR_WELL);
        CHECK_EQUAL(percent, raw);
    }
}

static void a_dht11_is_told_apart_at_each_of_its_values(void)
{
    for (int percent = 5; percent <= 95; percent++) {
        for (int degrees = -20; degrees <= 60; degrees++) {
            int16_t tenths;
            uint16_t humidity;
            int magnitude = degrees < 0 ? -degrees : degrees;
            uint16_t temperature = (uint16_t)(magnitude << 8 | (degrees < 0 ? 0x80 : 0) | 3);
            CHECK_EQUAL(decode_dht22((uint16_t)(percent << 8), temperature, &tenths, &humidity),
                OW_SENSOR_OTHER);
        }
    }
}

static void an_answer_of_zeros_is_none(void)
{
    int16_t tenths;
    uint16_t percent;
    CHECK_EQUAL(dht22_decode((const uint8_t[DHT22_BYTES]){0}, &tenths, &percent),
        OW_SENSOR_GARBLED);
}

/* --- DS18B20: each temperature register --- */

static uint8_t crc_of(const uint8_t *bytes, int count)
{
    uint8_t crc = 0;
    for (int i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? (uint8_t)(crc >> 1 ^ 0x8C) : crc >> 1;
        }
    }
    return crc;
}

static enum ow_sensor_fault decode_ds18b20(
    uint16_t raw, uint8_t low, uint8_t high, uint8_t configuration, int16_t *sixteenths)
{
    uint8_t bytes[DS18B20_SCRATCHPAD] = {
        (uint8_t)raw, (uint8_t)(raw >> 8), low, high, configuration, 0xFF, 0x0C, 0x10};
    bytes[8] = crc_of(bytes, 8);
    return ds18b20_decode(bytes, 0x17, sixteenths);
}

static void each_value_of_a_ds18b20(void)
{
    const struct ow_sensor_limits range = {-880, 2000, 80, 4};
    for (uint32_t raw = 0; raw <= 0xFFFF; raw++) {
        int16_t sixteenths = 0;
        CHECK_EQUAL(
            decode_ds18b20((uint16_t)raw, 0x17, 0xE8, 0x7F, &sixteenths), OW_SENSOR_WELL);
        CHECK_EQUAL(sixteenths, (int16_t)raw);
        begin();
        for (int i = 0; i < 4; i++) {
            if (ow_sensor_judge(&sensor, &range, OW_SENSOR_WELL, sixteenths)) {
                break;
            }
        }
        bool fits = (int16_t)raw >= -55 * 16 && (int16_t)raw <= 125 * 16;
        CHECK_EQUAL(sensor.fault, fits ? OW_SENSOR_WELL : OW_SENSOR_RANGE);
    }
}

static void a_ds18b20_that_has_lost_its_mark_has_not_measured(void)
{
    int16_t sixteenths = 0;
    CHECK_EQUAL(decode_ds18b20(1360, 0x17, 0xE8, 0x7F, &sixteenths), OW_SENSOR_WELL);
    CHECK_EQUAL(sixteenths, 85 * 16);
    CHECK_EQUAL(decode_ds18b20(1360, 0x4B, 0x46, 0x7F, &sixteenths), OW_SENSOR_UNMEASURED);
    CHECK_EQUAL(decode_ds18b20(1360, 0x17, 0xE7, 0x7F, &sixteenths), OW_SENSOR_UNMEASURED);
    CHECK_EQUAL(decode_ds18b20(1360, 0x17, 0xE8, 0x1F, &sixteenths), OW_SENSOR_UNMEASURED);
}

static void a_scratchpad_with_any_bit_wrong_is_garbled(void)
{
    uint8_t bytes[DS18B20_SCRATCHPAD] = {0x50, 0x01, 0x17, 0xE8, 0x7F, 0xFF, 0x0C, 0x10};
    bytes[8] = crc_of(bytes, 8);
    for (int bit = 0; bit < 72; bit++) {
        int16_t sixteenths;
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK_EQUAL(ds18b20_decode(bytes, 0x17, &sixteenths), OW_SENSOR_GARBLED);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    int16_t none;
    CHECK_EQUAL(ds18b20_decode((const uint8_t[DS18B20_SCRATCHPAD]){0}, 0, &none),
        OW_SENSOR_GARBLED);
}

static void only_the_family_of_the_ds18b20_is_taken(void)
{
    for (int family = 0; family <= 0xFF; family++) {
        uint8_t rom[DS18B20_ROM] = {(uint8_t)family, 1, 2, 3, 4, 5, 6};
        rom[7] = crc_of(rom, 7);
        CHECK_EQUAL(ds18b20_check_rom(rom), family == 0x28 ? OW_SENSOR_WELL : OW_SENSOR_OTHER);
        rom[7] ^= 1;
        CHECK_EQUAL(ds18b20_check_rom(rom), OW_SENSOR_GARBLED);
    }
    CHECK_EQUAL(ds18b20_check_rom((const uint8_t[DS18B20_ROM]){0}), OW_SENSOR_GARBLED);
}

int main(void)
{
    RUN(a_first_value_needs_a_second_one_near_it);
    RUN(a_jump_counts_when_it_stays);
    RUN(every_value_of_16_bits_and_beyond_is_kept_to_the_range);
    RUN(tries_are_bounded_for_each_fault);
    RUN(the_largest_step_reaches_over_16_bits);
    RUN(each_temperature_of_a_dht22);
    RUN(each_humidity_of_a_dht22);
    RUN(a_dht11_is_told_apart_at_each_of_its_values);
    RUN(an_answer_of_zeros_is_none);
    RUN(each_value_of_a_ds18b20);
    RUN(a_ds18b20_that_has_lost_its_mark_has_not_measured);
    RUN(a_scratchpad_with_any_bit_wrong_is_garbled);
    RUN(only_the_family_of_the_ds18b20_is_taken);
    return 0;
}
