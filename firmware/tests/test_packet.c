/* MQTT 5 packets as byte arrays; every truncation of a well-formed packet is malformed. Values
 * follow the examples of the standard's layout. */
#include "check.h"
#include "ow_packet.h"

static struct ow_link link;

static void fresh_link(void)
{
    ow_link_init(&link);
    link.state = OW_LINK_OPEN;
}

#define EXPECT(...)                                                                                \
    do {                                                                                           \
        const uint8_t wanted_[] = {__VA_ARGS__};                                                   \
        CHECK_EQUAL(link.used, sizeof wanted_);                                                    \
        for (unsigned i_ = 0; i_ < sizeof wanted_; i_++) {                                         \
            CHECK(link.ring[i_] == wanted_[i_], "byte %u is %02x, should be %02x", i_,             \
                link.ring[i_], wanted_[i_]);                                                       \
        }                                                                                          \
    } while (0)

static void connect_packet(void)
{
    struct ow_connect connect = {.client_id = "s1", .keep_alive = 60, .clean_start = true};
    fresh_link();
    CHECK(ow_send_connect(&link, &connect));
    EXPECT(0x10, 28, 0, 4, 'M', 'Q', 'T', 'T', 5, 0x02, 0, 60, 13, 0x11, 0xFF, 0xFF, 0xFF, 0xFF,
        0x21, 0, 1, 0x27, 0, 0, 0, OW_MQTT_PACKET_SIZE, 0, 2, 's', '1');
}

static void connect_with_will(void)
{
    struct ow_message will = {.topic = "w/s1",
        .topic_length = 4,
        .payload = (const uint8_t *)"off",
        .size = 3,
        .qos = 1,
        .retain = true};
    struct ow_connect connect = {.client_id = "s1", .keep_alive = 5, .will = &will};
    fresh_link();
    CHECK(ow_send_connect(&link, &connect));
    EXPECT(0x10, 40, 0, 4, 'M', 'Q', 'T', 'T', 5, 0x2C, 0, 5, 13, 0x11, 0xFF, 0xFF, 0xFF, 0xFF,
        0x21, 0, 1, 0x27, 0, 0, 0, OW_MQTT_PACKET_SIZE, 0, 2, 's', '1', 0, 0, 4, 'w', '/', 's', '1',
        0, 3, 'o', 'f', 'f');
}

static void publish_packets(void)
{
    struct ow_message message = {.topic = "a/b",
        .topic_length = 3,
        .payload = (const uint8_t *)"hi",
        .size = 2,
        .qos = 2,
        .alias = 1};
    fresh_link();
    CHECK(ow_send_publish(&link, &message, 0x0102, true));
    EXPECT(0x34, 13, 0, 3, 'a', '/', 'b', 1, 2, 3, 0x23, 0, 1, 'h', 'i');
    CHECK_EQUAL(ow_publish_size(&message, true), link.used);

    fresh_link();
    message.dup = true;
    CHECK(ow_send_publish(&link, &message, 0x0102, false));
    EXPECT(0x3C, 10, 0, 0, 1, 2, 3, 0x23, 0, 1, 'h', 'i');

    fresh_link();
    message = (struct ow_message){.topic = "a",
        .topic_length = 1,
        .payload = (const uint8_t *)"x",
        .size = 1,
        .retain = true};
    CHECK(ow_send_publish(&link, &message, 0, true));
    EXPECT(0x31, 5, 0, 1, 'a', 0, 'x');
}

static void packets_above_127_bytes_have_two_length_bytes(void)
{
    uint8_t payload[200] = {0};
    struct ow_message message = {.topic = "a", .topic_length = 1, .payload = payload, .size = 124};
    fresh_link();
    CHECK(!ow_send_publish(&link, &message, 0, true)); /* 131 bytes do not fit the ring of 128 */
    CHECK_EQUAL(link.used, 0);
    message.size = 121;
    CHECK(ow_send_publish(&link, &message, 0, true));
    CHECK_EQUAL(link.used, 127);
    CHECK_EQUAL(link.ring[1], 125);
    CHECK(!ow_send_pingreq(&link));
    CHECK_EQUAL(ow_publish_size(&message, true), 127);
    message.size = 124;
    CHECK_EQUAL(ow_publish_size(&message, true), 131);
}

