#include "ow_flow.h"
#include "ow_answer.h"
#include "ow_lost.h"

/* Steps of an outgoing publication. */
enum {
    FREE,
    RETRACT,
    PUBLISH,
    PUBREL,
    PUBREL_AGAIN,
    WAIT_PUBACK,
    WAIT_PUBREC,
    WAIT_PUBCOMP,
    WAIT_PUBCOMP_AGAIN,
    RELEASE,
    DROP,
    COMPLETE,
    DONE
};

enum { ROUND_BITS = 12 }; /* 4,096 s */

#define SENT_ONCE ((ow_slot)-1) /* `slot` of a publication that is in no slot */

/* The incoming identifier: the answer that is due, and what is known of the id. HERE: it came on
 * this connection. */
enum { ANSWER = 0x07, HERE = 0x20, HELD = 0x40, UNSAVED = 0x80 };
enum { NO_ANSWER, PUBACK = OW_PUBACK, PUBREC, PUBCOMP_UNKNOWN, PUBCOMP };

_Static_assert(OW_FLIGHTS != 1 || OW_JOURNAL_MEMORY || sizeof(struct ow_ids) == 12,
               "the budget for the id state");

void ow_flow_begin(struct ow_mqtt *client)
{
    /* publications from before this start may have been sent */
    client->ids.fresh = (uint16_t)client->journal.next;
    client->ids.in = client->journal.held;
    client->ids.in_flags = client->journal.held ? HELD : 0;
}

/* Publications refused for good get another chance, except those before `begin`: such a publication
 * would end the connection again. */
static void begin_round(struct ow_mqtt *client)
{
    client->ids.cursor = client->before ? client->begin : client->journal.tail;
    client->kept = client->before;
    client->round = (uint8_t)(client->uptime >> ROUND_BITS);
}

void ow_flow_connect(struct ow_mqtt *client)
{
    struct ow_ids *ids = &client->ids;
    for (uint8_t i = 0; i < OW_FLIGHTS; i++) {
        ids->out[i].step = FREE;
    }
    ids->subscription = 0;
    client->aliases = 0;
    client->holding = false;
    begin_round(client);
    ids->in_flags &= HELD | UNSAVED; /* the gateway sends its packet again */
    if (!client->session_present && ids->in_flags & HELD) {
        ids->in_flags = UNSAVED; /* a new session may use the id for another message */
    }
}

/* --- outward --- */

static bool is_kept(const struct ow_flight *flight)
{
    return OW_PERSISTENCE || flight->slot != SENT_ONCE;
}

static uint8_t step_after_publish(uint8_t qos)
{
    return qos == 0 ? COMPLETE : qos == 1 ? WAIT_PUBACK : WAIT_PUBREC;
}

static bool was_sent(const struct ow_ids *ids, uint16_t id)
{
    return (int16_t)(id - ids->fresh) < 0;
}

OW_ONE_COPY enum ow_result ow_flow_send(struct ow_mqtt *client, struct ow_message *message, uint16_t id)
{
    if (message->alias > client->alias_maximum) {
        message->alias = 0;
    }
    if (message->qos > client->maximum_qos) {
        message->qos = client->maximum_qos;
    }
    message->retain = message->retain && client->retain_available;
    uint8_t bit = message->alias ? (uint8_t)(1u << (message->alias - 1)) : 0;
    bool with_topic = !(client->aliases & bit);
    uint16_t size = ow_publish_size(message, with_topic);
    if (!ow_message_fits(message) || size > client->maximum_packet || size > OW_SEND_SIZE) {
        return OW_TOO_LONG;
    }
    if (!ow_send_publish(&client->link, message, id, with_topic)) {
        return OW_BUSY;
    }
    client->aliases |= bit;
    return OW_ACCEPTED;
}

/* The next PUBLISH of this one is the first of a new flow, without DUP. */
static void begin_anew(struct ow_ids *ids, uint16_t id)
{
    if (OW_FLIGHTS == 1 || (uint16_t)(id + 1) == ids->fresh) {
        ids->fresh = id;
    }
}

static bool in_flight(const struct ow_ids *ids, ow_slot slot)
{
    for (uint8_t i = 0; i < OW_FLIGHTS; i++) {
        if (ids->out[i].step != FREE && ids->out[i].slot == slot) {
            return true;
        }
    }
    return false;
}

/* Whether another try would get the same answer. */
static bool is_final(struct ow_mqtt *client, uint8_t reason)
{
    switch (reason) {
    case OW_QUOTA_EXCEEDED:
        return false;
    case OW_NOT_AUTHORIZED:
    case OW_TOPIC_NAME_INVALID:
    case OW_PACKET_TOO_LARGE:
    case OW_PAYLOAD_FORMAT_INVALID:
        return true;
    default:
        return ++client->tries >= OW_TRIES;
    }
}

