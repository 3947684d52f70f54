/* The sensor example as a whole on the board in memory: its interval in the EEPROM, and its limits. */
#include "../examples/sensor/sensor.c"

#include "board.h"
#include "check.h"

enum { FIRST_BITS = 8 * FIRST_SIZE, ALL_BITS = FIRST_BITS + 8 * SECOND_SIZE, NUMBERS = 0x10000 };
static uint8_t *const area = board.eeprom + OW_JOURNAL_APPLICATION;
static uint16_t crcs[UNITS][NUMBERS]; /* of each first record */

static uint32_t milliseconds_of(uint16_t number, enum unit unit)
{
    return to_milliseconds(&(struct interval){number, unit});
}

static void keep(uint16_t number, enum unit unit)
{
    set_interval(&(struct interval){number, unit});
}

static void flip(unsigned bit)
{
    area[bit / 8] ^= (uint8_t)(1 << bit % 8);
}

static void expect_after_flips(uint16_t number, enum unit unit, unsigned bits)
{
    keep(number, unit);
    for (unsigned bit = 0; bit < bits; bit++) {
        flip(bit);
        uint32_t found = stored_interval();
        CHECK(found == milliseconds_of(number, unit) && !torn, "%u of unit %u, bit %u: %u", number,
            unit, bit, found);
        flip(bit);
    }
}

static void no_changed_bit_makes_another_interval(void)
{
    board_new("s1");
    board.instant = true;
    for (uint32_t number = 1; number < NUMBERS; number += 499) {
        for (enum unit unit = MILLISECONDS; unit < UNITS; unit++) {
            expect_after_flips((uint16_t)number, unit, ALL_BITS);
        }
    }
    expect_after_flips(SAMPLING_OFF, MILLISECONDS, ALL_BITS);
}

/* Numbers whose first record is one bit from that of another interval: 30 s and 14 ms. */
static bool is_doubtful(uint16_t number, enum unit unit)
{
    for (unsigned bit = 0; bit < 16; bit++) {
        uint16_t mask = (uint16_t)(1 << bit), other = number ^ mask;
        for (enum unit another = MILLISECONDS; another < UNITS; another++) {
            if ((other && crcs[another][other] == crcs[unit][number]) ||
                (another != unit && crcs[another][number] == (crcs[unit][number] ^ mask))) {
                return true;
            }
        }
    }
    return false;
}

static void a_first_record_near_another_one_is_told_apart_by_the_second(void)
{
    unsigned doubtful = 0;
    board_new("s1");
    board.instant = true;
    for (uint32_t number = 0; number < NUMBERS; number++) {
        uint8_t bytes[2];
        ow_put_u16(bytes, (uint16_t)number);
        for (enum unit unit = MILLISECONDS; unit < UNITS; unit++) {
            crcs[unit][number] = crc_of(bytes, unit);
        }
    }
    for (uint32_t number = 1; number < NUMBERS; number++) {
        for (enum unit unit = MILLISECONDS; unit < UNITS; unit++) {
            if (is_doubtful((uint16_t)number, unit)) {
                doubtful++;
                expect_after_flips((uint16_t)number, unit, FIRST_BITS);
            }
        }
    }
    CHECK(is_doubtful(30, SECONDS) && is_doubtful(15, MINUTES), "as it was found");
    CHECK(doubtful > 100, "%u", doubtful);
}

static void an_interval_of_an_older_release_stands(void)
{
    board_new("s1");
    board.instant = true;
    keep(90, SECONDS);
    memset(area + FIRST_SIZE, 0xFF, SECOND_SIZE);
    CHECK_EQUAL(stored_interval(), 90000);
    uint8_t older[FIRST_SIZE];
    memcpy(older, area, FIRST_SIZE);
    keep(5, MINUTES); /* by this release, then again by the older one */
    memcpy(area, older, FIRST_SIZE);
    CHECK_EQUAL(stored_interval(), 90000);
    memset(area, 0xFF, FIRST_SIZE + SECOND_SIZE);
    CHECK_EQUAL(stored_interval(), SENSOR_INTERVAL_MS);
    CHECK(!torn, "a new board");
    memset(area, 0x3C, FIRST_SIZE + SECOND_SIZE);
    CHECK_EQUAL(stored_interval(), SENSOR_INTERVAL_MS);
    CHECK(torn, "both are damaged");
}

