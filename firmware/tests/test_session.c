/* What a client does beside publishing at QoS 2: messages from the gateway, other QoS, limits,
 * wills. */
#include <string.h>

#include "check.h"
#include "world.h"

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
    world_subscribe();
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
    world_subscribe();
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
        world_subscribe();
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

/* The program sees a message again only if the cut came before its id was in the EEPROM: then
 * nothing of it outlives the cut but what the program itself has written. */
static bool recovers_from_cut(uint32_t at)
{
    if (!take_message_is_cut()) {
        return false;
    }
    board.cut_at_write = board.cut_at_sent = 0;
    if (message_open()) {
        world_boot();
        uint32_t before = world.received[9];
        bool told = client.journal.held == 9 || gateway.message_received;
        CHECK(world_until(no_message_open, 5000));
        CHECK(world.received[9] == before + !told, "%u times after a cut at %u", world.received[9],
            at);
        CHECK(before == 1 || !told);
    }
    return true;
}

static void a_message_is_not_repeated_after_a_power_cut(void)
{
    bool cut = true;
    uint32_t cuts = 0, again = 0;
    for (uint32_t at = 1; cut; at++) {
        for (int tear = 0; tear < TEARS; tear++) {
            world_subscribe();
            board_power_on();
            board.tear = (enum tear)tear;
            board.cut_at_write = at;
            cut = recovers_from_cut(at);
            cuts += cut;
            again += world.received[9] == 2;
        }
    }
    CHECK(cuts > 30 && again > 0, "%u cuts, %u seen again", cuts, again);
}

static void nor_after_a_cut_at_any_byte_sent(void)
{
    bool cut = true;
    uint32_t cuts = 0;
    for (uint32_t at = 1; cut; at++) {
        world_subscribe();
        board_power_on();
        board.cut_at_sent = at;
        cut = recovers_from_cut(at);
        cuts += cut;
    }
    CHECK(cuts > 60, "%u cuts", cuts);
}

/* The client holds this one: it has the message, and its PUBREC is lost. */
static void hold(uint16_t id)
{
    gateway_command(id);
    gateway.mute = true;
    while (client.journal.held != id || !ow_journal_idle(&client.journal)) {
        world_step();
    }
    gateway.mute = false;
}

static void hold_5(void)
{
    world_subscribe();
    hold(5);
}

static void what_is_held_is_known_across_the_end_of_the_count(void)
{
    world_subscribe();
    for (uint16_t id = 1; id <= 140; id++) { /* two records each, counted in 8 bits */
        hold(id);
        world_boot();
        CHECK_EQUAL(client.journal.held, id);
        CHECK(world_until(no_message_open, 5000));
        CHECK_EQUAL(world.received[id], 1);
        world_boot();
        CHECK_EQUAL(client.journal.held, 0);
        CHECK(world_until(world_online, 5000));
    }
}

