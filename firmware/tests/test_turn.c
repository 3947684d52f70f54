/* The board's side of a turn link against a gateway that the test plays. */
#include "check.h"
#include "ow_airtime.h"
#include "ow_bytes.h"
#include "ow_turn.h"

enum { NETWORK = 7, DEVICE = 3, FACTOR = 7, SILENCE = 99 };
enum { HELLO = 0x81, WELCOME = 0xC1, WHO = 0xC2, ANSWER = 0x40 };
enum { HELLO_SIZE = 29, WELCOME_SIZE = 24, INCARNATION = 0xABCD };
enum { FOREVER = 3600000 };

static const uint8_t key[OW_KEY_SIZE] = "sixteen byte key";
static struct ow_radio_plan plan = {NETWORK, DEVICE, FACTOR, 14, 0, 14221312};
static struct ow_turn turn;
static uint16_t now;
static uint8_t session[OW_KEY_SIZE], hello[HELLO_SIZE], sent[OW_TURN_FRAME];

static void prove(uint8_t label, const uint8_t *bytes, uint8_t length, bool over_hello,
    uint8_t *out, uint8_t size)
{
    struct ow_cmac cmac;
    ow_cmac_begin(&cmac, key);
    ow_cmac_put(&cmac, &label, 1);
    ow_cmac_put(&cmac, bytes, length);
    if (over_hello) {
        ow_cmac_put(&cmac, hello, HELLO_SIZE);
    }
    ow_cmac_end(&cmac);
    memcpy(out, cmac.block, size);
}

static void begin(uint16_t silence)
{
    plan.silence = silence;
    ow_turn_init(&turn, &plan, now);
    memcpy(turn.key, key, sizeof key);
}

static void greet(uint32_t incarnation)
{
    struct ow_turn_greeting greeting = {1, incarnation, 1, true, 0x12345678};
    ow_turn_greet(&turn, &greeting);
}

/* Milliseconds until the board sends, at most `within`; the frame's length is in `length`. */
static uint32_t until_sent(uint32_t within, uint8_t *length)
{
    uint32_t passed = 0;
    while (!(*length = ow_turn_send(&turn)) && passed < within) {
        enum ow_turn_event event = ow_turn_tick(&turn, now += 10);
        passed += 10;
        if (event != OW_TURN_NOTHING) {
            break;
        }
    }
    memcpy(sent, turn.frame, sizeof sent);
    return passed;
}

static uint8_t send_within(uint32_t within)
{
    uint8_t length;
    until_sent(within, &length);
    if (length) {
        CHECK(!ow_turn_listens(&turn), "a radio that sends");
        ow_turn_sent(&turn, now);
        CHECK(ow_turn_listens(&turn), "for the answer");
    }
    return length;
}

static void hear_hello(void)
{
    CHECK_EQUAL(send_within(FOREVER), HELLO_SIZE);
    memcpy(hello, sent, HELLO_SIZE);
    CHECK(hello[0] == NETWORK && hello[1] == DEVICE && hello[2] == HELLO, "its header");
    uint8_t code[4];
    prove(0x03, hello, HELLO_SIZE - 4, false, code, 4);
    CHECK(memcmp(code, hello + HELLO_SIZE - 4, 4) == 0, "its proof");
}

static enum ow_turn_event hear(const uint8_t *frame, uint8_t length)
{
    memcpy(turn.frame, frame, length);
    return ow_turn_receive(&turn, length);
}

static enum ow_turn_event welcome(uint32_t incarnation, uint8_t mtu, uint8_t damage)
{
    uint8_t frame[WELCOME_SIZE] = {NETWORK, DEVICE, WELCOME, 1, 2, 3, 4, 5, 6, 7, 8};
    ow_put_u32(frame + 11, incarnation);
    frame[15] = mtu;
    ow_put_u32(frame + 16, 1800000000);
    prove(0x04, frame, 20, true, frame + 20, 4);
    frame[23] ^= damage;
    prove(0x02, frame + 3, 8, true, session, OW_KEY_SIZE);
    return hear(frame, WELCOME_SIZE);
}

