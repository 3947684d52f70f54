/* What a client does beside publishing at QoS 2: messages from the gateway, other QoS, limits, wills, and what it must refuse. */
#include "check.h"
#include "world.h"

static void connect_new_device(void)
{
    world_new();
    world.subscribe = true;
    world_boot();
    CHECK(world_until(world_online, 1000));
    world_run(200);
}

static bool no_message_open(void)
{
    return gateway.message_id == 0;
}

static bool message_open(void)
{
    return gateway.message_id != 0;
}

static void reconnect(void)
{
    uint32_t connected = world.connected;
    gateway_close();
    while (world.connected == connected) {
        world_step();
    }
}

static void publish_some(uint32_t count)
{
    uint32_t last = world.produced + count;
    uint32_t end = board.now + 60000;
    while (world.produced < last || !world_quiet()) {
        if (client.journal.next <= last) {
            world_produce();
        }
        world_step();
        CHECK(board.now < end);
    }
}

/* --- subscriptions --- */

static void subscriptions_are_answered(void)
{
    connect_new_device();
    CHECK_EQUAL(gateway.subscribes, 1);
    CHECK_EQUAL(world.answers[OW_SUBSCRIBE], 1);
    CHECK_EQUAL(world.answer, 2);
    CHECK(ow_mqtt_unsubscribe(&client, "cm"));
    CHECK(!ow_mqtt_subscribe(&client, "x", 0), "two at a time");
    world_run(50);
    CHECK_EQUAL(gateway.unsubscribes, 1);
    CHECK_EQUAL(world.answers[OW_UNSUBSCRIBE], 1);
    gateway_kill();
    gateway_start();
    world_run(1);
    CHECK(!ow_mqtt_subscribe(&client, "x", 0));
}

/* --- messages at QoS 2 --- */

static void a_message_arrives_once(void)
{
    connect_new_device();
    for (uint16_t id = 1; id <= 20; id++) {
        gateway_command(id);
        CHECK(world_until(no_message_open, 1000));
        CHECK_EQUAL(world.received[id], 1);
    }
    CHECK_EQUAL(gateway.pubcomps[0], 20);
    CHECK_EQUAL(gateway.pubcomps[1], 0);
}

/* The connection breaks after every millisecond of the exchange. */
static void a_message_arrives_once_across_reconnects(void)
{
    for (uint32_t at = 0; at < 60; at++) {
        connect_new_device();
        gateway_command(7);
        world_run(at);
        reconnect();
        CHECK(world_until(no_message_open, 2000));
        CHECK(world.received[7] == 1, "%u times when cut after %u ms", world.received[7], at);
        gateway_command(8);
        CHECK(world_until(no_message_open, 1000));
        CHECK_EQUAL(world.received[8], 1);
    }
}

static void take_message(void)
{
    world_boot();
    CHECK(world_until(world_online, 5000));
    if (gateway.message_id == 0) {
        gateway_command(9);
    }
    CHECK(world_until(no_message_open, 2000));
    world_run(50);
}

static bool take_message_is_cut(void)
{
    if (setjmp(board.cut)) {
        return true;
    }
    take_message();
    return false;
}

/* The program sees a message again only if the cut came before its id was in the EEPROM: then nothing of it outlives the cut but what the
 * program itself has written. */
static void a_message_is_not_repeated_after_a_power_cut(void)
{
    bool cut = true;
    uint32_t cuts = 0, again = 0;
    for (uint32_t at = 1; cut; at++) {
        for (int tear = 0; tear < TEARS; tear++) {
            connect_new_device();
            board_power_on();
            board.tear = (enum tear)tear;
            board.cut_at_write = at;
            cut = take_message_is_cut();
            cuts += cut;
            board.cut_at_write = 0;
            if (!cut || !message_open()) {
                continue;
            }
            world_boot();
            uint32_t before = world.received[9];
            bool told = client.journal.held == 9 || gateway.message_received;
            CHECK(world_until(no_message_open, 5000));
            CHECK(world.received[9] == before + !told, "%u times after a cut at write %u", world.received[9], at);
            CHECK(before == 1 || !told);
            again += world.received[9] == 2;
        }
    }
    CHECK(cuts > 30 && again > 0, "%u cuts, %u seen again", cuts, again);
}

