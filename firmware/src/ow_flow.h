/*
 * Packet identifiers of one connection after the other: publications of the journal outward, QoS 1 and 2 inward.
 *
 * Outward, QoS 2:   PUBLISH --PUBREC--> RELEASE -> (journal: released) -> PUBREL --PUBCOMP--> COMPLETE -> (journal: done)
 * Outward, QoS 1:   PUBLISH --PUBACK--> COMPLETE -> (journal: done)
 * After a reconnect the journal tells where to go on: PUBREL or PUBLISH with DUP if the session is present; else PUBLISH under the same
 * sequence, as if it were the first time.
 *
 * Inward, QoS 2, Method B: PUBLISH -> the program gets it -> (journal: hold) -> PUBREC; PUBREL -> (journal: let go) -> PUBCOMP.
 */
#ifndef OW_FLOW_H
#define OW_FLOW_H

#include "ow_mqtt.h"

void ow_flow_begin(struct ow_mqtt *client);   /* after the start */
void ow_flow_connect(struct ow_mqtt *client); /* CONNACK has come */
void ow_flow_advance(struct ow_mqtt *client); /* send what is due, as far as there is room */
bool ow_flow_settled(const struct ow_mqtt *client);

/* Sends a message within the gateway's limits: QoS and alias are lowered to what it takes. OW_TOO_LONG, OW_BUSY: nothing was sent. */
enum ow_result ow_flow_send(struct ow_mqtt *client, struct ow_message *message, uint16_t id);

/* The gateway's packets; what it must not send gives the reason code to close with, else OW_SUCCESS. */
uint8_t ow_flow_ack(struct ow_mqtt *client, enum ow_packet_type type, uint16_t id, uint8_t reason);
uint8_t ow_flow_publish(struct ow_mqtt *client, const struct ow_message *message, uint16_t id);

#endif
