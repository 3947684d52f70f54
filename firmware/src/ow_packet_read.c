#include "ow_packet.h"

#include "ow_bytes.h"

/* Reading stops at the first wrong or missing byte: `error` is the reason, and all later reads give
 * zero. */
struct reader {
    const uint8_t *at;
    uint8_t left;
    uint8_t error;
};

static void fail(struct reader *reader, uint8_t error)
{
    if (!reader->error) {
        reader->error = error;
    }
    reader->left = 0;
}

static const uint8_t *take(struct reader *reader, uint16_t length)
{
    static const uint8_t zeros[2];
    const uint8_t *at = reader->at;
    if (length > reader->left) {
        fail(reader, OW_MALFORMED_PACKET);
        return zeros;
    }
    reader->at += length;
    reader->left = (uint8_t)(reader->left - length);
    return at;
}

static uint8_t take_u8(struct reader *reader)
{
    return *take(reader, 1);
}

static uint16_t take_u16(struct reader *reader)
{
    return ow_get_u16(take(reader, 2));
}

/* A packet identifier [MQTT-2.2.1-3], or a limit that must not be 0. */
static uint16_t take_positive(struct reader *reader)
{
    uint16_t value = take_u16(reader);
    if (value == 0) {
        fail(reader, OW_PROTOCOL_ERROR);
    }
    return value;
}

static bool take_flag(struct reader *reader)
{
    uint8_t value = take_u8(reader);
    if (value > 1) {
        fail(reader, OW_PROTOCOL_ERROR);
    }
    return value;
}

/* Binary Data (section 1.5.6). Returns its length. */
static uint8_t take_binary(struct reader *reader)
{
    uint16_t length = take_u16(reader);
    take(reader, length);
    return (uint8_t)length;
}

/* A UTF-8 Encoded String [MQTT-1.5.4-1], [MQTT-1.5.4-2]; a Topic Name has no wildcards
 * [MQTT-3.3.2-2], [MQTT-3.3.2-14]. Returns its length. */
static uint8_t take_text(struct reader *reader, bool topic)
{
    const uint8_t *at = reader->at + 2;
    uint8_t length = take_binary(reader);
    uint8_t more = 0;                  /* bytes of the character that are missing */
    uint8_t least = 0x80, most = 0xBF; /* range of the next byte */
    for (uint8_t left = reader->error ? 0 : length; left; left--) {
        uint8_t byte = *at++;
        bool bad = byte == 0 || (topic && (byte == '+' || byte == '#'));
        if (more) {
            bad = byte < least || byte > most;
            least = 0x80;
            most = 0xBF;
            more--;
        } else if (byte >= 0x80) {
            bad = byte < 0xC2 || byte > 0xF4;
            more = (uint8_t)(1 + (byte >= 0xE0) + (byte >= 0xF0));
            /* else longer than it must be */
            least = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
            /* else a surrogate, or beyond U+10FFFF */
            most = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
        }
        if (bad || more >= left) {
            fail(reader, OW_MALFORMED_PACKET);
        }
    }
    return length;
}

/* Properties by which the gateway sets its limits, and those that need a rule of their own (table
 * 2-4). */
enum {
    RESPONSE_TOPIC = 0x08,
    SERVER_KEEP_ALIVE = 0x13,
    REASON_STRING = 0x1F,
    RECEIVE_MAXIMUM = 0x21,
    TOPIC_ALIAS_MAXIMUM = 0x22,
    TOPIC_ALIAS = 0x23,
    MAXIMUM_QOS = 0x24,
    RETAIN_AVAILABLE = 0x25,
    USER_PROPERTY = 0x26,
    MAXIMUM_PACKET_SIZE = 0x27,
};

/* Range of property identifiers allowed in a packet; User Property is allowed everywhere. */
enum {
    PUBLISH_FIRST = 0x01,
    PUBLISH_LAST = 0x09,
    CONNACK_FIRST = 0x11,
    CONNACK_LAST = 0x2A,
    ACK_ONLY = REASON_STRING
};

/* The value of one property. */
static void take_property(struct reader *reader, uint8_t id, struct ow_connack *limits)
{
    switch (id) {
    case SERVER_KEEP_ALIVE:
        limits->keep_alive = take_u16(reader);
        break;
    case TOPIC_ALIAS_MAXIMUM:
        limits->topic_alias_maximum = take_u16(reader);
        break;
    case MAXIMUM_PACKET_SIZE:
        limits->maximum_packet_size = 0xFFFF;
        if (take_u16(reader)) {
            take_u16(reader);
        } else {
            limits->maximum_packet_size = take_positive(reader);
        }
        break;
    case RECEIVE_MAXIMUM:
        limits->receive_maximum = take_positive(reader);
        break;
    case MAXIMUM_QOS:
        limits->maximum_qos = take_flag(reader);
        break;
    case RETAIN_AVAILABLE:
        limits->retain_available = take_flag(reader);
        break;
    case 0x01: case 0x28: case 0x29: case 0x2A:
        take_flag(reader);
        break;
    case 0x02: case 0x11:
        take(reader, 4);
        break;
    case RESPONSE_TOPIC:
#if OW_ANSWERS
        limits->response = reader->at + 1;
#endif
        take_text(reader, true);
        break;
    case USER_PROPERTY:
        take_text(reader, false);
        /* fall through */
    case 0x03: case 0x12: case 0x1C: case REASON_STRING:
        take_text(reader, false);
        break;
    case 0x09:
#if OW_ANSWERS
        limits->correlation = reader->at + 1;
#endif
        take_binary(reader);
        break;
    case TOPIC_ALIAS: /* the client announced a Topic Alias Maximum of 0 */
        fail(reader, OW_TOPIC_ALIAS_INVALID);
        break;
    /* Subscription Identifier, authentication, Response Information: the client asked for none */
    case 0x0B: case 0x15: case 0x16: case 0x1A:
        fail(reader, OW_PROTOCOL_ERROR);
        break;
    default:
        fail(reader, OW_MALFORMED_PACKET);
    }
}