static void small_packets(void)
{
    fresh_link();
    CHECK(ow_send_ack(&link, OW_PUBREC, 0x1234, 0) && ow_send_ack(&link, OW_PUBREL, 1, 0) &&
          ow_send_ack(&link, OW_PUBCOMP, 2, OW_ID_NOT_FOUND));
    EXPECT(0x50, 2, 0x12, 0x34, 0x62, 2, 0, 1, 0x70, 3, 0, 2, 0x92);
    fresh_link();
    CHECK(ow_send_pingreq(&link) && ow_send_disconnect(&link, 0) &&
          ow_send_disconnect(&link, OW_PROTOCOL_ERROR));
    EXPECT(0xC0, 0, 0xE0, 0, 0xE0, 1, 0x82);
    fresh_link();
    CHECK(ow_send_subscribe(&link, 7, "c/#", 2) && ow_send_unsubscribe(&link, 8, "c"));
    EXPECT(0x82, 9, 0, 7, 0, 0, 3, 'c', '/', '#', 2, 0xA2, 6, 0, 8, 0, 0, 1, 'c');
}

/* Copies to an allocation of the exact size, so that the sanitizer sees every read beyond the
 * end. */
static uint8_t *exact(const uint8_t *bytes, unsigned length)
{
    uint8_t *copy = malloc(length ? length : 1);
    memcpy(copy, bytes, length);
    return copy;
}

static uint8_t connack(const uint8_t *bytes, unsigned length, struct ow_connack *out)
{
    uint8_t *copy = exact(bytes, length);
    uint8_t error = ow_read_connack(copy, (uint16_t)length, out);
    free(copy);
    return error;
}

static void connack_packets(void)
{
    static const uint8_t full[] = {1, 0, 42, 0x11, 0, 0, 0, 9, 0x21, 0, 5, 0x22, 0, 8, 0x24, 1,
        0x25, 0, 0x27, 0, 0, 1, 0, 0x12, 0, 2, 'i', 'd', 0x13, 0, 30, 0x26, 0, 1, 'k', 0, 1, 'v',
        0x28, 1, 0x1F, 0, 1, 'r', 0x2A};
    uint8_t bytes[sizeof full + 1];
    struct ow_connack out = {.keep_alive = 60};
    memcpy(bytes, full, sizeof full);
    bytes[sizeof full] = 1;
    bytes[2] = sizeof bytes - 3;
    CHECK_EQUAL(connack(bytes, sizeof bytes, &out), 0);
    CHECK(out.session_present);
    CHECK_EQUAL(out.receive_maximum, 5);
    CHECK_EQUAL(out.topic_alias_maximum, 8);
    CHECK_EQUAL(out.maximum_qos, 1);
    CHECK_EQUAL(out.maximum_packet_size, 256);
    CHECK_EQUAL(out.keep_alive, 30);
    for (unsigned length = 0; length < sizeof bytes; length++) {
        CHECK(connack(bytes, length, &out) == OW_MALFORMED_PACKET, "%u bytes", length);
    }

    out.keep_alive = 60;
    CHECK_EQUAL(connack((const uint8_t[]){0, 0x87, 0}, 3, &out), 0);
    CHECK_EQUAL(out.reason, 0x87);
    CHECK_EQUAL(out.receive_maximum, 0xFFFF);
    CHECK_EQUAL(out.maximum_qos, 2);
    CHECK_EQUAL(out.keep_alive, 60);

    /* [MQTT-3.2.2-1] */
    CHECK_EQUAL(connack((const uint8_t[]){2, 0, 0}, 3, &out), OW_MALFORMED_PACKET);
    /* Receive Maximum 0 */
    CHECK_EQUAL(connack((const uint8_t[]){0, 0, 3, 0x21, 0, 0}, 6, &out), OW_PROTOCOL_ERROR);
    /* unknown property */
    CHECK_EQUAL(connack((const uint8_t[]){0, 0, 2, 0x7F, 0}, 5, &out), OW_MALFORMED_PACKET);
    /* too long */
    CHECK_EQUAL(connack((const uint8_t[]){0, 0, 0, 0}, 4, &out), OW_MALFORMED_PACKET);
    CHECK_EQUAL(
        connack((const uint8_t[]){0, 0, 0xFF, 0xFF, 0xFF, 0xFF}, 6, &out), OW_MALFORMED_PACKET);
}

