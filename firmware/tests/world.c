#include "world.h"

#include <string.h>

#include "check.h"
#include "ow_bytes.h"

struct world world;
struct ow_mqtt client;

/* --- the application --- */

static void source_of(uint32_t sequence, uint8_t *source)
{
    ow_put_u32(source, sequence);
    ow_put_u32(source + 4, sequence * 2654435761u);
}

static void recall_packet(
    void *user, const struct ow_entry *entry, struct ow_message *message, uint8_t *scratch)
{
    CHECK(user == &world);
    memcpy(scratch, entry->source, OW_JOURNAL_SOURCE);
    message->topic = "t";
    message->topic_length = 1;
    message->alias = 1;
    message->qos = world.qos;
    message->payload = scratch;
    message->size = OW_JOURNAL_SOURCE;
    if (world.long_one == entry->sequence) {
        memset(scratch, 'x', OW_SCRATCH);
        message->size = OW_SCRATCH;
    }
}

static bool refused(void *user, uint16_t id, uint8_t reason)
{
    CHECK(user == &world);
    CHECK(id && reason >= OW_UNSPECIFIED_ERROR);
    world.refusals++;
    return !world.drops;
}

static void connected(void *user, bool session_present)
{
    CHECK(user == &world);
    world.connected++;
    world.session_present = session_present;
    world.doubtful += session_present && client.doubt;
    if (world.subscribe && !session_present) {
        CHECK(ow_mqtt_subscribe(&client, "cm", 2));
    }
}

static void connection_lost(void *user, enum ow_lost cause, uint8_t reason)
{
    CHECK(user == &world);
    world.lost[cause]++;
    world.reason = reason;
}

static void message_received(void *user, const struct ow_message *message)
{
    CHECK(user == &world);
    if (ow_log_asked(&client, message) || world.any_message) {
        return;
    }
    CHECK_EQUAL(message->size, 2);
    world.received[message->payload[1]]++;
    if (world.obey) {
        world.obey(message);
    }
    if (world.reply) {
        uint8_t payload[OW_JOURNAL_SOURCE] = {message->payload[1]};
        struct ow_message reply = {.topic = "t",
            .topic_length = 1,
            .payload = payload,
            .size = sizeof payload,
            .qos = world.reply_qos};
        CHECK_EQUAL(ow_mqtt_publish(&client, &reply), OW_ACCEPTED);
    }
}

static bool save_packet(void *user, const struct ow_message *message, uint8_t *source)
{
    CHECK(user == &world);
    if (message->size != OW_JOURNAL_SOURCE) {
        return false;
    }
    memcpy(source, message->payload, OW_JOURNAL_SOURCE);
    return true;
}

static void release_packet(void *user, uint16_t id)
{
    CHECK(user == &world);
    CHECK(id);
    world.released[id]++;
    world.releases++;
}

static void answered(void *user, enum ow_packet_type to, uint16_t id, uint8_t reason)
{
    CHECK(user == &world);
    CHECK(id);
    if (to == OW_PUBLISH) {
        world.answered[id]++;
    }
    world.answers[to]++;
    world.answer = reason;
}

static struct ow_application application = {
    .save_packet = save_packet,
    .release_packet = release_packet,
    .answered = answered,
    .refused = refused,
    .recall_packet = recall_packet,
    .connected = connected,
    .connection_lost = connection_lost,
    .message_received = message_received,
};

/* --- the line --- */

static bool chance(uint16_t per_10000)
{
    return per_10000 && board_random() % 10000 < per_10000;
}

/* What comes out of the line for one byte put into it: 0 to 2 bytes. */
static unsigned through_line(uint8_t byte, uint8_t *out)
{
    unsigned count = 0;
    if (world.unplugged || chance(world.lose)) {
        return 0;
    }
    if (chance(world.insert)) {
        out[count++] = (uint8_t)board_random();
    }
    out[count++] = chance(world.corrupt) ? byte ^ (uint8_t)(1u << board_random() % 8) : byte;
    return count;
}