static void count_dropped(struct ow_mqtt *client)
{
    client->dropped += client->dropped != 0xFF;
}

static void set_aside(struct ow_mqtt *client, struct ow_flight *flight, uint8_t reason)
{
    const struct ow_application *application = client->application;
    client->tries = 0;
    if (application->refused && !application->refused(client->user, flight->id, reason)) {
        flight->step = DROP;
        count_dropped(client);
    } else if (!client->holding) { /* else the cursor is before it, and reaches it again */
        client->kept++;
    }
}

/* The gateway refused the publication. It stays in the journal and is published again as a new
 * flow: after a while, or in a later round. */
static void hold(struct ow_mqtt *client, struct ow_flight *flight, uint8_t reason)
{
    flight->step = FREE;
    if (client->application->answered) {
        client->application->answered(client->user, OW_PUBLISH, flight->id, reason);
    }
    if (!is_kept(flight)) {
        return;
    }
    begin_anew(&client->ids, flight->id);
    if (is_final(client, reason)) {
        set_aside(client, flight, reason);
    } else if (!client->holding) { /* the oldest that was refused */
        client->holding = true;
        client->held = (uint8_t)client->uptime;
        client->ids.cursor = flight->slot;
    }
}

/* Reasons caused by the packet itself, not by time, another client or a person. */
static bool blames_packet(uint8_t reason)
{
    return reason < OW_NOT_AUTHORIZED ||
           (reason >= OW_TOPIC_NAME_INVALID && reason <= OW_PACKET_TOO_LARGE);
}

void ow_flow_blame(struct ow_mqtt *client, uint8_t reason)
{
    for (uint8_t i = 0; i < OW_FLIGHTS && blames_packet(reason); i++) {
        struct ow_flight *flight = &client->ids.out[i];
        if ((flight->step == WAIT_PUBACK || flight->step == WAIT_PUBREC) && is_kept(flight)) {
            client->tries++;
            client->begin = flight->slot;
            client->before = client->kept;
            return;
        }
    }
}

/* The publication ended several connections in a row: later connections begin after it. */
static void pass_by(struct ow_mqtt *client, struct ow_flight *flight)
{
    flight->step = FREE;
    set_aside(client, flight, OW_UNSPECIFIED_ERROR);
    client->begin = client->ids.cursor;
    client->before = client->kept;
}

bool ow_flow_make_room(struct ow_mqtt *client)
{
    struct ow_entry oldest;
    if (!client->kept || !ow_journal_idle(&client->journal) ||
        !ow_journal_find(&client->journal, client->journal.tail, &oldest) ||
        in_flight(&client->ids, oldest.slot)) {
        return false;
    }
    ow_journal_done(&client->journal, oldest.slot, (uint16_t)oldest.sequence);
    client->kept--;
    client->before -= client->before != 0;
    count_dropped(client);
    return true;
}

static void publish(struct ow_mqtt *client, struct ow_flight *flight)
{
    struct ow_entry entry;
    struct ow_message message = {0};
    uint8_t scratch[OW_SCRATCH];
    struct ow_ids *ids = &client->ids;
    if (client->tries >= OW_TRIES) {
        pass_by(client, flight);
        return;
    }
    if (!ow_journal_find(&client->journal, flight->slot, &entry)) {
        return;
    }
    if (OW_SLOT_CHECK && entry.kind == OW_KIND_LOST) {
        ow_lost_packet(client, &message);
    } else if (OW_ANSWERS && entry.kind == OW_KIND_ANSWER) {
        ow_answer_packet(client, entry.source, &message);
    } else {
        client->application->recall_packet(client->user, &entry, &message, scratch);
    }
    message.dup = client->session_present && was_sent(ids, flight->id);
    enum ow_result result = ow_flow_send(client, &message, flight->id);
    if (result == OW_TOO_LONG) {
        hold(client, flight, OW_PACKET_TOO_LARGE);
    }
    if (result != OW_ACCEPTED) {
        return;
    }
    if (!was_sent(ids, flight->id)) {
        ids->fresh = (uint16_t)(flight->id + 1);
    }
    flight->step = step_after_publish(message.qos);
}

enum ow_result ow_flow_send_once(struct ow_mqtt *client, struct ow_message *message)
{
    struct ow_flight *out = client->ids.out;
    uint8_t used = 0;
    while (used < client->receive_maximum && out[used].step != FREE) {
        used++;
    }
    if (used == client->receive_maximum) {
        return OW_BUSY;
    }
    uint16_t id = (uint16_t)client->journal.next;
    enum ow_result result = ow_flow_send(client, message, id);
    if (result != OW_ACCEPTED) {
        return result;
    }
    out[used] =
        (struct ow_flight){.id = id, .slot = SENT_ONCE, .step = step_after_publish(message->qos)};
    ow_journal_skip(&client->journal);
    return OW_SENT_ONCE;
}

