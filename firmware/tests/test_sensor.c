/* The sensor example's payloads as byte arrays, and its commands. Built with three readings a
 * packet. */
#include "board.h"
#include "check.h"
#include "command.h"
#include "reading.h"

static const struct ow_health health = {.broken = 300, .repeats = 2, .worn = 1, .aside = 24};

static const struct ow_clock *timepiece;
static uint16_t denied = READING_NOT_DENIED;
static uint8_t room = OW_SCRATCH;

static uint8_t encode(uint8_t *out, const uint8_t *source, const char *device)
{
    return reading_encode(out, room, source,
        &(struct reading_context){.device = device,
            .clock = timepiece,
            .denied = denied,
            .life = 114,
            .health = &health});
}

static void expect(
    const uint8_t *source, const char *device, const uint8_t *wanted, unsigned length)
{
    uint8_t out[OW_SCRATCH];
    CHECK_EQUAL(encode(out, source, device), length);
    for (unsigned i = 0; i < length; i++) {
        CHECK(out[i] == wanted[i], "byte %u is %02x, should be %02x", i, out[i], wanted[i]);
    }
}

#define EXPECT(source, device, ...)                                                                \
    expect(source, device, (const uint8_t[]){__VA_ARGS__}, sizeof (const uint8_t[]){__VA_ARGS__})

static void one_reading(void)
{
    uint8_t source[8];
    reading_put(source, 1767225600, 512, 0, 0); /* 2.5 V = 0x40200000 */
    EXPECT(source, "s1", 0x81, 0xA5, 0x21, 0x63, 's', '1', ':', 0x22, 0x1A, 0x69, 0x55, 0xB9, 0x00,
        0x00, 0x64, 'a', 'd', 'c', '0', 0x01, 0x61, 'V', 0x02, 0xFA, 0x40, 0x20, 0x00, 0x00);
    reading_put(source, 1767225600 | 0x80000000u, 0, 3, 0); /* no time, 0 V */
    EXPECT(source, "s1", 0x81, 0xA4, 0x21, 0x63, 's', '1', ':', 0x00, 0x64, 'a', 'd', 'c', '3',
        0x01, 0x61, 'V', 0x02, 0xFA, 0, 0, 0, 0);
    /* 4.9951171875 V = 0x409FD800, after 7 samples that were not taken */
    reading_put(source, 1767225600 | 0x80000000u, 1023, 0, 7);
    EXPECT(source, "s1", 0x82, 0xA4, 0x21, 0x63, 's', '1', ':', 0x00, 0x64, 'a', 'd', 'c', '0',
        0x01, 0x61, 'V', 0x02, 0xFA, 0x40, 0x9F, 0xD8, 0x00, 0xA2, 0x00, 0x66, 'm', 'i', 's', 's',
        'e', 'd', 0x02, 7);
}

static void a_reading_from_before_the_time_was_known(void)
{
    uint8_t source[8];
    reading_put(source, 3 | 0x80000000u, 512, 0, 0);
    /* the time came 997 s later: 3 s, and 0.5 % of these */
    timepiece = &(struct ow_clock){.utc_at_start = 1767225597, .learnt = 1000};
    EXPECT(source, "s1", 0x81, 0xA6, 0x21, 0x63, 's', '1', ':', 0x22, 0x1A, 0x69, 0x55, 0xB9, 0x00,
        0x00, 0x64, 'a', 'd', 'c', '0', 0x01, 0x61, 'V', 0x62, 't', 'u', 8, 0x02, 0xFA, 0x40, 0x20,
        0x00, 0x00);
    timepiece = NULL;
}