static void a_new_session_may_use_the_id_again(void)
{
    hold_5();
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

/* The gateway begins a new session; the CONNACK that says so does not arrive, and the next one says
 * Session Present 1. */
static void lose_session_and_connack(void)
{
    hold_5();
    gateway.forget_session = gateway.lose_connack = true;
    reconnect();
    CHECK(world.session_present && client.journal.held == 5);
}

/* It arrives, but the power goes before the client has written down what it means. */
static void lose_session_and_power(void)
{
    hold_5();
    gateway.forget_session = true;
    reconnect();
    CHECK(!world.session_present);
    uint32_t connected = world.connected;
    world_boot();
    while (world.connected == connected) {
        world_step();
    }
    CHECK(world.session_present && client.journal.held == 5);
}

static void (*const lose_unseen[])(void) = {lose_session_and_connack, lose_session_and_power};

static void take_another(uint16_t id, uint32_t times)
{
    gateway_command(id);
    CHECK(world_until(no_message_open, 1000), "%u hangs", id);
    CHECK_EQUAL(world.received[id], times);
}

static void a_new_session_that_nobody_saw_begin_may_use_any_id(void)
{
    for (unsigned i = 0; i < sizeof lose_unseen / sizeof lose_unseen[0]; i++) {
        for (uint16_t id = 4; id <= 6; id++) {
            lose_unseen[i]();
            take_another(id, id == 5 ? 2 : 1);
            take_another(id, id == 5 ? 3 : 2);
            take_another(5, id == 5 ? 4 : 2);
            CHECK_EQUAL(world.lost[OW_LOST_PROTOCOL], 0);
            world_run(100);
            world_boot(); /* nor does a power cut bring the old id back */
            CHECK_EQUAL(client.journal.held, 0);
        }
    }
}

/* However the connection breaks: under another id the message comes once; under the same id never
 * twice. */
static void and_its_message_is_not_repeated_across_reconnects(void)
{
    for (uint32_t at = 0; at < 60; at++) {
        lose_session_and_connack();
        gateway_command(6);
        world_run(at);
        reconnect();
        CHECK(world_until(no_message_open, 2000));
        CHECK(world.received[6] == 1, "%u times when cut after %u ms", world.received[6], at);
        lose_session_and_connack();
        gateway_command(5);
        world_run(at);
        reconnect();
        CHECK(world_until(no_message_open, 2000));
        CHECK(world.received[5] <= 2, "repeated when cut after %u ms", at);
        take_another(7, 1);
    }
}

static bool take_6_is_cut(void)
{
    if (setjmp(board.cut)) {
        return true;
    }
    gateway_command(6);
    CHECK(world_until(no_message_open, 1000));
    return false;
}

/* The record of the old id gives way to that of the new one, however a write is torn. */
static void nor_by_a_power_cut(void)
{
    bool cut = true;
    for (uint32_t at = 1; cut; at++) {
        for (int tear = 0; tear < TEARS; tear++) {
            lose_session_and_connack();
            board.tear = (enum tear)tear;
            board.cut_at_write = board.writes + at;
            cut = take_6_is_cut();
            board.cut_at_write = 0;
            world_boot();
            bool told = client.journal.held == 6 || gateway.message_received;
            CHECK(world_until(world_online, 5000) && world_until(no_message_open, 1000));
            CHECK(world.received[6] == 1u + !told, "%u times after a cut at %u", world.received[6],
                at);
            take_another(5, 2);
        }
    }
}

static void a_new_session_may_end_an_id_that_is_unknown(void)
{
    lose_session_and_connack();
    gateway.message_id = 9;
    gateway.message_received = true;
    gateway_send((const uint8_t[]){0x62, 2, 0, 9}, 4);
    CHECK(world_until(no_message_open, 1000));
    CHECK_EQUAL(gateway.pubcomps[1], 1);
    take_another(5, 2);
    CHECK_EQUAL(world.lost[OW_LOST_PROTOCOL], 0);
}

static void a_new_session_may_send_at_qos_1(void)
{
    lose_session_and_connack();
    gateway_send((const uint8_t[]){0x32, 9, 0, 2, 'c', 'm', 0, 5, 0, 0, 4}, 11);
    world_run(100);
    CHECK_EQUAL(world.received[4], 1);
    CHECK_EQUAL(gateway.pubacks, 1);
    world_boot();
    CHECK_EQUAL(client.journal.held, 0);
}

/* What came again on this connection is held as what came first on it: the same id means the same
 * message, with DUP or without [MQTT-4.3.3-10], and there is no room for another [MQTT-3.3.4-9]. */
static void one_that_was_sent_again_leaves_no_room_for_another(void)
{
    uint8_t packet[] = {0x3C, 9, 0, 2, 'c', 'm', 0, 5, 0, 0, 5};
    lose_session_and_connack();
    gateway.mute = true; /* no PUBREL */
    gateway_send(packet, sizeof packet);
    world_run(50);
    packet[0] = 0x34;
    gateway_send(packet, sizeof packet);
    world_run(50);
    CHECK(world.received[5] == 1 && world_online());
    gateway.mute = false;
    packet[7] = packet[10] = 6;
    gateway_send(packet, sizeof packet);
    world_run(100);
    CHECK_EQUAL(gateway.disconnect_reason, OW_RECEIVE_MAXIMUM_EXCEEDED);
    CHECK_EQUAL(world.received[6], 0);
}

static void messages_at_qos_0_and_1(void)
{
    world_subscribe();
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
    world_subscribe();
    world.reply = true;
    gateway_command(6);
    CHECK(world_until(no_message_open, 1000));
    CHECK_EQUAL(gateway.qos0, 1);
}

static void publishing_at_qos_2_from_inside_message_received(void)
{
    world_subscribe();
    world.reply = true;
    world.reply_qos = 2;
    for (uint16_t id = 6; id < 10; id++) {
        gateway_command(id);
        CHECK(world_until(no_message_open, 1000));
        CHECK(world_until(world_quiet, 1000));
    }
    CHECK_EQUAL(gateway.publishes, 4);
    CHECK_EQUAL(world.releases, 4);
}

/* --- publications --- */

static void publications_at_qos_1(void)
{
    world_subscribe();
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
    struct ow_message message = {
        .topic = "t", .topic_length = 1, .payload = payload, .size = 12, .qos = 2};
    world_subscribe();
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
    const struct ow_message will = {
        .topic = "w/s1", .topic_length = 4, .payload = (const uint8_t *)"off", .size = 3};
    world_new();
    world.will = &will;
    world_boot();
    CHECK(world_until(world_online, 1000));
    CHECK(strcmp(gateway.will, "w/s1=off") == 0, "will is '%s'", gateway.will);
}

static bool too_long(void)
{
    return world.lost[OW_LOST_TOO_LONG] > 0;
}

static void a_will_too_long_for_the_link_is_told(void)
{
    static const uint8_t payload[300];
    struct ow_message will = {.topic = "w", .topic_length = 1, .payload = payload};
    const uint16_t sizes[] = {95, 273, 300};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        world_new();
        will.size = sizes[i];
        world.will = &will;
        world_boot();
        CHECK(world_until(too_long, 5000), "%u bytes", sizes[i]);
        CHECK(world.reason == OW_PACKET_TOO_LARGE && gateway.connects == 0);
        world_run(OW_RETRY_S * 1000 + 1000);
        CHECK_EQUAL(world.lost[OW_LOST_TOO_LONG], 2);
    }
}