static void open_with(uint8_t mtu, uint16_t silence)
{
    begin(silence);
    greet(0);
    hear_hello();
    CHECK_EQUAL(welcome(INCARNATION, mtu, 0), OW_TURN_UP);
}

static void open_session(void)
{
    open_with(OW_TURN_MTU, 0);
}

static void put(const uint8_t *packet, uint8_t length)
{
    while (length--) {
        ow_turn_put(&turn, *packet++);
    }
}

static enum ow_turn_event answer(const uint8_t *content, uint8_t length)
{
    uint8_t frame[OW_TURN_FRAME] = {NETWORK, DEVICE, (uint8_t)(ANSWER | (turn.counter & 0x3F))};
    memcpy(frame + OW_CCM_HEADER, content, length);
    length = (uint8_t)(length + OW_CCM_OVERHEAD);
    ow_ccm_seal(session, OW_DOWN, turn.counter, frame, length);
    return hear(frame, length);
}

#define ANSWER_WITH(...) answer((const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

static const uint8_t publish[] = {0x34, 12, 0, 0, 0, 9, 3, 0x23, 0, 1, 'h', 'e', 'l', 'l'};
static const uint8_t pubrel[] = {0x62, 2, 0, 9}, puback[] = {0x40, 2, 0, 9};

/* What the board sent, opened; its length. */
static uint8_t content(uint8_t length, uint8_t *out)
{
    uint8_t frame[OW_TURN_FRAME];
    memcpy(frame, sent, sizeof frame);
    CHECK(ow_ccm_open(session, OW_UP, turn.counter, frame, length), "a frame of this session");
    memcpy(out, frame + OW_CCM_HEADER, (size_t)(length - OW_CCM_OVERHEAD));
    return (uint8_t)(length - OW_CCM_OVERHEAD);
}

static uint8_t packets(uint8_t *first)
{
    uint8_t count = 0, length = 0;
    for (const uint8_t *packet; (packet = ow_turn_packet(&turn, &length)); count++) {
        if (count == 0) {
            memcpy(first, packet, length);
        }
    }
    return count;
}

static void only_the_answer_to_this_greeting_opens(void)
{
    begin(0);
    greet(INCARNATION);
    CHECK_EQUAL(ow_turn_room(&turn), 0);
    hear_hello();
    CHECK_EQUAL(welcome(INCARNATION, 64, 1), OW_TURN_NOTHING);
    CHECK_EQUAL(welcome(0, 64, 0), OW_TURN_NOTHING);
    CHECK_EQUAL(welcome(INCARNATION, 0, 0), OW_TURN_NOTHING);
    CHECK_EQUAL(welcome(INCARNATION + 1, 64, 0), OW_TURN_NOTHING);
    CHECK_EQUAL(turn.counts.broken, 4);
    CHECK_EQUAL(hear((const uint8_t[]){NETWORK, DEVICE, WHO, 0, 0, 0, 0}, 7), OW_TURN_NOTHING);
    uint8_t frame[WELCOME_SIZE + 1] = {NETWORK, DEVICE, WELCOME};
    CHECK_EQUAL(hear(frame, sizeof frame), OW_TURN_NOTHING);
    CHECK_EQUAL(welcome(INCARNATION, 64, 0), OW_TURN_UP);
    CHECK_EQUAL(turn.peer_mtu, 64);
    CHECK_EQUAL(turn.utc, 1800000000);
    open_with(255, 0);
    CHECK_EQUAL(turn.peer_mtu, OW_TURN_MTU);
    CHECK_EQUAL(turn.incarnation, INCARNATION);
}

static void greetings_part_and_each_is_another(void)
{
    uint8_t before[HELLO_SIZE] = {0};
    begin(0);
    greet(0);
    for (int i = 0; i < 12; i++) {
        uint8_t length;
        uint32_t waited = until_sent(FOREVER, &length);
        CHECK_EQUAL(length, HELLO_SIZE);
        uint32_t least = i == 0 ? 0 : 4000u << (i < 9 ? i - 1 : 8);
        uint32_t most = i == 0 ? 4000 : least + least / 2 + 3000;
        CHECK(waited >= least && waited <= most, "%d: %u ms", i, waited);
        CHECK(memcmp(before, sent, HELLO_SIZE) != 0, "another one");
        memcpy(before, sent, HELLO_SIZE);
        ow_turn_sent(&turn, now);
    }
    memcpy(hello, before, HELLO_SIZE);
    CHECK_EQUAL(welcome(INCARNATION, 64, 0), OW_TURN_UP);
}

