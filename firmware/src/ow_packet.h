/*
 * MQTT 5 packets. Encoders put a whole packet into the carrier and return false, having put nothing,
 * when it has no room; decoders read a packet's bytes after the fixed header and return a reason
 * code: 0 when well-formed, else why the connection must be closed.
 */
#ifndef OW_PACKET_H
#define OW_PACKET_H

#include <stdbool.h>
#include <stdint.h>

#include "Onceway.h" /* messages, types, reasons */
#include "ow_carrier.h"

struct ow_connect {
    const char *client_id;
    uint16_t keep_alive; /* seconds */
    bool clean_start;
    const struct ow_message *will; /* or NULL */
};

struct ow_connack {
    bool session_present;
    uint8_t reason;
    uint8_t maximum_qos;
    bool retain_available;
    uint16_t receive_maximum;
    uint16_t topic_alias_maximum;
    uint16_t keep_alive; /* the server's, else unchanged */
    uint16_t maximum_packet_size; /* 0xFFFF: this or more */
#if OW_ANSWERS
    const uint8_t *response, *correlation; /* of a PUBLISH, as in struct ow_message */
#endif
};

bool ow_send_connect(ow_carrier *link, const struct ow_connect *connect);

/* Whether its parts may fit into the link at all; the sizes below are of such messages. */
bool ow_message_fits(const struct ow_message *message);

/* with_topic: put the topic's name beside its alias. */
uint16_t ow_publish_size(const struct ow_message *message, bool with_topic);
bool ow_send_publish(
    ow_carrier *link, const struct ow_message *message, uint16_t id, bool with_topic);

bool ow_send_ack(ow_carrier *link, enum ow_packet_type type, uint16_t id, uint8_t reason);
bool ow_send_subscribe(ow_carrier *link, uint16_t id, const char *filter, uint8_t options);
bool ow_send_unsubscribe(ow_carrier *link, uint16_t id, const char *filter);
bool ow_send_pingreq(ow_carrier *link);
bool ow_send_disconnect(ow_carrier *link, uint8_t reason);

uint8_t ow_read_connack(const uint8_t *bytes, uint8_t length, struct ow_connack *connack);
uint8_t ow_read_publish(
    uint8_t flags, const uint8_t *bytes, uint8_t length, struct ow_message *message, uint16_t *id);

/* PUBACK, PUBREC, PUBREL, PUBCOMP; also SUBACK and UNSUBACK of one filter. */
uint8_t ow_read_ack(
    enum ow_packet_type type, const uint8_t *bytes, uint8_t length, uint16_t *id, uint8_t *reason);

#endif