static void a_new_session_may_use_the_id_again(void)
{
    connect_new_device();
    gateway_command(5);
    while (!(client.ids.in_flags & 0x40) || !ow_journal_idle(&client.journal)) {
        world_step();
    }
    gateway.forget_session = true;
    reconnect();
    CHECK(!world.session_present);
    world_run(100);
    gateway_command(5);
    CHECK(world_until(no_message_open, 1000));
    CHECK_EQUAL(world.received[5], 2);
    world_boot(); /* nor does a power cut bring the old id back */
    CHECK_EQUAL(client.journal.held, 0);
}

static void messages_at_qos_0_and_1(void)
{
    connect_new_device();
    gateway_send((const uint8_t[]){0x30, 7, 0, 2, 'c', 'm', 0, 0, 3}, 9);
    world_run(10);
    CHECK_EQUAL(world.received[3], 1);
    gateway_send((const uint8_t[]){0x32, 9, 0, 2, 'c', 'm', 0, 77, 0, 0, 4}, 11);
    world_run(10);
    CHECK_EQUAL(world.received[4], 1);
    CHECK_EQUAL(gateway.pubacks, 1);
}

static void publishing_from_inside_message_received(void)
{
    connect_new_device();
    world.reply = true;
    gateway_command(6);
    CHECK(world_until(no_message_open, 1000));
    CHECK_EQUAL(gateway.qos0, 1);
}

/* --- publications --- */

static void publications_at_qos_1(void)
{
    connect_new_device();
    world.qos = 1;
    publish_some(20);
    world_check(1);
    CHECK_EQUAL(gateway.publishes, 20);
    CHECK_EQUAL(gateway.pubrels, 0);
    CHECK_EQUAL(world.releases, 20);
}

static void a_gateway_that_takes_less_gets_less(void)
{
    world_new();
    gateway.maximum_qos = 1;
    world_boot();
    publish_some(5);
    world_check(1);
    CHECK_EQUAL(gateway.publishes, 5);
    CHECK_EQUAL(gateway.pubrels, 0);
}

static void what_the_gateway_cannot_take_is_kept_and_told(void)
{
    world_new();
    gateway.maximum_packet = 15; /* a publication of these tests has 20 bytes with its topic */
    world_boot();
    CHECK(world_until(world_online, 1000));
    while (!world_produce()) {
        world_step();
    }
    world_run(500);
    CHECK_EQUAL(world.answers[OW_PUBLISH], 1);
    CHECK_EQUAL(world.answer, OW_PACKET_TOO_LARGE);
    CHECK(world_online() && client.journal.pending == 1 && gateway.publishes == 0);
    gateway.maximum_packet = 200;
    reconnect();
    CHECK(world_until(world_quiet, 5000));
    world_check(1);
}

static void publish_goes_through_save_packet(void)
{
    uint8_t payload[12] = {0};
    struct ow_message message = {.topic = "t", .topic_length = 1, .payload = payload, .size = 12, .qos = 2};
    connect_new_device();
    CHECK_EQUAL(ow_mqtt_publish(&client, &message), OW_CANNOT_KEEP);
    message.size = 8;
    CHECK_EQUAL(ow_mqtt_publish(&client, &message), OW_ACCEPTED);
    CHECK_EQUAL(ow_mqtt_publish(&client, &message), OW_BUSY);
    CHECK(world_until(world_quiet, 1000));
    CHECK_EQUAL(world.releases, 1);
    message.qos = 0;
    CHECK_EQUAL(ow_mqtt_publish(&client, &message), OW_ACCEPTED);
    message.size = 200;
    CHECK_EQUAL(ow_mqtt_publish(&client, &message), OW_TOO_LONG);
    gateway_close();
    world_run(2);
    CHECK_EQUAL(ow_mqtt_publish(&client, &message), OW_OFFLINE);
}

static void a_will_is_left(void)
{
    const struct ow_message will = {.topic = "w/s1", .topic_length = 4, .payload = (const uint8_t *)"off", .size = 3};
    world_new();
    world.will = &will;
    world_boot();
    CHECK(world_until(world_online, 1000));
    CHECK(strcmp(gateway.will, "w/s1=off") == 0, "will is '%s'", gateway.will);
}

/* --- what the gateway must not send --- */

