/* The limits of small parts: packed packets, identity pages, SenML records. */
#include "board.h"
#include "check.h"
#include "Onceway.h"
#include "ow_bytes.h"
#include "ow_crc.h"
#include "ow_identity.h"
#include "ow_link.h"
#include "ow_pack.h"
#include "ow_packet.h"

#define SIZE(...) ow_pack_size((const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

static void sizes_of_packets(void)
{
    CHECK_EQUAL(SIZE(0xC0), 0);
    CHECK_EQUAL(SIZE(0x08, 0), 0); /* packed: no packet */
    CHECK_EQUAL(SIZE(0xC0, 0), 2);
    CHECK_EQUAL(SIZE(0x62, 2, 0), 0);
    CHECK_EQUAL(SIZE(0x62, 2, 0, 1), 4);
    CHECK_EQUAL(SIZE(0x30, 0x80), 0);
    CHECK_EQUAL(SIZE(0x30, 0x80, 0x80), 0);
    CHECK_EQUAL(SIZE(0x30, 0x80, 0x01), 0);
    uint8_t longest[255] = {0x30, 0x80 | 124, 1};
    CHECK_EQUAL(ow_pack_size(longest, sizeof longest), 255);
}

static uint8_t packed(const uint8_t *packet, uint8_t length, uint8_t *out)
{
    memcpy(out, packet, length);
    return ow_pack_turn(out, length);
}

/* A PUBLISH at QoS 2 with an alias is packed; with any other byte of its head it goes as it is. */
static void only_a_plain_publication_is_packed(void)
{
    static const uint8_t publish[] = {0x34, 10, 0, 0, 0, 9, 3, 0x23, 0, 1, 'h', 'i'};
    uint8_t out[200];
    CHECK_EQUAL(packed(publish, sizeof publish, out), 5);
    CHECK(memcmp(out, (const uint8_t[]){0x08, 0, 9, 'h', 'i'}, 5) == 0, "form, identifier, payload");
    for (uint8_t at = 0; at < 10; at++) {
        uint8_t other[sizeof publish];
        memcpy(other, publish, sizeof other);
        other[at] = at == 5 ? 0 : at == 9 ? 5 : (uint8_t)(other[at] ^ 0x01);
        if (at == 1 || at == 4) { /* another length is no packet, another identifier is one more */
            continue;
        }
        CHECK_EQUAL(packed(other, sizeof other, out), sizeof other);
        CHECK(memcmp(out, other, sizeof other) == 0, "byte %u", at);
    }
    static const uint8_t no_alias[] = {0x34, 5, 0, 0, 0, 9, 0};
    CHECK_EQUAL(packed(no_alias, sizeof no_alias, out), sizeof no_alias);
    CHECK_EQUAL(packed(publish, 0, out), 0);
    CHECK_EQUAL(packed(publish, sizeof publish - 1, out), sizeof publish - 1);
}

static void the_release_before_a_publication_goes_with_it(void)
{
    uint8_t out[200];
    static const uint8_t first[] = {
        0x62, 2, 0xFF, 0xFF, 0x34, 8, 0, 0, 0, 1, 3, 0x23, 0, 1};
    CHECK_EQUAL(packed(first, sizeof first, out), 3); /* before 1 comes 65,535 */
    CHECK_EQUAL(out[0], 0x0C);
    struct ow_answers answers = {.turn = out, .length = 3};
    uint8_t packet[OW_ANSWER_SIZE];
    CHECK_EQUAL(ow_pack_answer(&answers, packet), 4);
    CHECK(packet[0] == 0x70 && ow_get_u16(packet + 2) == 0xFFFF, "PUBCOMP");
    CHECK_EQUAL(ow_pack_answer(&answers, packet), 4);
    CHECK(packet[0] == 0x50 && ow_get_u16(packet + 2) == 1, "PUBREC");
    CHECK_EQUAL(ow_pack_answer(&answers, packet), 0);
    static const uint8_t others[][14] = {
        {0x62, 2, 0, 7, 0x34, 8, 0, 0, 0, 9, 3, 0x23, 0, 1}, /* not the one before */
        {0x50, 2, 0, 8, 0x34, 8, 0, 0, 0, 9, 3, 0x23, 0, 1}, /* no release */
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        CHECK_EQUAL(packed(others[i], sizeof others[i], out), 4 + 3);
        CHECK_EQUAL(out[4], 0x08);
    }
    static const uint8_t reason[] = {0x62, 3, 0, 8, 0x92, 0x34, 8, 0, 0, 0, 9, 3, 0x23, 0, 1};
    CHECK_EQUAL(packed(reason, sizeof reason, out), 5 + 3);
}