static void a_turn_is_sent_until_it_is_answered(void)
{
    uint8_t first[OW_TURN_FRAME], inside[OW_TURN_FRAME], packet[OW_TURN_FRAME];
    open_session();
    CHECK_EQUAL(send_within(5000), 0);
    put(publish, sizeof publish - 1);
    CHECK_EQUAL(send_within(5000), 0); /* a packet is being put */
    put(publish + sizeof publish - 1, 1);
    uint8_t length = send_within(10);
    CHECK_EQUAL(content(length, inside), 3 + 4); /* packed: form, identifier, payload */
    CHECK_EQUAL(inside[0], 0x08);
    memcpy(first, sent, sizeof first);
    put(pubrel, sizeof pubrel); /* waits for the next turn */
    CHECK_EQUAL(send_within(FOREVER), length);
    CHECK(memcmp(first, sent, length) == 0, "the same bytes");
    CHECK_EQUAL(turn.counts.repeats, 1);
    CHECK_EQUAL(ANSWER_WITH(0x01), OW_TURN_DATA);
    CHECK_EQUAL(ow_turn_send(&turn), 0); /* before the packets are taken */
    CHECK_EQUAL(packets(packet), 1);
    CHECK(packet[0] == 0x50 && ow_get_u16(packet + 2) == 9, "PUBREC");
    CHECK_EQUAL(send_within(5000), 0); /* a PUBREL alone waits */
    ow_turn_poll(&turn);
    CHECK_EQUAL(content(send_within(10), inside), sizeof pubrel);
}

static void two_acknowledgements_ask_for_a_turn(void)
{
    uint8_t inside[OW_TURN_FRAME];
    open_session();
    put(puback, sizeof puback);
    CHECK_EQUAL(send_within(5000), 0);
    put(pubrel, sizeof pubrel);
    CHECK_EQUAL(content(send_within(10), inside), sizeof puback + sizeof pubrel);
}

static void packets_beyond_the_gateway_s_limit_wait(void)
{
    uint8_t inside[OW_TURN_FRAME], packet[OW_TURN_FRAME];
    static const uint8_t subscribe[] = {0x82, 8, 0, 1, 0, 0, 2, 'a', 'b', 2};
    open_with(sizeof subscribe, 0);
    put(subscribe, sizeof subscribe);
    put(subscribe, sizeof subscribe);
    CHECK_EQUAL(content(send_within(10), inside), sizeof subscribe);
    CHECK_EQUAL(ANSWER_WITH(0x90, 3, 0, 1, 2), OW_TURN_DATA);
    CHECK_EQUAL(packets(packet), 1);
    CHECK(memcmp(packet, (const uint8_t[]){0x90, 3, 0, 1, 2}, 5) == 0, "SUBACK");
    CHECK_EQUAL(content(send_within(10), inside), sizeof subscribe);
    CHECK_EQUAL(ow_turn_room(&turn), OW_TURN_QUEUE - sizeof subscribe);
}

static void no_answer_ends_the_session(void)
{
    open_session();
    put(publish, sizeof publish);
    for (int i = 0; i < OW_TURN_TRIES; i++) {
        CHECK(send_within(60000) > 0, "try %d", i);
    }
    uint8_t length;
    until_sent(60000, &length);
    CHECK_EQUAL(length, 0);
    CHECK_EQUAL(turn.state, OW_TURN_IDLE);
    CHECK_EQUAL(turn.cause, OW_TURN_NO_ANSWER);
    CHECK_EQUAL(turn.counts.downs, 1);
    CHECK_EQUAL(ow_turn_send(&turn), 0);
}

