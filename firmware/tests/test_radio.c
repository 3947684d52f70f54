/* A client by radio, with a gateway that the test plays. */
#include "board.h"
#include "check.h"
#include "Onceway.h"
#include "ow_bytes.h"
#include "ow_crc.h"
#include "ow_radio.h"

enum { LOOP_MS = 1000, INTO_THE_POLL_MS = 20, FRAMES = 12, HELLO_SIZE = 29, UTC = 1800000000 };

static struct ow_mqtt client;
static uint32_t end; /* of the frame that is sent */
static unsigned sent, losses, connections;
static enum ow_lost cause;

/* The gateway: its answer to each frame. */
static enum { SILENT, WELL, FORGETS, NONSENSE, REFUSES, TOO_LONG, MALFORMED, UNKNOWN } gateway;
static const uint8_t key[OW_KEY_SIZE];
static uint8_t session[OW_KEY_SIZE], hello[HELLO_SIZE], heard[OW_TURN_FRAME], heard_length;
static bool asks_time;

static void prove(uint8_t label, const uint8_t *bytes, uint8_t length, uint8_t *out, uint8_t size)
{
    struct ow_cmac cmac;
    ow_cmac_begin(&cmac, key);
    ow_cmac_put(&cmac, &label, 1);
    ow_cmac_put(&cmac, bytes, length);
    if (label != 5) { /* WHO */
        ow_cmac_put(&cmac, hello, HELLO_SIZE);
    }
    ow_cmac_end(&cmac);
    memcpy(out, cmac.block, size);
}

static uint8_t welcome(uint8_t *frame)
{
    memset(frame, 0, 24);
    frame[2] = 0xC1;
    ow_put_u32(frame + 11, 0xABCD);
    frame[15] = OW_TURN_MTU;
    ow_put_u32(frame + 16, gateway == UNKNOWN ? 0 : UTC);
    memcpy(frame, hello, 2);
    prove(4, frame, 20, frame + 20, 4);
    prove(2, frame + 3, 8, session, OW_KEY_SIZE);
    return 24;
}

/* The gateway's answer to a TURN with this content; returns its length. */
static uint8_t content_of_answer(const uint8_t *turn, uint8_t length, uint8_t *out)
{
    uint8_t at = 0;
    asks_time = length && turn[0] == OW_PACK_ASK_TIME;
    if (asks_time) {
        out[at++] = OW_PACK_TIME;
        ow_put_u32(out + at, UTC);
        out[at + 4] = 0x40;
        at += 5;
    }
    if (length > asks_time && turn[asks_time] == 0x10) { /* CONNECT */
        const uint8_t connack[] = {0x20, 3, 0, gateway == REFUSES ? 0x87 : 0, 0};
        memcpy(out + at, connack, sizeof connack);
        out[at + 3] = connack[3];
        return (uint8_t)(at + sizeof connack);
    }
    if (gateway == TOO_LONG) {
        memset(out, 0, OW_TURN_MTU);
        out[0] = 0x30;
        out[1] = OW_TURN_MTU - 2;
        return OW_TURN_MTU;
    }
    if (gateway == MALFORMED) {
        memcpy(out + at, (const uint8_t[]){0x36, 2, 0, 0}, 4);
        return (uint8_t)(at + 4);
    }
    out[at++] = gateway == NONSENSE ? 0x04 : OW_PACK_DONE;
    return at;
}

static uint8_t answer(uint8_t *frame)
{
    uint8_t turn[OW_TURN_FRAME];
    memcpy(turn, heard, sizeof turn);
    if (heard[2] == 0x81) {
        memcpy(hello, heard, HELLO_SIZE);
        return welcome(frame);
    }
    memcpy(frame, heard, 2);
    if (gateway == FORGETS) {
        frame[2] = 0xC2;
        prove(5, heard, heard_length, frame + 3, 4);
        return 7;
    }
    CHECK(ow_ccm_open(session, OW_UP, client.link.counter, turn, heard_length), "a turn");
    frame[2] = (uint8_t)(0x40 | (client.link.counter & 0x3F));
    uint8_t length = content_of_answer(
        turn + OW_CCM_HEADER, (uint8_t)(heard_length - OW_CCM_OVERHEAD), frame + OW_CCM_HEADER);
    length = (uint8_t)(length + OW_CCM_OVERHEAD);
    ow_ccm_seal(session, OW_DOWN, client.link.counter, frame, length);
    return length;
}

bool ow_radio_begin(const struct ow_radio_plan *plan)
{
    return plan->device != 0;
}

void ow_radio_send(const uint8_t *frame, uint8_t length)
{
    memcpy(heard, frame, length);
    heard_length = length;
    end = board.now + LOOP_MS + INTO_THE_POLL_MS; /* while bytes of the EEPROM are written */
    sent++;
}

bool ow_radio_sent(void)
{
    return board.now >= end;
}

void ow_radio_listen(void) {}

uint8_t ow_radio_receive(uint8_t *frame, uint8_t size)
{
    CHECK(size == OW_TURN_FRAME, "%u", size);
    return gateway == SILENT ? 0 : answer(frame);
}

void ow_radio_sleep(void) {}

