/* What a gateway must not send ends the connection with the reason that MQTT 5 has for it, and the
 * client comes back. */
#include <string.h>

#include "check.h"
#include "world.h"

static bool world_lost_by_protocol(void)
{
    return world.lost[OW_LOST_PROTOCOL] > 0;
}

static bool no_message_open(void)
{
    return gateway.message_id == 0;
}

static void refused(const uint8_t *packet, unsigned length, uint8_t reason)
{
    world_subscribe();
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
    /* CONNECT */
    refused((const uint8_t[]){0x10, 0}, 2, OW_PROTOCOL_ERROR);
    /* a second CONNACK */
    refused((const uint8_t[]){0x20, 3, 0, 0, 0}, 5, OW_PROTOCOL_ERROR);
    /* SUBSCRIBE, wrong flags would be malformed */
    refused((const uint8_t[]){0x80, 0}, 2, OW_PROTOCOL_ERROR);
    /* AUTH without being asked */
    refused((const uint8_t[]){0xF0, 0}, 2, OW_PROTOCOL_ERROR);
    /* PUBREL with wrong flags [MQTT-3.6.1-1] */
    refused((const uint8_t[]){0x60, 2, 0, 1}, 4, OW_MALFORMED_PACKET);
    /* [MQTT-2.1.3-1] */
    refused((const uint8_t[]){0x51, 2, 0, 1}, 4, OW_MALFORMED_PACKET);
    /* QoS 3 [MQTT-3.3.1-4] */
    refused((const uint8_t[]){0x36, 9, 0, 2, 'c', 'm', 0, 1, 0, 0, 1}, 11, OW_MALFORMED_PACKET);
    /* [MQTT-3.3.2-11] */
    refused((const uint8_t[]){0x30, 8, 0, 2, 'c', 'm', 3, 0x23, 0, 1}, 10, OW_TOPIC_ALIAS_INVALID);
    /* no topic and no alias */
    refused((const uint8_t[]){0x30, 4, 0, 0, 0, 'x'}, 6, OW_PROTOCOL_ERROR);
    /* [MQTT-3.1.2-24] */
    refused((const uint8_t[]){0x30, 120}, 2, OW_PACKET_TOO_LARGE);
    refused((const uint8_t[]){0x30, 0xFF, 1}, 3, OW_PACKET_TOO_LARGE);
    /* a wildcard [MQTT-3.3.2-2] */
    refused((const uint8_t[]){0x30, 5, 0, 1, '+', 0, 'x'}, 7, OW_MALFORMED_PACKET);
    /* a property twice, 3.3.2.3.2 */
    refused((const uint8_t[]){0x30, 9, 0, 1, 'c', 4, 1, 1, 1, 1, 'x'}, 11, OW_PROTOCOL_ERROR);
    /* another packet's property, 2.2.2.2 */
    refused((const uint8_t[]){0x30, 7, 0, 1, 'c', 2, 0x24, 1, 'x'}, 9, OW_MALFORMED_PACKET);
    /* a second message at QoS 2 before the first is through: we announced a Receive Maximum of 1
     * [MQTT-3.3.4-9] */
    refused((const uint8_t[]){0x34, 9, 0, 2, 'c', 'm', 0, 1, 0, 0, 1, 0x34, 9, 0, 2, 'c', 'm', 0, 2,
                0, 0, 2},
        22, OW_RECEIVE_MAXIMUM_EXCEEDED);
}

/* Packets that are right but for some bytes: the client takes them or refuses them, and comes
 * back. */
static void nonsense_harms_nothing(void)
{
    static const uint8_t right[][11] = {
        {0x32, 9, 0, 2, 'c', 'm', 0, 77, 0, 0, 4},
        {0x34, 9, 0, 2, 'c', 'm', 0, 7, 0, 0, 5},
        {0x62, 2, 0, 7},
        {0x50, 3, 0, 1, 0x97},
        {0x90, 4, 0, 1, 0, 2},
        {0xE0, 2, 0x8B, 0},
        {0xD0, 0},
    };
    world_subscribe();
    world.any_message = true;
    for (int i = 0; i < 5000; i++) {
        uint8_t packet[sizeof right[0]];
        gateway.mute = false;
        CHECK(world_until(world_online, OW_RETRY_S * 1000 + 5000));
        gateway.mute = true; /* the client's answers to invalid packets are ignored */
        world_produce();
        memcpy(packet, right[board_random() % (sizeof right / sizeof right[0])], sizeof packet);
        uint8_t length = packet[1] + 2;
        for (uint32_t changes = board_random() % 4; changes; changes--) {
            packet[board_random() % length] = (uint8_t)board_random();
        }
        gateway_send(packet, length);
        world_run(1 + board_random() % 20);
    }
    CHECK(world.lost[OW_LOST_PROTOCOL] > 100 && world.lost[OW_LOST_DISCONNECTED] > 100);
}