static void a_gateway_that_forgot_says_so_with_a_proof(void)
{
    uint8_t frame[8] = {NETWORK, DEVICE, WHO};
    open_session();
    put(publish, sizeof publish);
    uint8_t length = send_within(10);
    CHECK_EQUAL(hear(frame, 7), OW_TURN_NOTHING);
    CHECK_EQUAL(hear(frame, 8), OW_TURN_NOTHING);
    prove(0x05, sent, length, false, frame + 3, 4);
    CHECK_EQUAL(hear(frame, 7), OW_TURN_DOWN);
    CHECK_EQUAL(turn.cause, OW_TURN_GATEWAY_GONE);
    CHECK_EQUAL(ow_turn_receive(&turn, 7), OW_TURN_NOTHING); /* it does not listen */
    turn.phase = OW_TURN_LISTENING;
    CHECK_EQUAL(hear(frame, 7), OW_TURN_NOTHING);
}

static void frames_for_others_are_ignored(void)
{
    open_session();
    put(publish, sizeof publish);
    send_within(10);
    uint8_t frame[] = {NETWORK, DEVICE, ANSWER, 1, 0, 0, 0, 0};
    CHECK_EQUAL(hear(frame, OW_CCM_OVERHEAD - 1), OW_TURN_NOTHING);
    CHECK_EQUAL(ow_turn_receive(&turn, OW_TURN_FRAME + 1), OW_TURN_NOTHING);
    frame[0] ^= 1;
    CHECK_EQUAL(hear(frame, sizeof frame), OW_TURN_NOTHING);
    frame[0] ^= 1;
    frame[1] ^= 1;
    CHECK_EQUAL(hear(frame, sizeof frame), OW_TURN_NOTHING);
    CHECK_EQUAL(turn.counts.broken, 0);
    frame[1] ^= 1;
    CHECK_EQUAL(hear(frame, sizeof frame), OW_TURN_NOTHING); /* a wrong tag */
    frame[2]++;
    CHECK_EQUAL(hear(frame, sizeof frame), OW_TURN_NOTHING); /* the answer to another turn */
    CHECK_EQUAL(turn.counts.broken, 2);
}

static void the_time_counts_only_in_a_first_answer(void)
{
    uint8_t inside[OW_TURN_FRAME], packet[OW_TURN_FRAME];
    open_session();
    ow_turn_ask_time(&turn);
    put(publish, sizeof publish);
    content(send_within(10), inside);
    CHECK_EQUAL(inside[0], OW_PACK_ASK_TIME);
    CHECK_EQUAL(ANSWER_WITH(0x02, 0x6B, 0x49, 0xD2, 0x01, 0x80, 0x03, 0x01), OW_TURN_DATA);
    CHECK_EQUAL(packets(packet), 1);
    CHECK(turn.utc_fresh, "told");
    CHECK_EQUAL(turn.utc, 0x6B49D201);
    CHECK_EQUAL(turn.utc_part, 0x80);
    turn.utc_fresh = false;
    uint8_t length = send_within(10); /* MORE: the gateway has something */
    CHECK_EQUAL(content(length, inside), 0);
    CHECK_EQUAL(send_within(FOREVER), length);
    CHECK_EQUAL(ANSWER_WITH(0x02, 1, 2, 3, 4, 5, 0x01), OW_TURN_DATA);
    CHECK_EQUAL(packets(packet), 1);
    CHECK_EQUAL(packet[0], 0xD0); /* PINGRESP */
    CHECK(!turn.utc_fresh, "as old as the first copy");
    CHECK_EQUAL(turn.utc, 0x6B49D201);
}

static void an_answer_without_sense_ends_the_session(void)
{
    static const uint8_t nonsense[][4] = {{0x04}, {0x02, 1, 2, 3}, {0x30, 9, 0, 0}, {0x30, 0x80, 0x80, 0}};
    uint8_t packet[OW_TURN_FRAME];
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        open_session();
        put(publish, sizeof publish);
        send_within(10);
        CHECK_EQUAL(answer(nonsense[i], sizeof nonsense[i]), OW_TURN_DATA);
        CHECK_EQUAL(packets(packet), 0);
        CHECK_EQUAL(turn.cause, OW_TURN_PROTOCOL);
        CHECK_EQUAL(turn.state, OW_TURN_IDLE);
    }
}

