#include "ow_flow.h"

/* Steps of an outgoing publication, in order. */
enum { FREE, RETRACT, PUBLISH, WAIT_PUBREC, RELEASE, PUBREL, WAIT_PUBCOMP, COMPLETE };

/* Steps of an incoming packet identifier. HELD: PUBREC was sent, PUBREL is awaited. */
enum { NONE, PUBACK, PUBREC, HELD, PUBCOMP, PUBCOMP_UNKNOWN };

_Static_assert(OW_FLIGHTS != 1 || sizeof(struct ow_ids) == 12, "the budget for the id state");

void ow_flow_begin(struct ow_mqtt *client)
{
    client->ids.fresh = (uint16_t)client->journal.next; /* what was journalled before this start may have been sent */
}

static void forget_flights(struct ow_ids *ids)
{
    for (uint8_t i = 0; i < OW_FLIGHTS; i++) {
        ids->out[i].step = FREE;
    }
}

void ow_flow_connect(struct ow_mqtt *client)
{
    struct ow_ids *ids = &client->ids;
    forget_flights(ids);
    ids->cursor = client->journal.tail;
    ids->subscription = 0;
    client->aliases = 0;
    if (!client->session_present || ids->in_step != HELD) {
        ids->in_step = NONE;
    }
}

/* --- outward --- */

static bool send_publication(struct ow_mqtt *client, const struct ow_flight *flight)
{
    struct ow_entry entry;
    struct ow_message message = {0};
    uint8_t scratch[OW_SCRATCH];
    if (!ow_journal_idle(&client->journal) || !ow_journal_find(&client->journal, flight->slot, &entry)) {
        return false;
    }
    client->application->recall_packet(&entry, &message, scratch);
    if (message.alias > client->alias_maximum) {
        message.alias = 0;
    }
    uint8_t bit = message.alias ? (uint8_t)(1u << (message.alias - 1)) : 0;
    bool with_topic = !(client->aliases & bit);
    message.dup = client->session_present && (int16_t)(flight->id - client->ids.fresh) < 0;
    if (!ow_send_publish(&client->link, &message, flight->id, with_topic)) {
        return false;
    }
    client->aliases |= bit;
    if ((int16_t)(flight->id - client->ids.fresh) >= 0) {
        client->ids.fresh = (uint16_t)(flight->id + 1);
    }
    return true;
}

static void advance_flight(struct ow_mqtt *client, struct ow_flight *flight)
{
    struct ow_journal *journal = &client->journal;
    bool idle = ow_journal_idle(journal);
    switch (flight->step) {
    case RETRACT: /* the session is gone: a later PUBREL would be answered as if the publication had been taken */
        if (idle) {
            ow_journal_not_released(journal, flight->slot, flight->id);
            flight->step = PUBLISH;
        }
        break;
    case PUBLISH:
        if (send_publication(client, flight)) {
            flight->step = WAIT_PUBREC;
        }
        break;
    case RELEASE:
        if (idle) {
            ow_journal_released(journal, flight->slot, flight->id);
            flight->step = PUBREL;
        }
        break;
    case PUBREL: /* after the mark is in the EEPROM */
        if (idle && ow_send_ack(&client->link, OW_PUBREL, flight->id, OW_SUCCESS)) {
            flight->step = WAIT_PUBCOMP;
        }
        break;
    case COMPLETE:
        if (idle) {
            ow_journal_done(journal, flight->slot, flight->id);
            flight->step = FREE;
        }
        break;
    default:
        break;
    }
}

/* Takes the next publication of the journal into `flight`. */
static void take(struct ow_mqtt *client, struct ow_flight *flight)
{
    struct ow_entry entry;
    struct ow_ids *ids = &client->ids;
    if (!ow_journal_idle(&client->journal) || !ow_journal_find(&client->journal, ids->cursor, &entry)) {
        return;
    }
    ids->cursor = ow_journal_following(entry.slot);
    flight->slot = entry.slot;
    flight->id = (uint16_t)entry.sequence;
    flight->step = PUBLISH;
    if (entry.released) {
        flight->step = client->session_present ? PUBREL : RETRACT;
    }
}