static void refused_connack(const uint8_t *packet, bool new_device, uint8_t reason)
{
    world_new();
    world_boot();
    if (!new_device) {
        CHECK(world_until(world_online, 1000));
        world_run(200);
        gateway_close();
    }
    gateway.connack = packet;
    uint32_t online = world.connected;
    CHECK(world_until(world_lost_by_protocol, 5000));
    CHECK(world.connected == online && world.reason == reason, "reason %x", world.reason);
    CHECK(world_until(world_online, 5000), "it comes back");
    CHECK_EQUAL(gateway.disconnect_reason, reason);
}

static void a_connack_that_breaks_the_rules_is_refused(void)
{
    /* a session after Clean Start [MQTT-3.2.2-2] */
    refused_connack((const uint8_t[]){0x20, 3, 1, 0, 0}, true, OW_PROTOCOL_ERROR);
    /* another packet first [MQTT-3.2.0-1] */
    refused_connack((const uint8_t[]){0xD0, 0}, true, OW_PROTOCOL_ERROR);
    /* reserved flags [MQTT-3.2.2-1] */
    refused_connack((const uint8_t[]){0x20, 3, 2, 0, 0}, false, OW_MALFORMED_PACKET);
    /* Receive Maximum 0, 3.2.2.3.3 */
    refused_connack((const uint8_t[]){0x20, 6, 0, 0, 3, 0x21, 0, 0}, false, OW_PROTOCOL_ERROR);
    /* Maximum QoS 3, 3.2.2.3.4 */
    refused_connack((const uint8_t[]){0x20, 5, 0, 0, 2, 0x24, 3}, false, OW_PROTOCOL_ERROR);
    refused_connack((const uint8_t[]){0x20, 4, 0, 0, 9, 0x24}, false, OW_MALFORMED_PACKET);
}

static void answers_to_nothing_end_the_connection(void)
{
    refused((const uint8_t[]){0x40, 2, 9, 9}, 4, OW_PROTOCOL_ERROR);          /* PUBACK */
    refused((const uint8_t[]){0x50, 2, 9, 9}, 4, OW_PROTOCOL_ERROR);          /* PUBREC */
    refused((const uint8_t[]){0x70, 3, 9, 9, 0x92}, 5, OW_PROTOCOL_ERROR);    /* PUBCOMP */
    refused((const uint8_t[]){0x90, 4, 9, 9, 0, 2}, 6, OW_PROTOCOL_ERROR);    /* SUBACK */
    /* for no id: while nothing is subscribed [MQTT-2.2.1-3] */
    refused((const uint8_t[]){0x90, 4, 0, 0, 0, 2}, 6, OW_PROTOCOL_ERROR);
    refused((const uint8_t[]){0xB0, 4, 9, 9, 0, 0}, 6, OW_PROTOCOL_ERROR);    /* UNSUBACK */
    refused((const uint8_t[]){0xD0, 0}, 2, OW_PROTOCOL_ERROR);                /* PINGRESP */
    refused((const uint8_t[]){0xD0, 1, 0}, 3, OW_PROTOCOL_ERROR);
}

static void expect_refusal(uint8_t reason)
{
    world_run(300);
    CHECK_EQUAL(gateway.disconnects, 1);
    CHECK_EQUAL(gateway.disconnect_reason, reason);
}

/* What is under way is answered by the packet that belongs to it, and by no other. */
static void the_wrong_answer_ends_the_connection(void)
{
    static const enum ow_packet_type wrong[] = {OW_PUBACK, OW_PUBCOMP};
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        world_subscribe();
        gateway.mute = true; /* no PUBREC */
        while (!world_produce()) {
            world_step();
        }
        world_run(100);
        /* to a PUBLISH at QoS 2 [MQTT-4.3.3-8] */
        gateway_send((const uint8_t[]){(uint8_t)(wrong[i] << 4), 2, 0, 1}, 4);
        gateway.mute = false;
        expect_refusal(OW_PROTOCOL_ERROR);
        CHECK(world_until(world_quiet, 5000));
        world_check(1);
    }
    world_subscribe();
    gateway.mute = true;
    CHECK(ow_mqtt_unsubscribe(&client, "cm"));
    world_run(50);
    gateway_send((const uint8_t[]){0x90, 4, (uint8_t)(client.ids.subscription >> 8),
                     (uint8_t)client.ids.subscription, 0, 0},
        6);
    gateway.mute = false;
    expect_refusal(OW_PROTOCOL_ERROR);
    CHECK_EQUAL(world.answers[OW_UNSUBSCRIBE], 0);
}

static void an_unknown_pubrel_gets_0x92(void)
{
    world_subscribe();
    gateway.message_id = 33;
    gateway.message_received = true;
    gateway_send((const uint8_t[]){0x62, 2, 0, 33}, 4);
    CHECK(world_until(no_message_open, 1000));
    CHECK_EQUAL(gateway.pubcomps[1], 1);
    CHECK_EQUAL(world.received[33], 0);
}

int main(void)
{
    RUN(packets_that_break_the_rules_end_the_connection);
    RUN(nonsense_harms_nothing);
    RUN(a_connack_that_breaks_the_rules_is_refused);
    RUN(answers_to_nothing_end_the_connection);
    RUN(the_wrong_answer_ends_the_connection);
    RUN(an_unknown_pubrel_gets_0x92);
    return 0;
}
