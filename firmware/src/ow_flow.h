/*
 * Packet identifiers of one connection after the other: publications of the journal outward, QoS 1
 * and 2 inward.
 *
 * Outward, QoS 2:   PUBLISH --PUBREC--> RELEASE -> (journal: released) -> PUBREL --PUBCOMP-->
 *                   COMPLETE -> (journal: done)
 * Outward, QoS 1:   PUBLISH --PUBACK--> COMPLETE -> (journal: done)
 * After a reconnect the journal tells where to go on: PUBREL or PUBLISH with DUP if the session is
 * present; else PUBLISH under the same
 * sequence, as if it were the first time.
 *
 * Inward, QoS 2, Method B: PUBLISH -> the program gets it -> (journal: hold) -> PUBREC; PUBREL ->
 * (journal: let go) -> PUBCOMP.
 */
#ifndef OW_FLOW_H
#define OW_FLOW_H

#include "Onceway.h"
#include "ow_packet.h"

/* Publications are in the journal until they are done. Without recall_packet, which a program
 * without persistence may leave out, they are sent once: the client keeps their identifiers only,
 * and each connection begins a new session. */
static inline bool ow_flow_keeps(const struct ow_mqtt *client)
{
    return OW_PERSISTENCE || client->application->recall_packet;
}

void ow_flow_begin(struct ow_mqtt *client);   /* after the start */
void ow_flow_connect(struct ow_mqtt *client); /* CONNACK has arrived */
void ow_flow_advance(struct ow_mqtt *client); /* send what is due, as far as there is room */
/* the connection is over: reports publications that were sent once as lost */
void ow_flow_lost(struct ow_mqtt *client);
/* The gateway has ended the connection with this reason, perhaps because of the oldest unanswered
 * publication. After OW_TRIES times in a row that publication is set aside. */
void ow_flow_blame(struct ow_mqtt *client, uint8_t reason);
/* Frees the slot of the oldest publication that was refused for good, for the next one: false if
 * there is none. */
bool ow_flow_make_room(struct ow_mqtt *client);

bool ow_flow_settled(const struct ow_mqtt *client);

/* Sends a message within the gateway's limits: QoS and alias are lowered to them.
 * OW_TOO_LONG, OW_BUSY: nothing was sent. */
enum ow_result ow_flow_send(struct ow_mqtt *client, struct ow_message *message, uint16_t id);

/* The same at QoS 1 or 2 for a message that is not kept. OW_SENT_ONCE, OW_BUSY, OW_TOO_LONG. */
enum ow_result ow_flow_send_once(struct ow_mqtt *client, struct ow_message *message);

/* Take the gateway's packets. Return the reason code to close with if the packet is forbidden, else
 * OW_SUCCESS. */
uint8_t ow_flow_ack(struct ow_mqtt *client, enum ow_packet_type type, uint16_t id, uint8_t reason);
uint8_t ow_flow_publish(struct ow_mqtt *client, const struct ow_message *message, uint16_t id);

#endif