/* Properties (section 2.2.2), each once; the limits that a CONNACK sets go to `limits`. A length of
 * more than one byte is longer than the packet. */
static void take_properties(
    struct reader *reader, uint8_t first, uint8_t last, struct ow_connack *limits)
{
    bool seen[CONNACK_LAST + 1] = {false};
    uint8_t length = take_u8(reader);
    uint8_t rest = (uint8_t)(reader->left - length);
    if (length > reader->left) {
        fail(reader, OW_MALFORMED_PACKET);
    }
    while (reader->left > rest) {
        uint8_t id = take_u8(reader);
        take_property(reader, id, limits);
        if (reader->error) {
            return;
        }
        if (id == USER_PROPERTY) {
            continue;
        }
        if (id < first || id > last) {
            fail(reader, OW_MALFORMED_PACKET);
        }
        if (seen[id]) {
            fail(reader, OW_PROTOCOL_ERROR);
        }
        seen[id] = true;
    }
    if (reader->left != rest) {
        fail(reader, OW_MALFORMED_PACKET);
    }
}

uint8_t ow_read_connack(const uint8_t *bytes, uint8_t length, struct ow_connack *connack)
{
    struct reader reader = {bytes, length, OW_SUCCESS};
    uint8_t flags = take_u8(&reader);
    connack->reason = take_u8(&reader);
    connack->session_present = flags;
    connack->maximum_qos = 2;
    connack->retain_available = true;
    connack->receive_maximum = 0xFFFF;
    connack->topic_alias_maximum = 0;
    connack->maximum_packet_size = 0xFFFF;
    take_properties(&reader, CONNACK_FIRST, CONNACK_LAST, connack);
    if (flags > 1 || reader.left) {
        fail(&reader, OW_MALFORMED_PACKET);
    }
    if (flags && connack->reason) { /* [MQTT-3.2.2-6] */
        fail(&reader, OW_PROTOCOL_ERROR);
    }
    return reader.error;
}

uint8_t ow_read_publish(
    uint8_t flags, const uint8_t *bytes, uint8_t length, struct ow_message *message, uint16_t *id)
{
    struct reader reader = {bytes, length, OW_SUCCESS};
    struct ow_connack none;
    message->dup = flags & 8;
    message->qos = (flags >> 1) & 3;
    message->retain = flags & 1;
    message->alias = 0;
    message->topic = (const char *)bytes + 2;
    message->topic_length = take_text(&reader, true);
    *id = 0;
    if (message->qos) {
        *id = take_positive(&reader);
    }
#if OW_ANSWERS
    none.response = none.correlation = 0;
#endif
    take_properties(&reader, PUBLISH_FIRST, PUBLISH_LAST, &none);
#if OW_ANSWERS
    message->response = none.response;
    message->correlation = none.correlation;
#endif
    message->payload = reader.at;
    message->size = reader.left;
    /* [MQTT-3.3.1-4], [MQTT-3.3.1-2] */
    if (message->qos == 3 || (message->qos == 0 && message->dup)) {
        fail(&reader, OW_MALFORMED_PACKET);
    }
    if (message->topic_length == 0) {
        fail(&reader, OW_PROTOCOL_ERROR);
    }
    return reader.error;
}

uint8_t ow_read_ack(
    enum ow_packet_type type, const uint8_t *bytes, uint8_t length, uint16_t *id, uint8_t *reason)
{
    struct reader reader = {bytes, length, OW_SUCCESS};
    struct ow_connack none;
    /* the reason codes come after the properties */
    bool listed = type == OW_SUBACK || type == OW_UNSUBACK;
    *id = take_positive(&reader);
    *reason = OW_SUCCESS;
    if (listed) {
        take_properties(&reader, ACK_ONLY, ACK_ONLY, &none);
    }
    if (listed || reader.left) {
        *reason = take_u8(&reader);
    }
    if (!listed && reader.left) {
        take_properties(&reader, ACK_ONLY, ACK_ONLY, &none);
    }
    if (reader.left) {
        fail(&reader, OW_MALFORMED_PACKET);
    }
    return reader.error;
}