/* Whatever the error is, it is said, and not by more than a half too large. */
static void how_far_a_time_may_be_wrong(void)
{
    uint8_t source[8], out[OW_SCRATCH];
    reading_put(source, 1767225600, 512, reading_make_kind(5, 7), 0);
    EXPECT(source, "s1", 0x81, 0xA6, 0x21, 0x63, 's', '1', ':', 0x22, 0x1A, 0x69, 0x55, 0xB9, 0x00,
        0x00, 0x64, 'a', 'd', 'c', '5', 0x01, 0x61, 'V', 0x62, 't', 'u', 8, 0x02, 0xFA, 0x40, 0x20,
        0x00, 0x00);
    for (uint32_t error = 2; error < 49152; error += error / 97 + 1) {
        reading_put(source, 1767225600, 512, reading_make_kind(7, error), 0);
        CHECK(reading_kind(source) != READING_STATUS, "%u s", error);
        CHECK(encode(out, source, "s1") > 30, "%u s", error);
        const uint8_t *at = out + 25;
        uint32_t said = at[0] < 24 ? at[0] : at[0] == 24 ? at[1] : ow_get_u16(at + 1);
        CHECK(error <= said && said <= error + error / 2 + 1, "%u s for %u s", said, error);
    }
}

static void a_status(void)
{
    uint8_t source[8];
    reading_put(source, 5 | 0x80000000u, 258, READING_STATUS, 1);
    EXPECT(source, "s1", 0x87, 0xA3, 0x21, 0x63, 's', '1', ':', 0x00, 0x64, 'b', 'o', 'o', 't',
        0x02, 0x19, 1, 2, 0xA2, 0x00, 0x65, 'c', 'a', 'u', 's', 'e', 0x02, 1, 0xA2, 0x00, 0x64, 'w',
        'o', 'r', 'n', 0x02, 1, 0xA2, 0x00, 0x64, 'l', 'i', 'f', 'e', 0x02, 0xC4, 0x82, 0x20, 0x18,
        114, 0xA2, 0x00, 0x65, 'a', 's', 'i', 'd', 'e', 0x02, 0x18, 24, 0xA2, 0x00, 0x63, 'b', 'a',
        'd', 0x02, 0x19, 1, 0x2C, 0xA2, 0x00, 0x65, 'a', 'g', 'a', 'i', 'n', 0x02, 2);
    /* A tenth of a year is what a refused interval would leave; the last ones find no room. */
    denied = 1;
    room = 52;
    EXPECT(source, "s1", 0x84, 0xA3, 0x21, 0x63, 's', '1', ':', 0x00, 0x64, 'b', 'o', 'o', 't',
        0x02, 0x19, 1, 2, 0xA2, 0x00, 0x65, 'c', 'a', 'u', 's', 'e', 0x02, 1, 0xA2, 0x00, 0x66, 'd',
        'e', 'n', 'i', 'e', 'd', 0x02, 0xC4, 0x82, 0x20, 1, 0xA2, 0x00, 0x64, 'w', 'o', 'r', 'n',
        0x02, 1);
    denied = READING_NOT_DENIED;
    room = OW_SCRATCH;
}

static void the_years_after_2037(void)
{
    uint8_t source[8];
    uint32_t in_2039 = 2177452800u, kept = in_2039 & ~OW_UPTIME_BIT;
    CHECK_EQUAL(ow_mqtt_utc(kept, 0), in_2039);
    CHECK_EQUAL(ow_mqtt_utc(1767225600, 0), 1767225600);
    CHECK_EQUAL(ow_mqtt_utc(5 | OW_UPTIME_BIT, in_2039), in_2039 + 5);
    reading_put(source, kept, 512, 0, 0);
    EXPECT(source, "s1", 0x81, 0xA5, 0x21, 0x63, 's', '1', ':', 0x22, 0x1A, 0x81, 0xC9, 0x4B, 0x00,
        0x00, 0x64, 'a', 'd', 'c', '0', 0x01, 0x61, 'V', 0x02, 0xFA, 0x40, 0x20, 0x00, 0x00);
}

static void three_readings(void)
{
    uint8_t source[8];
    /* 1: 0.0048828125 V = 0x3BA00000 */
    reading_put_three(source, 1767225600, (const uint16_t[]){512, 1023, 1});
    EXPECT(source, "s1", 0x83, 0xA4, 0x21, 0x67, 's', '1', ':', 'a', 'd', 'c', '0', 0x22, 0x1A,
        0x69, 0x55, 0xB9, 0x00, 0x01, 0x61, 'V', 0x02, 0xFA, 0x40, 0x20, 0, 0, 0xA3, 0x01, 0x61,
        'V', 0x06, 2, 0x02, 0xFA, 0x40, 0x9F, 0xD8, 0, 0xA3, 0x01, 0x61, 'V', 0x06, 4, 0x02, 0xFA,
        0x3B, 0xA0, 0, 0);
}