static void recall_packet(
    void *user, const struct ow_entry *entry, struct ow_message *message, uint8_t *scratch)
{
    (void)user, (void)scratch;
    message->topic = "t";
    message->topic_length = 1;
    message->alias = 1;
    message->qos = 2;
    message->payload = entry->source;
    message->size = 1;
}

static void connected(void *user, bool session_present)
{
    (void)user, (void)session_present;
    connections++;
}

static void connection_lost(void *user, enum ow_lost why, uint8_t reason)
{
    (void)user, (void)reason;
    cause = why;
    losses++;
}

static const struct ow_application application = {
    .recall_packet = recall_packet, .connected = connected, .connection_lost = connection_lost};

static void give_a_channel(void)
{
    uint8_t page[65];
    board_new("s1");
    ow_hal_identity_read(page, sizeof page);
    memcpy(page + 48, "OWLR\1\x07\x03\x0C\x0E\x00\x63\x00\xD9\x00\x00", 15);
    ow_put_u16(page + 63, ow_crc(OW_CRC_INITIAL, page + 48, 15));
    board_identity(page, sizeof page);
}

static void begin(void)
{
    board_power_on();
    sent = losses = connections = 0;
    cause = 0;
    ow_mqtt_begin(&client, &application, NULL);
}

static void silence_counts_from_the_end_of_a_frame(void)
{
    uint8_t source[OW_JOURNAL_SOURCE] = "reading";
    unsigned ends = 0, late = 0;
    gateway = SILENT;
    give_a_channel();
    begin();
    for (uint32_t loops = 0; sent < FRAMES && loops < 100000; loops++) {
        bool sends = client.link.phase == OW_TURN_SENDING;
        uint32_t begun = board.now;
        ow_mqtt_poll(&client);
        if (sends && client.link.phase == OW_TURN_LISTENING) {
            CHECK((int16_t)(client.link.now - (uint16_t)end) >= 0, "the silence began %d ms early",
                (int16_t)((uint16_t)end - client.link.now));
            ends++;
            late += begun < end;
        }
        if (client.link.phase == OW_TURN_SENDING) {
            CHECK_EQUAL(ow_mqtt_publish_source(&client, source), OW_ACCEPTED);
        }
        board.now += LOOP_MS;
    }
    CHECK(ends >= FRAMES - 1, "%u frames", ends);
    CHECK(late >= FRAMES / 2, "%u ended within a poll", late);
}

static void run(uint32_t seconds, bool publishes)
{
    uint8_t source[OW_JOURNAL_SOURCE] = "reading";
    for (uint32_t i = 0; i < seconds * 10 && !losses; i++) {
        ow_mqtt_poll(&client);
        if (publishes && connections && !ow_mqtt_busy(&client)) {
            publishes = ow_mqtt_publish_source(&client, source) != OW_ACCEPTED;
        }
        board.now += 100;
    }
}

static void a_session_by_radio_carries_publications_and_the_time(void)
{
    give_a_channel();
    gateway = WELL;
    begin();
    run(4 * 3600, true);
    CHECK_EQUAL(connections, 1);
    CHECK_EQUAL(losses, 0);
    CHECK_EQUAL(client.journal.next, 2);
    CHECK_EQUAL(client.journal.pending, 0);
    CHECK(client.utc_at_start, "a time");
    CHECK(sent > 4 && sent < 100, "%u frames: turns keep the session alive", sent);
}

static void each_end_of_a_session_has_its_cause(void)
{
    static const struct {
        uint8_t gateway;
        enum ow_lost cause;
    } ends[] = {{FORGETS, OW_LOST_GATEWAY_GONE}, {NONSENSE, OW_LOST_PROTOCOL},
        {TOO_LONG, OW_LOST_PROTOCOL}, {MALFORMED, OW_LOST_PROTOCOL}, {SILENT, OW_LOST_NO_ANSWER}};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        give_a_channel();
        gateway = WELL;
        begin();
        run(3600, false);
        CHECK_EQUAL(connections, 1);
        gateway = ends[i].gateway;
        connections = 1;
        run(4 * 3600, true);
        CHECK_EQUAL(losses, 1);
        CHECK_EQUAL(cause, ends[i].cause);
        losses = 0;
        gateway = UNKNOWN; /* its clock */
        run(4 * 3600, false);
        CHECK(connections >= 2, "%zu: connected again", i);
    }
    give_a_channel();
    gateway = REFUSES;
    begin();
    run(3600, false);
    CHECK_EQUAL(cause, OW_LOST_REFUSED);
}

static void a_board_without_a_channel_keeps_what_it_has(void)
{
    uint8_t source[OW_JOURNAL_SOURCE] = "reading";
    board_new("s1");
    gateway = WELL;
    begin();
    run(3600, false);
    CHECK_EQUAL(ow_mqtt_publish_source(&client, source), OW_ACCEPTED);
    run(3600, false);
    CHECK_EQUAL(sent, 0);
    CHECK_EQUAL(client.journal.pending, 1);
}

int main(void)
{
    RUN(silence_counts_from_the_end_of_a_frame);
    RUN(a_session_by_radio_carries_publications_and_the_time);
    RUN(each_end_of_a_session_has_its_cause);
    RUN(a_board_without_a_channel_keeps_what_it_has);
    return 0;
}