static void what_a_connack_must_not_have(void)
{
    const struct {
        uint8_t error, bytes[12], length;
    } refused[] = {
        {OW_PROTOCOL_ERROR, {0, 0, 6, 0x21, 0, 1, 0x21, 0, 1}, 9},         /* twice, 3.2.2.3.3 */
        {OW_PROTOCOL_ERROR, {0, 0, 4, 0x24, 1, 0x24, 1}, 7},               /* twice, 3.2.2.3.4 */
        {OW_PROTOCOL_ERROR, {0, 0, 8, 0x1F, 0, 1, 'r', 0x1F, 0, 1, 'r'}, 11}, /* twice, 3.2.2.3.9 */
        /* Maximum QoS 2, 3.2.2.3.4 */
        {OW_PROTOCOL_ERROR, {0, 0, 2, 0x24, 2}, 5},
        /* Retain Available 2, 3.2.2.3.5 */
        {OW_PROTOCOL_ERROR, {0, 0, 2, 0x25, 2}, 5},
        /* Shared Subscription Available 9, 3.2.2.3.13 */
        {OW_PROTOCOL_ERROR, {0, 0, 2, 0x2A, 9}, 5},
        /* Maximum Packet Size 0, 3.2.2.3.6 */
        {OW_PROTOCOL_ERROR, {0, 0, 5, 0x27, 0, 0, 0, 0}, 8},
        /* Response Information that was not asked for [MQTT-3.1.2-28] */
        {OW_PROTOCOL_ERROR, {0, 0, 4, 0x1A, 0, 1, 'r'}, 7},
        /* Authentication Method that we did not give, 4.12 */
        {OW_PROTOCOL_ERROR, {0, 0, 4, 0x15, 0, 1, 'm'}, 7},
        /* a session beside a refusal [MQTT-3.2.2-6] */
        {OW_PROTOCOL_ERROR, {1, 0x87, 0}, 3},
        /* Payload Format Indicator is PUBLISH's, 2.2.2.2 */
        {OW_MALFORMED_PACKET, {0, 0, 2, 0x01, 1}, 5},
        /* Request Problem Information is CONNECT's */
        {OW_MALFORMED_PACKET, {0, 0, 2, 0x17, 1}, 5},
        {OW_MALFORMED_PACKET, {0, 0, 5, 0x21, 0, 1, 0x21, 0}, 8},          /* beyond their length */
    };
    struct ow_connack out;
    for (unsigned i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        uint8_t error = connack(refused[i].bytes, refused[i].length, &out);
        CHECK(error == refused[i].error, "case %u gives %02x", i, error);
    }
    /* User Property may stand more than once, 3.2.2.3.10 */
    CHECK_EQUAL(
        connack((const uint8_t[]){0, 0, 10, 0x26, 0, 0, 0, 0, 0x26, 0, 0, 0, 0}, 13, &out), 0);
}

static uint8_t publish(uint8_t flags, const uint8_t *bytes, unsigned length, struct ow_message *out,
    uint16_t *id, uint8_t **copy)
{
    *copy = exact(bytes, length);
    return ow_read_publish(flags, *copy, (uint16_t)length, out, id);
}

/* Every property that a PUBLISH from a server may have. */
static void publish_with_properties(void)
{
    static const uint8_t bytes[] = {0, 1, 'a', 28, 0x01, 1, 0x02, 0, 0, 0, 9, 0x03, 0, 1, 't', 0x08,
        0, 1, 'r', 0x09, 0, 1, 0, 0x26, 0, 0, 0, 0, 0x26, 0, 0, 0, 0, 'x'};
    struct ow_message out;
    uint16_t id;
    uint8_t *copy;
    uint8_t full[sizeof bytes];
    memcpy(full, bytes, sizeof bytes);
    full[3] = sizeof bytes - 5;
    CHECK_EQUAL(publish(0, full, sizeof full, &out, &id, &copy), 0);
    CHECK(out.size == 1 && out.payload[0] == 'x');
    free(copy);
}