static void advance_out(struct ow_mqtt *client)
{
    uint8_t used = 0;
    struct ow_flight *unused = 0;
    for (uint8_t i = 0; i < OW_FLIGHTS; i++) {
        struct ow_flight *flight = &client->ids.out[i];
        advance_flight(client, flight);
        if (flight->step == FREE) {
            unused = flight;
        } else {
            used++;
        }
    }
    if (client->holding && (uint16_t)((uint16_t)client->uptime - client->held) >= OW_RETRY_S) {
        client->holding = false;
    }
    if (unused && !client->holding && used < client->receive_maximum && client->journal.pending > used) {
        take(client, unused);
    }
}

static struct ow_flight *find_flight(struct ow_mqtt *client, uint16_t id, uint8_t step)
{
    for (uint8_t i = 0; i < OW_FLIGHTS; i++) {
        struct ow_flight *flight = &client->ids.out[i];
        if (flight->step == step && flight->id == id) {
            return flight;
        }
    }
    return 0;
}

/* The gateway did not take it: it stays in the journal and is published again, as a new flow, after a while. */
static void hold(struct ow_mqtt *client, struct ow_flight *flight)
{
    client->holding = true;
    client->held = (uint16_t)client->uptime;
    client->ids.cursor = flight->slot;
    client->ids.fresh = flight->id;
    flight->step = FREE;
}

/* --- inward --- */

static void advance_in(struct ow_mqtt *client)
{
    struct ow_ids *ids = &client->ids;
    struct ow_link *link = &client->link;
    switch (ids->in_step) {
    case PUBACK:
        if (ow_send_ack(link, OW_PUBACK, ids->in_id, OW_SUCCESS)) {
            ids->in_step = NONE;
        }
        break;
    case PUBREC:
        if (ow_send_ack(link, OW_PUBREC, ids->in_id, OW_SUCCESS)) {
            ids->in_step = HELD;
        }
        break;
    case PUBCOMP:
    case PUBCOMP_UNKNOWN:
        if (ow_send_ack(link, OW_PUBCOMP, ids->in_id, ids->in_step == PUBCOMP ? OW_SUCCESS : OW_ID_NOT_FOUND)) {
            ids->in_step = NONE;
        }
        break;
    default:
        break;
    }
}

uint8_t ow_flow_publish(struct ow_mqtt *client, const struct ow_message *message, uint16_t id)
{
    struct ow_ids *ids = &client->ids;
    bool again = message->qos == 2 && ids->in_step == HELD && ids->in_id == id;
    if (message->qos && ids->in_step != NONE && !again) {
        return OW_RECEIVE_MAXIMUM_EXCEEDED; /* we announced 1 */
    }
    if (message->qos) {
        ids->in_id = id;
        ids->in_step = message->qos == 1 ? PUBACK : PUBREC;
    }
    if (!again) {
        client->application->message_received(message);
    }
    return OW_SUCCESS;
}

static uint8_t take_pubrel(struct ow_ids *ids, uint16_t id)
{
    if (ids->in_step == HELD && ids->in_id == id) {
        ids->in_step = PUBCOMP;
    } else if (ids->in_step == NONE) {
        ids->in_id = id;
        ids->in_step = PUBCOMP_UNKNOWN;
    } else {
        return OW_PROTOCOL_ERROR;
    }
    return OW_SUCCESS;
}

uint8_t ow_flow_ack(struct ow_mqtt *client, enum ow_packet_type type, uint16_t id, uint8_t reason)
{
    struct ow_flight *flight;
    if (type == OW_PUBREL) {
        return take_pubrel(&client->ids, id);
    }
    flight = find_flight(client, id, type == OW_PUBCOMP ? WAIT_PUBCOMP : WAIT_PUBREC);
    if (!flight) {
        return type == OW_PUBREC ? OW_SUCCESS : OW_PROTOCOL_ERROR;
    }
    if (type != OW_PUBCOMP && reason >= 0x80) {
        hold(client, flight);
    } else {
        flight->step = type == OW_PUBREC ? RELEASE : COMPLETE; /* PUBCOMP 0x92 too: the PUBREC was the gateway's promise */
    }
    return OW_SUCCESS;
}

void ow_flow_advance(struct ow_mqtt *client)
{
    advance_in(client);
    advance_out(client);
}