static void each_packet_has_its_answer(void)
{
    static const struct {
        uint8_t turn[10], length, answer[4], size;
    } told[] = {
        {{0x32, 5, 0, 1, 'a', 0, 5}, 7, {0x40, 2, 0, 5}, 4},  /* QoS 1: PUBACK */
        {{0x34, 5, 0, 1, 'a', 0, 5}, 7, {0x50, 2, 0, 5}, 4},  /* QoS 2: PUBREC */
        {{0x30, 3, 0, 1, 'a'}, 5, {0}, 0},                    /* QoS 0: none */
        {{0x34, 4, 0, 9, 'a', 0}, 6, {0}, 0},                 /* its topic ends after it */
        {{0x62, 2, 0, 5}, 4, {0x70, 2, 0, 5}, 4},             /* PUBREL: PUBCOMP */
        {{0x62, 1, 0}, 3, {0}, 0},                            /* half of a PUBREL */
        {{0x50, 2, 0, 5}, 4, {0}, 0},                         /* PUBREC: the PUBREL is the gateway's */
        {{0x01, 0x62, 2, 0, 5}, 5, {0x70, 2, 0, 5}, 4},       /* after the question for the time */
        {{0x62, 9, 0, 5}, 4, {0}, 0},                         /* not whole */
        {{0}, 0, {0xD0, 0}, 2},                               /* nothing: PINGRESP */
    };
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        struct ow_answers answers = {.turn = told[i].turn, .length = told[i].length};
        uint8_t packet[OW_ANSWER_SIZE] = {0};
        CHECK_EQUAL(ow_pack_answer(&answers, packet), told[i].size);
        CHECK(memcmp(packet, told[i].answer, told[i].size) == 0, "%zu", i);
        CHECK_EQUAL(ow_pack_answer(&answers, packet), 0);
    }
}

/* --- packets into a link without room --- */

static struct ow_link link_;

static bool send(uint8_t which, const char *filter)
{
    switch (which) {
    case 0: return ow_send_ack(&link_, OW_PUBREL, 1, 0);
    case 1: return ow_send_ack(&link_, OW_PUBREC, 1, 0x97);
    case 2: return ow_send_subscribe(&link_, 1, filter, 2);
    case 3: return ow_send_unsubscribe(&link_, 1, filter);
    case 4: return ow_send_pingreq(&link_);
    case 5: return ow_send_disconnect(&link_, 0);
    default: return ow_send_disconnect(&link_, 0x81);
    }
}

static void a_packet_is_put_whole_or_not_at_all(void)
{
    static char filter[140];
    memset(filter, 'f', sizeof filter - 1);
    for (uint8_t which = 0; which <= 6; which++) {
        memset(&link_, 0, sizeof link_);
        CHECK(!send(which, "f"), "%u: no session, no room", which);
        CHECK_EQUAL(link_.used, 0);
        for (unsigned room = 0; room < 12; room++) {
            memset(&link_, 0, sizeof link_);
            link_.state = OW_LINK_OPEN;
            link_.used = (ow_size)(OW_LINK_TX_SIZE - room);
            ow_size before = link_.used;
            bool put = send(which, "f");
            CHECK(put == (link_.used != before), "%u into %u bytes", which, room);
            CHECK(link_.used <= OW_LINK_TX_SIZE, "%u into %u bytes", which, room);
            CHECK(put || room < 10, "%u fits into %u bytes", which, room);
        }
        memset(&link_, 0, sizeof link_);
        link_.state = OW_LINK_OPEN;
        CHECK(send(which, filter) == (OW_LINK_TX_SIZE > 150 || which < 2 || which > 3), "%u", which);
    }
}

/* --- identity pages --- */

enum { IDENTITY = 47, RADIO_AT = 48, RADIO = 17 };

static void put_crc(uint8_t *bytes, uint8_t length)
{
    ow_put_u16(bytes + length, ow_crc(OW_CRC_INITIAL, bytes, length));
}

static void make_page(uint8_t *page)
{
    memset(page, 0xFF, RADIO_AT + RADIO);
    memset(page, 0, IDENTITY - 2);
    memcpy(page, "OWID\1\3abc", 9);
    page[29] = 0x42;
    put_crc(page, IDENTITY - 2);
    memcpy(page + RADIO_AT, "OWLR\1\x07\x03\x09\x0E\x00\x63\x00\xD9\x00\x00", RADIO - 2);
    put_crc(page + RADIO_AT, RADIO - 2);
}