static void a_message_too_long_for_the_link_is_refused(void)
{
    static const uint8_t payload[65535];
    static const char topic[65535];
    struct ow_message message = {.topic = topic, .topic_length = 1, .payload = payload};
    const uint16_t sizes[] = {200, 273, 65535};
    world_connect();
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        message.size = sizes[i];
        CHECK_EQUAL(ow_mqtt_publish(&client, &message), OW_TOO_LONG);
    }
    message.topic_length = 65530;
    message.size = 5;
    CHECK_EQUAL(ow_mqtt_publish(&client, &message), OW_TOO_LONG);
}

static void the_watchdog_starts_with_the_first_poll(void)
{
    world_new();
    world_boot();
    CHECK(!board.watched);
    world_step();
    CHECK(board.watched);
}

static void times_after_2037_are_kept(void)
{
    world_connect();
    uint32_t kept = ow_mqtt_time(&client);
    CHECK_EQUAL(ow_mqtt_utc(kept, 0), client.utc_at_start + client.uptime);
    client.utc_at_start = 2177452800u; /* 2039 */
    kept = ow_mqtt_time(&client);
    CHECK(!(kept & OW_UPTIME_BIT));
    CHECK_EQUAL(ow_mqtt_utc(kept, 0), 2177452800u + client.uptime);
}

static void a_gateway_that_keeps_no_messages_gets_none_to_keep(void)
{
    struct ow_message message = {.topic = "t",
        .topic_length = 1,
        .payload = (const uint8_t *)"x",
        .size = 1,
        .retain = true};
    world_subscribe();
    CHECK_EQUAL(ow_mqtt_publish(&client, &message), OW_ACCEPTED);
    world_run(20);
    CHECK_EQUAL(gateway.retained, 1);
    gateway.connack = (const uint8_t[]){0x20, 5, 1, 0, 2, 0x25, 0};
    reconnect();
    CHECK_EQUAL(ow_mqtt_publish(&client, &message), OW_ACCEPTED);
    world_run(20);
    CHECK_EQUAL(gateway.qos0, 2);
    CHECK_EQUAL(gateway.retained, 1);
}