static void the_longest_fit(void)
{
    uint8_t out[OW_SCRATCH], source[8];
    const char *name = "abcdefghijklmnopqrstuvw";
    reading_put(source, 1767225600, READING_BOOT_MASK, READING_STATUS, 3);
    room = 80; /* what PUBLISH has left for this name */
    CHECK(encode(out, source, name) > 0);
    CHECK_EQUAL(out[0], 0x84); /* with the EEPROM's life, but not with what the link counts */
    room = READING_SIZE;
    CHECK(out[2] == 0x21 && out[3] == 0x78 && out[4] == 24,
        "a text of 24 characters has its length in a byte of its own");
    reading_put(source, 1767225600, 1023, 7, 255);
    CHECK(encode(out, source, name) > 0);
    reading_put_three(source, 1767225600, (const uint16_t[]){1023, 1023, 1023});
    CHECK_EQUAL(encode(out, source, name), READING_SIZE);
    room = OW_SCRATCH;
}

static enum command command(const char *text, struct interval *interval)
{
    return command_read((const uint8_t *)text, (uint8_t)strlen(text), interval);
}

static void commands(void)
{
    static const struct {
        const char *text;
        enum command command;
        struct interval interval;
    } right[] = {{"interval 1", COMMAND_INTERVAL, {1, MILLISECONDS}},
        {"interval 65535", COMMAND_INTERVAL, {65535, MILLISECONDS}},
        {"interval 90 s", COMMAND_INTERVAL, {90, SECONDS}},
        {"interval 1440 min", COMMAND_INTERVAL, {1440, MINUTES}},
        {"interval 200 force", COMMAND_INTERVAL_FORCED, {200, MILLISECONDS}},
        {"interval 1 s force", COMMAND_INTERVAL_FORCED, {1, SECONDS}},
        {"interval 65535 min force", COMMAND_INTERVAL_FORCED, {65535, MINUTES}}};
    struct interval interval;
    for (unsigned i = 0; i < sizeof right / sizeof right[0]; i++) {
        CHECK(command(right[i].text, &interval) == right[i].command, "'%s'", right[i].text);
        CHECK_EQUAL(interval.number, right[i].interval.number);
        CHECK_EQUAL(interval.unit, right[i].interval.unit);
    }
    CHECK_EQUAL(command("identify", &interval), COMMAND_IDENTIFY);
    CHECK_EQUAL(command("reboot", &interval), COMMAND_REBOOT);
    CHECK_EQUAL(command("interval", &interval), COMMAND_ASK_INTERVAL);
    const char *wrong[] = {"", "intervals", "identif", "identify ", "Reboot", "reboots", "interva"};
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK(command(wrong[i], &interval) == COMMAND_UNKNOWN, "'%s'", wrong[i]);
    }
    const char *none[] = {"interval ", "interval 0", "interval 65536", "interval 100000",
        "interval 5s", "interval 5min", "interval 5 h", "interval 5 s min", "interval 5 force s",
        "interval 0 min", "interval s", "interval  s", "interval -1", "interval force",
        "interval  force", "interval 5  force", "interval 5 forced"};
    for (unsigned i = 0; i < sizeof none / sizeof none[0]; i++) {
        enum command found = command(none[i], &interval);
        CHECK(found == COMMAND_RANGE || (!none[i][9] && found == COMMAND_UNKNOWN), "'%s'", none[i]);
    }
}

int main(void)
{
    RUN(one_reading);
    RUN(a_reading_from_before_the_time_was_known);
    RUN(how_far_a_time_may_be_wrong);
    RUN(a_status);
    RUN(the_years_after_2037);
    RUN(three_readings);
    RUN(the_longest_fit);
    RUN(commands);
    return 0;
}