static void an_identity_counts_only_whole(void)
{
    char name[OW_NAME_MAX + 1];
    uint8_t page[RADIO_AT + RADIO], key[16];
    board_new("x");
    make_page(page);
    board_identity(page, sizeof page);
    CHECK(ow_identity_read(name, key) && !strcmp(name, "abc") && key[0] == 0x42, "%s", name);
    CHECK(ow_identity_read(name, NULL) && !strcmp(name, "abc"), "without a key");
    for (unsigned bit = 0; bit < 8 * IDENTITY; bit++) {
        page[bit / 8] ^= (uint8_t)(1 << bit % 8);
        board_identity(page, sizeof page);
        CHECK(!ow_identity_read(name, key) && !name[0] && !key[0], "bit %u", bit);
        page[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    page[5] = OW_NAME_MAX + 1;
    put_crc(page, IDENTITY - 2);
    board_identity(page, sizeof page);
    CHECK(!ow_identity_read(name, key), "a name that is too long");
}

static void a_channel_counts_only_whole(void)
{
    struct ow_radio_plan plan;
    uint8_t page[RADIO_AT + RADIO];
    make_page(page);
    board_identity(page, sizeof page);
    CHECK(ow_identity_radio(&plan), "a channel");
    CHECK(plan.network == 7 && plan.device == 3 && plan.factor == 9 && plan.power == 14, "bytes");
    CHECK_EQUAL(plan.silence, 99);
    CHECK_EQUAL(plan.channel, 0xD90000);
    for (unsigned bit = 0; bit < 8 * RADIO; bit++) {
        page[RADIO_AT + bit / 8] ^= (uint8_t)(1 << bit % 8);
        board_identity(page, sizeof page);
        CHECK(!ow_identity_radio(&plan) && plan.device == 0, "bit %u", bit);
        page[RADIO_AT + bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

/* --- SenML --- */

static uint8_t *record(uint8_t *out, unsigned room, const struct ow_senml_record *one)
{
    uint8_t *at = ow_senml_pack(out, out + room, 1);
    return at ? ow_senml_record(at, out + room, one) : NULL;
}

static void a_record_is_whole_or_not_written(void)
{
    static char name[300];
    uint8_t out[600];
    struct ow_senml_record one = {.device = "roof", .channel = "/1", .base_time = 1800000000,
        .offset = 60, .time_error = 300, .name = "t", .unit = "Cel",
        .value = {.number = -215, .exponent = -1}};
    uint8_t *end = record(out, sizeof out, &one);
    CHECK(end, "written");
    CHECK_EQUAL(out[1], 0xA0 + 7);
    for (unsigned room = 0; room < (unsigned)(end - out); room++) {
        uint8_t *short_of = malloc(room + 1);
        CHECK(!record(short_of, room, &one), "%u bytes are too few", room);
        free(short_of);
    }
    memset(name, 'n', sizeof name - 1);
    one.name = name;
    CHECK(!record(out, sizeof out, &one), "a name of 299 bytes");
    one.name = "t";
    one.device = name;
    CHECK(!record(out, sizeof out, &one), "a device of 299 bytes");
    CHECK(!ow_senml_pack(out, out + sizeof out, 24), "24 records");
    CHECK(ow_senml_pack(out, out + sizeof out, 23), "23 records");
}

static void numbers_are_exact_or_not_written(void)
{
    static const struct {
        struct ow_senml_value value;
        bool exact;
    } told[] = {{{INT32_MIN, 0, 0}, true}, {{INT32_MAX, 0, 0}, true}, {{0, 0, 4}, true},
        {{INT32_MIN, 0, 4}, true}, {{1, 0, 149}, false}, {{1, 0, 126}, true}, {{1, 0, 127}, false},
        {{(1 << 24) - 1, 0, 1}, true}, {{(1 << 24) + 1, 0, 1}, false}, {{1 << 30, 0, 1}, true},
        {{-3, 0, 2}, true}, {{3, 1, 2}, false}, {{3, -4, 0}, true}};
    uint8_t out[64];
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        struct ow_senml_record one = {.value = told[i].value};
        CHECK_EQUAL(record(out, sizeof out, &one) != NULL, told[i].exact);
    }
}

int main(void)
{
    RUN(sizes_of_packets);
    RUN(only_a_plain_publication_is_packed);
    RUN(the_release_before_a_publication_goes_with_it);
    RUN(each_packet_has_its_answer);
    RUN(a_packet_is_put_whole_or_not_at_all);
    RUN(an_identity_counts_only_whole);
    RUN(a_channel_counts_only_whole);
    RUN(a_record_is_whole_or_not_written);
    RUN(numbers_are_exact_or_not_written);
    return 0;
}