/* --- the connection --- */

static void the_time_comes_with_the_connection(void)
{
    world_new();
    gateway_kill();
    world_boot();
    world_run(5000);
    CHECK(ow_mqtt_time(&client) - (OW_UPTIME_BIT | 4) <= 1, "%x", ow_mqtt_time(&client));
    gateway_start();
    CHECK(world_until(world_online, 5000));
    CHECK(1767225600 + board.now / 1000 - ow_mqtt_time(&client) <= 1, "%u", ow_mqtt_time(&client));
}

static void expect_loss(enum ow_lost cause, uint8_t reason, uint32_t wait)
{
    world_run(200);
    CHECK(world.lost[cause] == 1 && world.reason == reason, "%u times, reason %x",
        world.lost[cause], world.reason);
    CHECK(world_until(world_online, 5000 + wait));
}

static void each_loss_of_the_connection_has_its_cause(void)
{
    world_subscribe();
    gateway_kill();
    gateway_start();
    expect_loss(OW_LOST_GATEWAY_GONE, 0, 0);
    gateway_send((const uint8_t[]){0xE0, 1, 0x8B}, 3); /* server shutting down */
    expect_loss(OW_LOST_DISCONNECTED, 0x8B, OW_RETRY_S * 1000);
    gateway.connack = (const uint8_t[]){0x20, 3, 0, 0x87, 0}; /* not authorized */
    gateway_close();
    expect_loss(OW_LOST_REFUSED, 0x87, OW_RETRY_S * 1000);
    gateway.refuse_device = true;
    world.lost[OW_LOST_REFUSED] = 0;
    gateway_close();
    world_run(200);
    gateway.refuse_device = false;
    expect_loss(OW_LOST_REFUSED, 0, OW_RETRY_S * 1000);
}

static void the_gateways_keep_alive_counts(void)
{
    world_subscribe();
    gateway.connack = (const uint8_t[]){0x20, 6, 1, 0, 3, 0x13, 0, 10}; /* instead of 60 s */
    reconnect();
    world_run(25000);
    CHECK(world_online());
    gateway.mute = true;
    world_run(12000);
    CHECK_EQUAL(world.lost[OW_LOST_NO_ANSWER], 1);
}

int main(void)
{
    RUN(subscriptions_are_answered);
    RUN(a_message_arrives_once);
    RUN(a_message_arrives_once_across_reconnects);
    RUN(a_message_is_not_repeated_after_a_power_cut);
    RUN(nor_after_a_cut_at_any_byte_sent);
    RUN(what_is_held_is_known_across_the_end_of_the_count);
    RUN(a_new_session_may_use_the_id_again);
    RUN(a_new_session_that_nobody_saw_begin_may_use_any_id);
    RUN(and_its_message_is_not_repeated_across_reconnects);
    RUN(nor_by_a_power_cut);
    RUN(a_new_session_may_end_an_id_that_is_unknown);
    RUN(a_new_session_may_send_at_qos_1);
    RUN(one_that_was_sent_again_leaves_no_room_for_another);
    RUN(messages_at_qos_0_and_1);
    RUN(publishing_from_inside_message_received);
    RUN(publishing_at_qos_2_from_inside_message_received);
    RUN(publications_at_qos_1);
    RUN(a_gateway_that_takes_less_gets_less);
    RUN(what_the_gateway_cannot_take_is_kept_and_told);
    RUN(publish_goes_through_save_packet);
    RUN(a_will_is_left);
    RUN(a_will_too_long_for_the_link_is_told);
    RUN(a_message_too_long_for_the_link_is_refused);
    RUN(the_watchdog_starts_with_the_first_poll);
    RUN(times_after_2037_are_kept);
    RUN(a_gateway_that_keeps_no_messages_gets_none_to_keep);
    RUN(the_time_comes_with_the_connection);
    RUN(each_loss_of_the_connection_has_its_cause);
    RUN(the_gateways_keep_alive_counts);
    return 0;
}