/* The interval that a start finds after a power cut in a write. */
static uint32_t after_cut(const struct interval *old, const struct interval *next, unsigned write)
{
    set_interval(old);
    board_power_on();
    board.cut_at_write = write;
    if (setjmp(board.cut) == 0) {
        set_interval(next);
    }
    board.cut_at_write = 0;
    return stored_interval();
}

static void a_power_cut_leaves_the_interval_before_or_the_new_one(void)
{
    static const struct interval pairs[][2] = {{{30, SECONDS}, {14, MILLISECONDS}},
        {{14, MILLISECONDS}, {30, SECONDS}}, {{65534, MILLISECONDS}, {1, MINUTES}}};
    for (unsigned i = 0; i < 3 * TEARS * ALL_BITS / 8; i++) {
        const struct interval *pair = pairs[i % 3];
        board_new("s1");
        board.instant = true;
        board.tear = (enum tear)(i / 3 % TEARS);
        uint32_t found = after_cut(&pair[0], &pair[1], i / 3 / TEARS + 1);
        CHECK(found == to_milliseconds(&pair[0]) || found == to_milliseconds(&pair[1]), "%u: %u", i,
            found);
    }
}

/* --- limits: this program has SENSOR_LEAST and SENSOR_STEP --- */

static void run(uint16_t adc, unsigned seconds)
{
    board.adc = adc;
    for (unsigned tick = 0; tick < seconds * 100 || ow_mqtt_busy(&client); tick++) {
        board.now += 10;
        loop();
    }
}

static const uint8_t *source_of(uint32_t sequence)
{
    const uint8_t *slot = board.eeprom + 0x040 + (sequence - 1) * OW_JOURNAL_SLOT_SIZE;
    CHECK_EQUAL(ow_get_u32(slot), sequence);
    return slot + 4;
}

static void expect_value(uint32_t sequence, uint16_t value)
{
    CHECK(reading_kind(source_of(sequence)) != READING_STATUS, "%u", sequence);
    CHECK_EQUAL(ow_get_u16(source_of(sequence) + 4), value);
}

static void expect_fault(uint32_t sequence, enum ow_sensor_fault fault)
{
    CHECK_EQUAL(reading_kind(source_of(sequence)), READING_STATUS);
    CHECK_EQUAL(ow_get_u16(source_of(sequence) + 4), READING_FAULT | fault);
}

static void a_value_outside_the_limits_is_a_fault_and_told_once(void)
{
    board_new("s1");
    board.instant = true;
    keep(1000, MILLISECONDS);
    board_power_on();
    setup();
    run(512, 2);
    expect_value(2, 512); /* after the status of the start */
    uint32_t next = client.journal.next;
    run(0, 5);
    expect_fault(next, OW_SENSOR_RANGE);
    CHECK_EQUAL(client.journal.next, next + 1);
    run(600, 3);
    expect_fault(next + 1, OW_SENSOR_WELL);
    expect_value(next + 2, 600);
    next = client.journal.next;
    run(900, 2);
    expect_value(next, 900); /* a step that stays */
}

int main(void)
{
    RUN(no_changed_bit_makes_another_interval);
    RUN(a_first_record_near_another_one_is_told_apart_by_the_second);
    RUN(an_interval_of_an_older_release_stands);
    RUN(a_power_cut_leaves_the_interval_before_or_the_new_one);
    RUN(a_value_outside_the_limits_is_a_fault_and_told_once);
    return 0;
}
