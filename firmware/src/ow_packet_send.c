#include "ow_packet.h"

#include <string.h>

enum { SESSION_EXPIRY = 0x11, RECEIVE_MAXIMUM = 0x21, TOPIC_ALIAS = 0x23, PACKET_SIZE = 0x27 };
enum { CORRELATION_DATA = 0x09 };
enum {
    CONNECT_CLEAN_START = 0x02,
    CONNECT_WILL = 0x04,
    CONNECT_WILL_QOS = 3,
    CONNECT_WILL_RETAIN = 0x20
};

#define LONG_PACKETS (OW_SEND_SIZE > 128) /* Remaining Length may take two bytes */

#define EXPIRY_BYTE(shift) (((uint32_t)OW_SESSION_EXPIRY_S >> (shift)) & 0xFF)

static void put_u16(ow_carrier *link, uint16_t value)
{
    ow_carrier_put(link, (uint8_t)(value >> 8));
    ow_carrier_put(link, (uint8_t)value);
}

static void put_bytes(ow_carrier *link, const void *bytes, uint16_t length)
{
    const uint8_t *at = bytes;
    while (length--) {
        ow_carrier_put(link, *at++);
    }
}

static void put_string(ow_carrier *link, const char *text, uint16_t length)
{
    put_u16(link, length);
    put_bytes(link, text, length);
}

/* Begins a packet of `length` bytes after the fixed header. */
static bool begin(ow_carrier *link, uint8_t header, uint16_t length)
{
    bool two = LONG_PACKETS && length >= 128;
    if (length + (two ? 3u : 2u) > ow_carrier_room(link)) {
        return false;
    }
    ow_carrier_put(link, header);
    if (two) {
        ow_carrier_put(link, (uint8_t)(length | 0x80));
        length >>= 7;
    }
    ow_carrier_put(link, (uint8_t)length);
    return true;
}

bool ow_message_fits(const struct ow_message *message)
{
    return message->topic_length <= OW_SEND_SIZE && message->size <= OW_SEND_SIZE;
}

bool ow_send_connect(ow_carrier *link, const struct ow_connect *connect)
{
    static const uint8_t head[] = {0, 4, 'M', 'Q', 'T', 'T', 5};
    static const uint8_t properties[] = {
        13,
        SESSION_EXPIRY,
        EXPIRY_BYTE(24),
        EXPIRY_BYTE(16),
        EXPIRY_BYTE(8),
        EXPIRY_BYTE(0),
        RECEIVE_MAXIMUM,
        0,
        1,
        PACKET_SIZE,
        0,
        0,
        OW_MQTT_PACKET_SIZE >> 8,
        OW_MQTT_PACKET_SIZE & 0xFF,
    };
    const struct ow_message *will = connect->will;
    uint16_t id_length = (uint16_t)strlen(connect->client_id);
    uint8_t flags = connect->clean_start ? CONNECT_CLEAN_START : 0;
    uint16_t length = (uint16_t)(sizeof head + 1 + 2 + sizeof properties + 2 + id_length);
    if (will && !ow_message_fits(will)) {
        return false;
    }
    if (will) {
        flags |= (uint8_t)(CONNECT_WILL | will->qos << CONNECT_WILL_QOS |
                           (will->retain ? CONNECT_WILL_RETAIN : 0));
        length = (uint16_t)(length + 1 + 2 + will->topic_length + 2 + will->size);
    }
    if (!begin(link, OW_CONNECT << 4, length)) {
        return false;
    }
    put_bytes(link, head, sizeof head);
    ow_carrier_put(link, flags);
    put_u16(link, connect->keep_alive);
    put_bytes(link, properties, sizeof properties);
    put_string(link, connect->client_id, id_length);
    if (will) {
        ow_carrier_put(link, 0); /* no will properties */
        put_string(link, will->topic, will->topic_length);
        put_string(link, (const char *)will->payload, will->size);
    }
    return true;
}

/* Their length, with the byte of the length itself. */
static uint8_t properties_length(const struct ow_message *message)
{
#if OW_ANSWERS
    if (message->correlation) {
        return 4 + (*message->correlation & 15);
    }
#endif
    return message->alias ? 4 : 1;
}

static OW_ONE_COPY uint16_t publish_length(const struct ow_message *message, bool with_topic)
{
    return (uint16_t)(2 + (with_topic ? message->topic_length : 0) + (message->qos ? 2 : 0) +
                      properties_length(message) + message->size);
}

uint16_t ow_publish_size(const struct ow_message *message, bool with_topic)
{
    uint16_t length = publish_length(message, with_topic);
    return (uint16_t)(length + (length < 128 ? 2 : 3));
}

bool ow_send_publish(
    ow_carrier *link, const struct ow_message *message, uint16_t id, bool with_topic)
{
    uint8_t header = (uint8_t)(OW_PUBLISH << 4 | (message->dup ? 8 : 0) | message->qos << 1 |
                               (message->retain ? 1 : 0));
    if (!begin(link, header, publish_length(message, with_topic))) {
        return false;
    }
    put_string(link, message->topic, with_topic ? message->topic_length : 0);
    if (message->qos) {
        put_u16(link, id);
    }
#if OW_ANSWERS
    if (message->correlation) { /* and no alias */
        uint8_t length = *message->correlation & 15;
        ow_carrier_put(link, 3 + length);
        ow_carrier_put(link, CORRELATION_DATA);
        put_string(link, (const char *)message->correlation + 1, length);
    } else
#endif
    if (message->alias) {
        ow_carrier_put(link, 3);
        ow_carrier_put(link, TOPIC_ALIAS);
        put_u16(link, message->alias);
    } else {
        ow_carrier_put(link, 0);
    }
    put_bytes(link, message->payload, message->size);
    return true;
}

bool ow_send_ack(ow_carrier *link, enum ow_packet_type type, uint16_t id, uint8_t reason)
{
    if (!begin(link, (uint8_t)(type << 4 | (type == OW_PUBREL ? 2 : 0)), reason ? 3 : 2)) {
        return false;
    }
    put_u16(link, id);
    if (reason) {
        ow_carrier_put(link, reason);
    }
    return true;
}

static bool send_filter(
    ow_carrier *link, uint8_t header, uint16_t id, const char *filter, uint8_t extra)
{
    uint16_t filter_length = (uint16_t)strlen(filter);
    if (!begin(link, header, (uint16_t)(2 + 1 + 2 + filter_length + extra))) {
        return false;
    }
    put_u16(link, id);
    ow_carrier_put(link, 0);
    put_string(link, filter, filter_length);
    return true;
}

bool ow_send_subscribe(ow_carrier *link, uint16_t id, const char *filter, uint8_t options)
{
    if (!send_filter(link, OW_SUBSCRIBE << 4 | 2, id, filter, 1)) {
        return false;
    }
    ow_carrier_put(link, options);
    return true;
}

bool ow_send_unsubscribe(ow_carrier *link, uint16_t id, const char *filter)
{
    return send_filter(link, OW_UNSUBSCRIBE << 4 | 2, id, filter, 0);
}

bool ow_send_pingreq(ow_carrier *link)
{
    return begin(link, OW_PINGREQ << 4, 0);
}

bool ow_send_disconnect(ow_carrier *link, uint8_t reason)
{
    if (!begin(link, OW_DISCONNECT << 4, reason ? 1 : 0)) {
        return false;
    }
    if (reason) {
        ow_carrier_put(link, reason);
    }
    return true;
}
