#include "ow_packet.h"

#include "ow_bytes.h"

/* Reading stops at the end: what is missing reads as zero and sets `bad`. */
struct reader {
    const uint8_t *at;
    uint8_t left;
    bool bad;
};

static const uint8_t *take(struct reader *reader, uint16_t length)
{
    static const uint8_t zeros[4];
    const uint8_t *at = reader->at;
    if (length > reader->left) {
        reader->bad = true;
        reader->left = 0;
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

/* A Variable Byte Integer (section 1.5.5), at most 0xFFFF: a length beyond it cannot fit the packet, and other values do not matter here. */
static uint16_t take_varint(struct reader *reader)
{
    uint16_t value = 0;
    for (uint8_t shift = 0; shift < 28; shift += 7) {
        uint8_t byte = take_u8(reader);
        if (shift <= 7) {
            value |= (uint16_t)((uint16_t)(byte & 0x7F) << shift);
        } else if (byte & 0x7F) {
            value = 0xFFFF;
        }
        if (byte < 0x80) {
            return value;
        }
    }
    reader->bad = true;
    return 0;
}

static const uint8_t *take_string(struct reader *reader, ow_size *length)
{
    uint16_t announced = take_u16(reader);
    const uint8_t *at = take(reader, announced);
    *length = (ow_size)(reader->bad ? 0 : announced);
    return at;
}

enum { SERVER_KEEP_ALIVE = 0x13, RECEIVE_MAXIMUM = 0x21, TOPIC_ALIAS_MAXIMUM = 0x22, TOPIC_ALIAS = 0x23, MAXIMUM_QOS = 0x24, RETAIN_AVAILABLE = 0x25, MAXIMUM_PACKET_SIZE = 0x27 };

/* Takes one property (section 2.2.2.2) and returns its identifier; an integer goes to `value`, 0xFFFF for more than that. */
static uint8_t take_property(struct reader *reader, uint16_t *value)
{
    ow_size length;
    uint8_t id = take_u8(reader);
    switch (id) {
    case 0x01: case 0x17: case 0x19: case 0x24: case 0x25: case 0x28: case 0x29: case 0x2A:
        *value = take_u8(reader);
        break;
    case 0x02: case 0x11: case 0x18: case 0x27:
        if (take_u16(reader)) {
            take_u16(reader);
            *value = 0xFFFF;
            break;
        }
        /* fall through */
    case 0x13: case 0x21: case 0x22: case 0x23:
        *value = take_u16(reader);
        break;
    case 0x0B:
        *value = take_varint(reader);
        break;
    case 0x26:
        take_string(reader, &length);
        /* fall through */
    case 0x03: case 0x08: case 0x09: case 0x12: case 0x15: case 0x16: case 0x1A: case 0x1C: case 0x1F:
        take_string(reader, &length);
        break;
    default:
        reader->bad = true;
    }
    return id;
}

/* The properties' own reader; the packet's goes on behind them. */
static struct reader take_properties(struct reader *reader)
{
    uint16_t length = take_varint(reader);
    struct reader properties = {take(reader, length), (uint8_t)length, false};
    if (reader->bad) {
        properties.left = 0;
    }
    return properties;
}

static uint8_t verdict(const struct reader *reader)
{
    return reader->bad ? OW_MALFORMED_PACKET : OW_SUCCESS;
}

uint8_t ow_read_connack(const uint8_t *bytes, uint8_t length, struct ow_connack *connack)
{
    struct reader reader = {bytes, length, false};
    uint8_t flags = take_u8(&reader);
    connack->reason = take_u8(&reader);
    connack->session_present = flags & 1;
    connack->maximum_qos = 2;
    connack->retain_available = true;
    connack->receive_maximum = 0xFFFF;
    connack->topic_alias_maximum = 0;
    connack->maximum_packet_size = 0xFFFF;
    struct reader properties = take_properties(&reader);
    while (properties.left) {
        uint16_t value = 0;
        switch (take_property(&properties, &value)) {
        case SERVER_KEEP_ALIVE:
            connack->keep_alive = value;
            break;
        case RECEIVE_MAXIMUM:
            connack->receive_maximum = value;
            break;
        case TOPIC_ALIAS_MAXIMUM:
            connack->topic_alias_maximum = value;
            break;
        case MAXIMUM_QOS:
            connack->maximum_qos = (uint8_t)value;
            break;
        case RETAIN_AVAILABLE:
            connack->retain_available = value;
            break;
        case MAXIMUM_PACKET_SIZE:
            connack->maximum_packet_size = value;
            break;
        default:
            break;
        }
    }
    if (flags > 1 || reader.left || properties.bad) {
        return OW_MALFORMED_PACKET;
    }
    if (connack->receive_maximum == 0 || connack->maximum_packet_size == 0 || connack->maximum_qos > 2) {
        return OW_PROTOCOL_ERROR;
    }
    return verdict(&reader);
}

uint8_t ow_read_publish(uint8_t flags, const uint8_t *bytes, uint8_t length, struct ow_message *message, uint16_t *id)
{
    struct reader reader = {bytes, length, false};
    message->dup = flags & 8;
    message->qos = (flags >> 1) & 3;
    message->retain = flags & 1;
    message->alias = 0;
    message->topic = (const char *)take_string(&reader, &message->topic_length);
    *id = message->qos ? take_u16(&reader) : 0;
    struct reader properties = take_properties(&reader);
    while (properties.left) {
        uint16_t value = 0;
        if (take_property(&properties, &value) == TOPIC_ALIAS) {
            return OW_TOPIC_ALIAS_INVALID; /* we announced a Topic Alias Maximum of 0 */
        }
    }
    message->payload = reader.at;
    message->size = reader.left;
    if (message->qos == 3 || (message->qos == 0 && message->dup) || properties.bad) { /* [MQTT-3.3.1-4], [MQTT-3.3.1-2] */
        return OW_MALFORMED_PACKET;
    }
    if (!reader.bad && (message->topic_length == 0 || (message->qos && *id == 0))) {
        return OW_PROTOCOL_ERROR;
    }
    return verdict(&reader);
}

uint8_t ow_read_ack(enum ow_packet_type type, const uint8_t *bytes, uint8_t length, uint16_t *id, uint8_t *reason)
{
    struct reader reader = {bytes, length, false};
    *id = take_u16(&reader);
    *reason = OW_SUCCESS;
    if (type == OW_SUBACK || type == OW_UNSUBACK) {
        take_properties(&reader);
        *reason = take_u8(&reader);
    } else if (reader.left) {
        *reason = take_u8(&reader);
    }
    return verdict(&reader);
}