static void let_go(struct ow_mqtt *client, struct ow_flight *flight)
{
    flight->step = FREE;
    if (client->application->release_packet) {
        client->application->release_packet(client->user, flight->id);
    }
}

void ow_flow_lost(struct ow_mqtt *client)
{
    for (uint8_t i = 0; !OW_PERSISTENCE && i < OW_FLIGHTS; i++) {
        struct ow_flight *flight = &client->ids.out[i];
        if (flight->step == FREE || is_kept(flight)) {
            continue;
        }
        if (flight->step >= COMPLETE) {
            let_go(client, flight);
        } else {
            hold(client, flight, OW_UNSPECIFIED_ERROR);
        }
    }
}

/* Each step that touches the journal waits until it is idle; so PUBREL goes out after `released` is
 * in the EEPROM. */
static void advance_flight(struct ow_mqtt *client, struct ow_flight *flight)
{
    struct ow_journal *journal = &client->journal;
    if (!ow_journal_idle(journal)) {
        return;
    }
    switch (flight->step) {
    /* the session is gone: the answer to a later PUBREL would look like an accepted publication */
    case RETRACT:
        ow_journal_not_released(journal, flight->slot, flight->id);
        flight->step = PUBLISH;
        break;
    case PUBLISH:
        publish(client, flight);
        break;
    case RELEASE:
        if (is_kept(flight)) {
            ow_journal_released(journal, flight->slot, flight->id);
        }
        flight->step = PUBREL;
        break;
    case PUBREL:
    case PUBREL_AGAIN:
        if (ow_send_ack(&client->link, OW_PUBREL, flight->id, OW_SUCCESS)) {
            flight->step += WAIT_PUBCOMP - PUBREL;
        }
        break;
    case DROP:
    case COMPLETE:
        if (is_kept(flight)) {
            ow_journal_done(journal, flight->slot, flight->id);
        }
        flight->step = flight->step == DROP ? FREE : DONE;
        break;
    case DONE:
        let_go(client, flight);
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
    if (!ow_journal_idle(&client->journal)) {
        return;
    }
    do {
        if (!ow_journal_find(&client->journal, ids->cursor, &entry)) {
            return;
        }
        ids->cursor = ow_journal_following(entry.slot);
    } while (OW_FLIGHTS > 1 && in_flight(ids, entry.slot));
    flight->slot = entry.slot;
    flight->id = (uint16_t)entry.sequence;
    flight->step = PUBLISH;
    if (!entry.released && ow_journal_too_old(&client->journal, flight->id)) {
        flight->step = DROP;
        count_dropped(client);
    }
    if (entry.released) {
        flight->step = !client->session_present ? RETRACT : client->doubt ? PUBREL : PUBREL_AGAIN;
    }
}

/* The flights stand in the order of the journal, oldest first, and a younger one does not overtake
 * an older one that has something to send. */
static void advance_out(struct ow_mqtt *client)
{
    struct ow_flight *out = client->ids.out;
    uint8_t used = 0;
    for (uint8_t i = 0; i < OW_FLIGHTS && out[i].step != FREE; i++) {
        bool unsent = out[i].step < WAIT_PUBACK;
        advance_flight(client, &out[i]);
        if (unsent) {
            return;
        }
    }
    for (uint8_t i = 0; i < OW_FLIGHTS; i++) {
        if (out[i].step != FREE) {
            out[used] = out[i];
            if (used++ != i) {
                out[i].step = FREE;
            }
        }
    }
    if (client->holding && (uint8_t)((uint8_t)client->uptime - client->held) >= OW_RETRY_S) {
        client->holding = false;
    }
    /* If the connection broke, publications released in between would be uncertain, too: so one at a
     * time until the EEPROM has the outcome. */
    bool unsettled = OW_FLIGHTS > 1 && client->doubt && client->journal.asked;
    if (client->holding || used >= (unsettled ? 1 : client->receive_maximum)) {
        return;
    }
    if (client->journal.pending > used + client->kept) {
        take(client, &out[used]);
    } else if (client->kept && used == 0 &&
               client->round != (uint8_t)(client->uptime >> ROUND_BITS)) {
        client->tries = client->before ? OW_TRIES - 1 : 0;
        client->before = 0;
        begin_round(client);
    }
}

static uint8_t take_answer(struct ow_mqtt *client, uint16_t id, uint8_t step, uint8_t reason)
{
    for (uint8_t i = 0; i < OW_FLIGHTS; i++) {
        struct ow_flight *flight = &client->ids.out[i];
        uint8_t waits = flight->step == WAIT_PUBCOMP_AGAIN ? WAIT_PUBCOMP : flight->step;
        if (waits != step || flight->id != id) {
            continue;
        }
        if (reason < OW_UNSPECIFIED_ERROR || flight->step == WAIT_PUBCOMP_AGAIN) {
            if (step != WAIT_PUBCOMP) {
                client->tries = 0;
            }
            flight->step = step == WAIT_PUBREC ? RELEASE : COMPLETE;
        } else if (step == WAIT_PUBCOMP && is_kept(flight)) {
            begin_anew(&client->ids, id);
            flight->step = RETRACT;
        } else {
            hold(client, flight, reason);
        }
        return OW_SUCCESS;
    }
    return OW_PROTOCOL_ERROR; /* answers no packet of ours */
}

/* --- inward --- */

static void advance_in(struct ow_mqtt *client)
{
    struct ow_ids *ids = &client->ids;
    uint8_t answer = ids->in_flags & ANSWER;
    bool unknown = answer == PUBCOMP_UNKNOWN;
    if (!ow_journal_idle(&client->journal)) {
        return;
    }
    if (ow_answer_keep(client)) {
        return;
    }
    if (ids->in_flags & UNSAVED) {
        ow_journal_hold(&client->journal, ids->in_flags & HELD ? ids->in : 0);
        ids->in_flags &= (uint8_t)~UNSAVED;
    } else if (answer && ow_send_ack(&client->link, unknown ? OW_PUBCOMP : answer, ids->in,
                             unknown ? OW_ID_NOT_FOUND : OW_SUCCESS)) {
        ids->in_flags &= (uint8_t)~ANSWER;
    }
}

/* False: the gateway has not finished another message. An identifier held from an earlier
 * connection does not count: the gateway has forgotten it, or it would not send another message. */
static bool take_id(struct ow_ids *ids, uint16_t id, uint8_t flags)
{
    if (ids->in_flags & (HERE | ANSWER)) {
        return false;
    }
    if (ids->in_flags & HELD) {
        ids->in_flags = UNSAVED;
    }
    ids->in = id;
    ids->in_flags |= flags;
    return true;
}

static bool holds(const struct ow_ids *ids, uint16_t id)
{
    return ids->in_flags & HELD && ids->in == id;
}

uint8_t ow_flow_publish(struct ow_mqtt *client, const struct ow_message *message, uint16_t id)
{
    struct ow_ids *ids = &client->ids;
    if (message->qos) {
        /* a message that is sent again on a later connection has DUP [MQTT-3.3.1-1] */
        if (message->qos == 2 && holds(ids, id) && (message->dup || ids->in_flags & HERE)) {
            ids->in_flags |= HERE | PUBREC;
            return OW_SUCCESS;
        }
        if (!take_id(ids, id, message->qos == 1 ? PUBACK : HERE | HELD | UNSAVED | PUBREC)) {
            return OW_RECEIVE_MAXIMUM_EXCEEDED; /* we announced 1 [MQTT-3.3.4-9] */
        }
    }
    client->application->message_received(client->user, message);
    return OW_SUCCESS;
}

static uint8_t take_pubrel(struct ow_ids *ids, uint16_t id)
{
    if (holds(ids, id)) {
        ids->in_flags = UNSAVED | PUBCOMP;
    } else if (!take_id(ids, id, PUBCOMP_UNKNOWN)) {
        return OW_PROTOCOL_ERROR;
    }
    return OW_SUCCESS;
}

uint8_t ow_flow_ack(struct ow_mqtt *client, enum ow_packet_type type, uint16_t id, uint8_t reason)
{
    if (type == OW_PUBREL) {
        return OW_SUBSCRIPTIONS ? take_pubrel(&client->ids, id) : OW_PROTOCOL_ERROR;
    }
    if (!OW_PUBLICATIONS) {
        return OW_PROTOCOL_ERROR;
    }
    return take_answer(client, id,
        type == OW_PUBACK   ? WAIT_PUBACK
        : type == OW_PUBREC ? WAIT_PUBREC
                            : WAIT_PUBCOMP,
        reason);
}

void ow_flow_advance(struct ow_mqtt *client)
{
    if (OW_SUBSCRIPTIONS) {
        advance_in(client);
    }
    if (OW_PUBLICATIONS) {
        advance_out(client);
    }
}

bool ow_flow_settled(const struct ow_mqtt *client)
{
    bool settled = !(client->ids.in_flags & (UNSAVED | ANSWER)) && !ow_answer_waits(client);
    for (uint8_t i = 0; !OW_PERSISTENCE && i < OW_FLIGHTS; i++) {
        settled = settled && (client->ids.out[i].step == FREE || is_kept(&client->ids.out[i]));
    }
    return settled;
}