void gateway_line(const uint8_t *bytes, unsigned length)
{
    uint8_t out[2];
    while (length--) {
        unsigned count = through_line(*bytes++, out);
        for (unsigned i = 0; i < count; i++) {
            board.to_device[board.to_device_head++] = out[i];
        }
    }
}

/* --- steps --- */

void world_new(void)
{
    memset(&world, 0, sizeof world);
    world.qos = 2;
    board_new("s1");
    gateway_new();
    gateway_start();
}

void world_boot(void)
{
    board_power_on();
    application.will = world.will;
    application.recall_packet = world.keeps_nothing ? NULL : recall_packet;
    ow_mqtt_begin(&client, &application, &world);
}

void world_step(void)
{
    uint8_t out[2];
    static uint16_t heads[256]; /* what had been sent at each of the last milliseconds */
    uint16_t sent = board.to_gateway_head;
    uint32_t from = ++board.now;
    ow_mqtt_poll(&client); /* it may wait for the EEPROM */
    if (client.journal.next - 1 > world.produced) {
        world.produced = client.journal.next - 1;
    }
    for (; from != board.now; from++) {
        heads[from & 0xFF] = sent;
    }
    heads[board.now & 0xFF] = board.to_gateway_head;
    uint16_t arrived = heads[(board.now - world.delay) & 0xFF];
    while (board.to_gateway_tail != arrived) {
        unsigned count = through_line(board.to_gateway[board.to_gateway_tail++], out);
        for (unsigned i = 0; i < count; i++) {
            gateway_receive(out[i]);
        }
    }
    gateway_tick(board.now);
}

void world_run(uint32_t milliseconds)
{
    while (milliseconds--) {
        world_step();
    }
}

bool world_until(bool (*condition)(void), uint32_t limit)
{
    while (!condition() && limit--) {
        world_step();
    }
    return condition();
}

bool world_produce(void)
{
    uint8_t source[OW_JOURNAL_SOURCE];
    source_of(client.journal.next, source);
    return client.state != OW_STARTING && ow_journal_append(&client.journal, source);
}

enum ow_result world_publish(void)
{
    uint8_t source[OW_JOURNAL_SOURCE];
    source_of(client.journal.next, source);
    return ow_mqtt_publish_source(&client, source);
}

void world_produced_as(uint32_t sequence)
{
    source_of(sequence, gateway.source[sequence]);
}

void world_connect(void)
{
    world_new();
    world_boot();
    CHECK(world_until(world_online, 1000));
}

void world_subscribe(void)
{
    world_new();
    world.subscribe = true;
    world_boot();
    CHECK(world_until(world_online, 1000));
    world_run(200);
}

bool world_quiet(void)
{
    return client.state != OW_STARTING && ow_journal_idle(&client.journal) &&
           client.journal.pending == 0;
}

bool world_online(void)
{
    return client.state == OW_CONNECTED;
}

uint32_t world_check(unsigned times)
{
    uint32_t doubled = 0;
    uint8_t source[OW_JOURNAL_SOURCE];
    for (uint32_t sequence = 1; sequence <= world.produced; sequence++) {
        source_of(sequence, source);
        CHECK(gateway.routed[sequence] >= 1, "sequence %u was lost", sequence);
        CHECK(gateway.routed[sequence] <= times, "sequence %u was routed %u times", sequence,
            gateway.routed[sequence]);
        doubled += gateway.routed[sequence] > 1;
        CHECK(memcmp(gateway.source[sequence], source, sizeof source) == 0,
            "sequence %u was altered", sequence);
    }
    for (uint32_t sequence = world.produced + 1; sequence < GATEWAY_SEQUENCES; sequence++) {
        CHECK(gateway.routed[sequence] == 0, "sequence %u was never produced", sequence);
    }
    return doubled;
}