static void a_counter_is_never_used_twice(void)
{
    uint8_t packet[OW_TURN_FRAME];
    open_session();
    turn.counter = 0xFFFF;
    put(publish, sizeof publish);
    send_within(10);
    CHECK_EQUAL(ANSWER_WITH(0x01), OW_TURN_DATA);
    CHECK_EQUAL(packets(packet), 1);
    CHECK_EQUAL(turn.cause, OW_TURN_WORN);
    CHECK_EQUAL(turn.state, OW_TURN_IDLE);
}

static void what_closes_while_it_sends_stays_silent(void)
{
    uint8_t length;
    begin(0);
    greet(0);
    until_sent(FOREVER, &length);
    ow_turn_close(&turn);
    ow_turn_sent(&turn, now);
    CHECK(!ow_turn_listens(&turn), "it is closed");
    CHECK_EQUAL(send_within(60000), 0);
    greet(0);
    until_sent(FOREVER, &length);
    greet(0); /* the radio still has the frame before */
    CHECK_EQUAL(turn.phase, OW_TURN_SENDING);
    ow_turn_sent(&turn, now);
    CHECK_EQUAL(send_within(FOREVER), HELLO_SIZE);
}

static void the_law_s_silence_follows_each_frame(void)
{
    uint8_t length, packet[OW_TURN_FRAME];
    begin(SILENCE);
    greet(0);
    uint32_t after_start = (uint32_t)ow_airtime_ms(FACTOR, OW_TURN_FRAME) * SILENCE;
    CHECK(until_sent(FOREVER, &length) >= after_start, "what was sent before is not known");
    open_with(OW_TURN_MTU, SILENCE);
    put(publish, sizeof publish);
    uint32_t waited = until_sent(FOREVER, &length);
    uint32_t due = (uint32_t)ow_airtime_ms(FACTOR, HELLO_SIZE) * SILENCE;
    CHECK(waited >= due && waited <= due + 20, "%u of %u ms", waited, due);
    ow_turn_sent(&turn, now);
    uint32_t own = (uint32_t)ow_airtime_ms(FACTOR, length) * SILENCE;
    CHECK_EQUAL(ANSWER_WITH(0x01), OW_TURN_DATA);
    CHECK_EQUAL(packets(packet), 1);
    put(publish, sizeof publish);
    waited = until_sent(FOREVER, &length);
    CHECK(waited >= own && waited <= own + 20, "%u of %u ms", waited, own);
    /* a frame that is sent again waits for the silence and a part of its airtime */
    ow_turn_sent(&turn, now);
    waited = until_sent(FOREVER, &length);
    own = (uint32_t)ow_airtime_ms(FACTOR, length) * SILENCE;
    CHECK(waited >= own && waited <= own + 300, "%u of %u ms", waited, own);
}

static void airtimes_are_those_of_the_application_note(void)
{
    /* AN1200.13: 125 kHz, 4/5, a preamble of 8, a header and a CRC; rounded up */
    static const struct {
        uint8_t factor, length;
        uint16_t ms;
    } told[] = {{7, 20, 57}, {8, 20, 103}, {9, 20, 186}, {10, 20, 371}, {11, 20, 742}, {12, 20, 1319},
        {7, 1, 26}, {12, 1, 828}, {12, 0, 664}, {7, 255, 400}};
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        CHECK_EQUAL(ow_airtime_ms(told[i].factor, told[i].length), told[i].ms);
    }
}

int main(void)
{
    RUN(only_the_answer_to_this_greeting_opens);
    RUN(greetings_part_and_each_is_another);
    RUN(a_turn_is_sent_until_it_is_answered);
    RUN(two_acknowledgements_ask_for_a_turn);
    RUN(packets_beyond_the_gateway_s_limit_wait);
    RUN(no_answer_ends_the_session);
    RUN(a_gateway_that_forgot_says_so_with_a_proof);
    RUN(frames_for_others_are_ignored);
    RUN(the_time_counts_only_in_a_first_answer);
    RUN(an_answer_without_sense_ends_the_session);
    RUN(a_counter_is_never_used_twice);
    RUN(what_closes_while_it_sends_stays_silent);
    RUN(the_law_s_silence_follows_each_frame);
    RUN(airtimes_are_those_of_the_application_note);
    return 0;
}