static void publish_in(void)
{
    static const uint8_t bytes[] = {
        0, 2, 'a', 'b', 0x12, 0x34, 7, 0x01, 1, 0x26, 0, 0, 0, 0, 'h', 'i'};
    enum { BEFORE_PAYLOAD = sizeof bytes - 2 };
    struct ow_message out;
    uint16_t id;
    uint8_t *copy;
    CHECK_EQUAL(publish(0x0D, bytes, sizeof bytes, &out, &id, &copy), 0);
    CHECK_EQUAL(id, 0x1234);
    CHECK(out.dup && out.qos == 2 && out.retain && out.topic_length == 2 && out.size == 2);
    CHECK(memcmp(out.topic, "ab", 2) == 0 && memcmp(out.payload, "hi", 2) == 0);
    free(copy);
    for (unsigned length = 0; length < BEFORE_PAYLOAD; length++) {
        CHECK(publish(4, bytes, length, &out, &id, &copy) != 0, "%u bytes", length);
        free(copy);
    }

    const struct {
        uint8_t flags, error, bytes[20], length;
    } refused[] = {
        {6, OW_MALFORMED_PACKET, {0, 1, 'a', 0, 1, 0}, 6},             /* QoS 3 [MQTT-3.3.1-4] */
        /* DUP at QoS 0 [MQTT-3.3.1-2] */
        {8, OW_MALFORMED_PACKET, {0, 1, 'a', 0}, 4},
        {2, OW_PROTOCOL_ERROR, {0, 1, 'a', 0, 0, 0}, 6},               /* id 0 [MQTT-2.2.1-3] */
        {0, OW_PROTOCOL_ERROR, {0, 0, 0}, 3},                          /* no topic */
        /* an alias, though we allow none [MQTT-3.3.2-11] */
        {0, OW_TOPIC_ALIAS_INVALID, {0, 1, 'a', 3, 0x23, 0, 1}, 7},
        {0, OW_TOPIC_ALIAS_INVALID, {0, 0, 3, 0x23, 0, 1}, 6},
        /* a wildcard [MQTT-3.3.2-2] */
        {0, OW_MALFORMED_PACKET, {0, 1, '#', 0}, 4},
        {0, OW_MALFORMED_PACKET, {0, 3, 'a', '/', '+', 0}, 6},
        {0, OW_MALFORMED_PACKET, {0, 2, 'a', 0, 0}, 5},                /* U+0000 [MQTT-4.7.3-2] */
        /* a surrogate [MQTT-1.5.4-1] */
        {0, OW_MALFORMED_PACKET, {0, 3, 0xED, 0xA0, 0x80, 0}, 6},
        {0, OW_MALFORMED_PACKET, {0, 2, 'a', 0xC3, 0}, 5},             /* half a character */
        {0, OW_PROTOCOL_ERROR, {0, 1, 'a', 4, 0x01, 1, 0x01, 1}, 8},   /* twice, 3.3.2.3.2 */
        /* twice, 3.3.2.3.3 */
        {0, OW_PROTOCOL_ERROR, {0, 1, 'a', 10, 0x02, 0, 0, 0, 9, 0x02, 0, 0, 0, 9}, 14},
        /* Payload Format Indicator 2 */
        {0, OW_PROTOCOL_ERROR, {0, 1, 'a', 2, 0x01, 2}, 6},
        /* a Subscription Identifier that no subscription has */
        {0, OW_PROTOCOL_ERROR, {0, 1, 'a', 2, 0x0B, 1}, 6},
        {0, OW_MALFORMED_PACKET, {0, 1, 'a', 4, 0x08, 0, 1, '#'}, 8},  /* [MQTT-3.3.2-14] */
        /* Receive Maximum is CONNACK's, 2.2.2.2 */
        {0, OW_MALFORMED_PACKET, {0, 1, 'a', 3, 0x21, 0, 1}, 7},
        {0, OW_MALFORMED_PACKET, {0, 1, 'a', 2, 0x24, 1}, 6},          /* Maximum QoS, too */
    };
    for (unsigned i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        uint8_t error =
            publish(refused[i].flags, refused[i].bytes, refused[i].length, &out, &id, &copy);
        CHECK(error == refused[i].error, "case %u gives %02x", i, error);
        free(copy);
    }
}