static void refused(const uint8_t *packet, unsigned length, uint8_t reason)
{
    connect_new_device();
    gateway_send(packet, length);
    world_run(300);
    CHECK_EQUAL(gateway.disconnects, 1);
    CHECK_EQUAL(gateway.disconnect_reason, reason);
    CHECK_EQUAL(world.lost[OW_LOST_PROTOCOL], 1);
    CHECK_EQUAL(world.reason, reason);
    CHECK(world_until(world_online, 5000), "it comes back");
}

static void packets_that_break_the_rules_end_the_connection(void)
{
    refused((const uint8_t[]){0x10, 0}, 2, OW_PROTOCOL_ERROR);                                      /* CONNECT */
    refused((const uint8_t[]){0x20, 3, 0, 0, 0}, 5, OW_PROTOCOL_ERROR);                             /* a second CONNACK */
    refused((const uint8_t[]){0x80, 0}, 2, OW_PROTOCOL_ERROR);                                      /* SUBSCRIBE, wrong flags would be malformed */
    refused((const uint8_t[]){0xF0, 0}, 2, OW_PROTOCOL_ERROR);                                      /* AUTH without being asked */
    refused((const uint8_t[]){0x60, 2, 0, 1}, 4, OW_MALFORMED_PACKET);                              /* PUBREL with wrong flags [MQTT-3.6.1-1] */
    refused((const uint8_t[]){0x51, 2, 0, 1}, 4, OW_MALFORMED_PACKET);                              /* [MQTT-2.1.3-1] */
    refused((const uint8_t[]){0x36, 9, 0, 2, 'c', 'm', 0, 1, 0, 0, 1}, 11, OW_MALFORMED_PACKET);    /* QoS 3 [MQTT-3.3.1-4] */
    refused((const uint8_t[]){0x30, 8, 0, 2, 'c', 'm', 3, 0x23, 0, 1}, 10, OW_TOPIC_ALIAS_INVALID); /* [MQTT-3.3.2-11] */
    refused((const uint8_t[]){0x30, 4, 0, 0, 0, 'x'}, 6, OW_PROTOCOL_ERROR);                        /* no topic and no alias */
    refused((const uint8_t[]){0x30, 120}, 2, OW_PACKET_TOO_LARGE);                                  /* [MQTT-3.1.2-24] */
    refused((const uint8_t[]){0x30, 0xFF, 1}, 3, OW_PACKET_TOO_LARGE);
    /* a second message at QoS 2 before the first is through: we announced a Receive Maximum of 1 [MQTT-3.3.4-9] */
    refused((const uint8_t[]){0x34, 9, 0, 2, 'c', 'm', 0, 1, 0, 0, 1, 0x34, 9, 0, 2, 'c', 'm', 0, 2, 0, 0, 2}, 22, OW_RECEIVE_MAXIMUM_EXCEEDED);
}

static void answers_to_nothing_are_let_pass(void)
{
    connect_new_device();
    gateway_send((const uint8_t[]){0x50, 2, 9, 9, 0x70, 3, 9, 9, 0x92, 0x40, 2, 9, 9}, 13);
    world_run(100);
    CHECK(world_online() && gateway.disconnects == 0);
}

static void an_unknown_pubrel_gets_0x92(void)
{
    connect_new_device();
    gateway.message_id = 33;
    gateway.message_received = true;
    gateway_send((const uint8_t[]){0x62, 2, 0, 33}, 4);
    CHECK(world_until(no_message_open, 1000));
    CHECK_EQUAL(gateway.pubcomps[1], 1);
    CHECK_EQUAL(world.received[33], 0);
}

int main(void)
{
    RUN(subscriptions_are_answered);
    RUN(a_message_arrives_once);
    RUN(a_message_arrives_once_across_reconnects);
    RUN(a_message_is_not_repeated_after_a_power_cut);
    RUN(a_new_session_may_use_the_id_again);
    RUN(messages_at_qos_0_and_1);
    RUN(publishing_from_inside_message_received);
    RUN(publications_at_qos_1);
    RUN(a_gateway_that_takes_less_gets_less);
    RUN(what_the_gateway_cannot_take_is_kept_and_told);
    RUN(publish_goes_through_save_packet);
    RUN(a_will_is_left);
    RUN(packets_that_break_the_rules_end_the_connection);
    RUN(answers_to_nothing_are_let_pass);
    RUN(an_unknown_pubrel_gets_0x92);
    return 0;
}