static void acks_in(void)
{
    uint16_t id;
    uint8_t reason;
    CHECK_EQUAL(ow_read_ack(OW_PUBREC, (const uint8_t[]){1, 2}, 2, &id, &reason), 0);
    CHECK(id == 0x0102 && reason == 0);
    CHECK_EQUAL(ow_read_ack(OW_PUBREC, (const uint8_t[]){1, 2, 0x97}, 3, &id, &reason), 0);
    CHECK_EQUAL(reason, 0x97);
    CHECK_EQUAL(
        ow_read_ack(OW_PUBCOMP, (const uint8_t[]){1, 2, 0x92, 4, 0x1F, 0, 1, 'x'}, 8, &id, &reason),
        0);
    CHECK_EQUAL(reason, 0x92);
    CHECK_EQUAL(ow_read_ack(OW_SUBACK, (const uint8_t[]){0, 7, 0, 2}, 4, &id, &reason), 0);
    CHECK(id == 7 && reason == 2);
    CHECK_EQUAL(ow_read_ack(OW_PUBREL, (const uint8_t[]){1}, 1, &id, &reason), OW_MALFORMED_PACKET);
    CHECK_EQUAL(
        ow_read_ack(OW_SUBACK, (const uint8_t[]){0, 7, 0}, 3, &id, &reason), OW_MALFORMED_PACKET);
    CHECK_EQUAL(ow_read_ack(OW_SUBACK, (const uint8_t[]){0, 7, 9, 2}, 4, &id, &reason),
        OW_MALFORMED_PACKET);
    /* one filter, one code [MQTT-3.8.4-6] */
    CHECK_EQUAL(ow_read_ack(OW_SUBACK, (const uint8_t[]){0, 7, 0, 2, 2}, 5, &id, &reason),
        OW_MALFORMED_PACKET);
    /* [MQTT-2.2.1-3] */
    CHECK_EQUAL(
        ow_read_ack(OW_PUBACK, (const uint8_t[]){0, 0}, 2, &id, &reason), OW_PROTOCOL_ERROR);
    /* too long */
    CHECK_EQUAL(ow_read_ack(OW_PUBCOMP, (const uint8_t[]){1, 2, 0, 0, 0}, 5, &id, &reason),
        OW_MALFORMED_PACKET);
    /* CONNACK's property */
    CHECK_EQUAL(ow_read_ack(OW_PUBACK, (const uint8_t[]){1, 2, 0, 2, 0x24, 1}, 6, &id, &reason),
        OW_MALFORMED_PACKET);
    /* 3.4.2.2.2 */
    CHECK_EQUAL(ow_read_ack(OW_PUBACK, (const uint8_t[]){1, 2, 0, 6, 0x1F, 0, 0, 0x1F, 0, 0}, 10,
                    &id, &reason),
        OW_PROTOCOL_ERROR);
    /* 3.9.2.1.2 */
    CHECK_EQUAL(ow_read_ack(OW_SUBACK, (const uint8_t[]){1, 2, 6, 0x1F, 0, 0, 0x1F, 0, 0, 2}, 10,
                    &id, &reason),
        OW_PROTOCOL_ERROR);
}

int main(void)
{
    RUN(connect_packet);
    RUN(connect_with_will);
    RUN(publish_packets);
    RUN(packets_above_127_bytes_have_two_length_bytes);
    RUN(small_packets);
    RUN(connack_packets);
    RUN(what_a_connack_must_not_have);
    RUN(publish_with_properties);
    RUN(publish_in);
    RUN(acks_in);
    return 0;
}
