#include <string.h>

#include "Onceway.h"
#include "ow_bytes.h"
#include "ow_flow.h"
#include "ow_hal.h"

/* bytes of the UART per call, so that a flood of noise does not starve the rest */
#define READ_AT_ONCE 128

/* of a poll, until the journal is open: the bytes of a boot cell take 14 */
#define START_MS 32

#if OW_LORA

static OW_ONE_COPY void begin_carrier(struct ow_mqtt *client)
{
    struct ow_radio_plan plan;
    client->radio = ow_identity_radio(&plan);
    if (client->radio) {
        ow_radio_begin(&plan); /* a memory that does not answer now may do so later */
    }
    ow_turn_init(&client->link, &plan, ow_hal_millis());
    ow_identity_read(client->name, client->link.key);
}

#else

static void begin_carrier(struct ow_mqtt *client)
{
    ow_link_init(&client->link);
#if OW_KEYS
    ow_identity_read(client->name, client->link.key);
#else
    ow_identity_read(client->name, NULL);
#endif
}

#endif

void ow_mqtt_begin(
    struct ow_mqtt *client, const struct ow_application *application, void *user)
{
    OW_CHECK_CALL();
    memset(client, 0, sizeof *client);
    client->application = application;
    client->user = user;
    client->state = OW_STARTING;
#if OW_SEVERAL_BOARDS
    ow_hal_use(client->hal = ow_hal_use(0));
#endif
#if OW_SLOT_CHECK || OW_LOG_SIZE || OW_ANSWERS
    memcpy(client->logs, "logs/", sizeof client->logs);
#endif
    begin_carrier(client);
    ow_journal_open(&client->journal);
    ow_flow_begin(client);
    ow_log_number(client, "start, cause", ow_hal_reset_cause());
}

/* --- the connection --- */

static OW_ONE_COPY void enter(struct ow_mqtt *client, enum ow_state state)
{
    client->state = state;
    client->since = (uint16_t)client->uptime;
}

static OW_ONE_COPY uint16_t elapsed(const struct ow_mqtt *client)
{
    return (uint16_t)((uint16_t)client->uptime - client->since);
}

static OW_ONE_COPY void tell_lost(struct ow_mqtt *client, enum ow_lost cause, uint8_t reason)
{
    ow_flow_lost(client);
    ow_log_number(client, "connection lost, cause", cause);
    if (reason) {
        ow_log_number(client, "reason", reason);
    }
    if (client->application->connection_lost) {
        client->application->connection_lost(client->user, cause, reason);
    }
}

static void lost(struct ow_mqtt *client, enum ow_lost cause, uint8_t reason, uint8_t wait)
{
    enter(client, OW_WAITING);
    client->wait = wait;
    tell_lost(client, cause, reason);
}

/* Ends the connection from our side without a DISCONNECT. */
static void give_up(struct ow_mqtt *client)
{
    ow_carrier_close(&client->link);
    lost(client, OW_LOST_NO_ANSWER, OW_SUCCESS, 0);
}

/* Sends the reason; the connection ends when the link has delivered it, or after a second. */
static void disconnect(struct ow_mqtt *client, uint8_t reason)
{
    ow_send_disconnect(&client->link, reason);
    enter(client, OW_CLOSING);
    tell_lost(client, OW_LOST_PROTOCOL, reason);
}

static void greet(struct ow_mqtt *client)
{
    enum ow_reset_cause cause = ow_hal_reset_cause();
#if OW_LORA
    struct ow_turn_greeting greeting = {
#else
    struct ow_greeting greeting = {
        .name = client->name,
#endif
        .boot = client->journal.boot,
        .incarnation = client->journal.incarnation,
        .next_sequence = client->journal.next,
        .power_on = cause == OW_RESET_POWER_ON || cause == OW_RESET_BROWN_OUT,
#if OW_KEYS || OW_LORA
        /* `attempt` comes again after 256 of them, the time does not */
        .entropy = ow_hal_entropy() + client->uptime,
#endif
    };
#if OW_LORA
    ow_turn_greet(&client->link, &greeting);
#else
    ow_link_greet(&client->link, &greeting);
#endif
    client->doubt = client->journal.asked;
    enter(client, OW_GREETING);
}

/* A client that keeps nothing has no session to continue [MQTT-3.1.2-4]. */
static bool begins_session(const struct ow_mqtt *client)
{
    return !client->journal.confirmed || !ow_flow_keeps(client);
}

/* A new device keeps its incarnation before it goes on. Until a session has begun under it, any
 * state that the gateway has for this name belongs to an earlier life: Clean Start. */
static void open(struct ow_mqtt *client)
{
    if (!ow_journal_idle(&client->journal)) {
        return;
    }
    if (client->journal.incarnation == 0) {
        ow_journal_adopt(&client->journal, client->link.incarnation);
        return;
    }
    if (client->journal.released && !client->journal.asked) {
        ow_journal_ask(&client->journal, true);
        return;
    }
    struct ow_connect connect = {
        .client_id = client->name,
        .keep_alive = OW_KEEP_ALIVE_S,
        .clean_start = begins_session(client),
        .will = client->application->will,
    };
    client->keep_alive = OW_KEEP_ALIVE_S;
    client->part = 0;
    if (ow_send_connect(&client->link, &connect)) {
        enter(client, OW_CONNECTING);
    } else { /* nothing else is in the link: it will never fit */
        ow_carrier_close(&client->link);
        lost(client, OW_LOST_TOO_LONG, OW_PACKET_TOO_LARGE, OW_RETRY_S);
    }
}

static uint8_t at_most_u8(uint16_t value, uint8_t limit)
{
    return value < limit ? (uint8_t)value : limit;
}

static void ask_time(struct ow_mqtt *client)
{
    ow_carrier_ask_time(&client->link);
#if OW_LORA
    client->time_asked = (uint16_t)client->uptime;
#endif
}

static uint8_t take_connack(struct ow_mqtt *client)
{
    struct ow_connack connack = {.keep_alive = client->keep_alive};
    uint8_t error = ow_read_connack(client->packet, client->have, &connack);
    if (error) {
        return error;
    }
    if (connack.reason) {
        ow_carrier_close(&client->link);
        lost(client, OW_LOST_REFUSED, connack.reason, OW_RETRY_S);
        return OW_SUCCESS;
    }
    if (connack.session_present && begins_session(client)) {
        return OW_PROTOCOL_ERROR; /* [MQTT-3.2.2-2] */
    }
    client->session_present = connack.session_present;
    client->receive_maximum = at_most_u8(connack.receive_maximum, OW_FLIGHTS);
    client->alias_maximum = at_most_u8(connack.topic_alias_maximum, 8);
    client->maximum_qos = connack.maximum_qos;
    client->retain_available = connack.retain_available;
    client->maximum_packet = connack.maximum_packet_size;
    client->keep_alive = connack.keep_alive;
    client->ping_open = false;
    ow_flow_connect(client);
    ow_log_connect(client);
    ow_log_number(client, "connected, session", client->session_present);
    enter(client, OW_CONNECTED);
    ask_time(client); /* it may be better than WELCOME's, which may have waited */
    client->application->connected(client->user, client->session_present);
    return OW_SUCCESS;
}

static void keep_alive(struct ow_mqtt *client)
{
#if OW_LORA /* each turn proves life, and each gets its answer */
    if ((uint16_t)((uint16_t)client->uptime - client->time_asked) >= OW_ASK_TIME_S) {
        ask_time(client); /* with the next turn */
    }
    if (client->keep_alive && elapsed(client) >= client->keep_alive / 2) {
        ow_turn_poll(&client->link);
        enter(client, OW_CONNECTED); /* since: now */
    }
#else
    if (client->keep_alive == 0 || elapsed(client) < client->keep_alive / 2) {
        return;
    }
    if (client->ping_open) {
        give_up(client);
    } else if (ow_send_pingreq(&client->link)) {
        client->ping_open = true;
        enter(client, OW_CONNECTED); /* since: now */
        ask_time(client);
    }
#endif
}

/* Updates the EEPROM after the answer to CONNECT. */
static void settle_session(struct ow_mqtt *client)
{
    struct ow_journal *journal = &client->journal;
    if (!journal->confirmed) {
        ow_journal_confirm(journal);
    } else if (journal->asked &&
               (journal->released == 0 || (client->session_present && !client->doubt))) {
        ow_journal_ask(journal, false);
    }
}

/* No sent packet waits for its acknowledgement. */
static bool is_drained(const struct ow_mqtt *client)
{
#if OW_LORA
    return client->link.used == 0;
#else
    return ow_link_drained(&client->link);
#endif
}

static void advance(struct ow_mqtt *client)
{
    switch (client->state) {
    case OW_WAITING:
        if (elapsed(client) >= client->wait) {
            greet(client);
        }
        break;
    case OW_OPENING:
        open(client);
        break;
    case OW_CONNECTING:
        if (elapsed(client) >= OW_ANSWER_S) {
            give_up(client);
        }
        break;
    case OW_CONNECTED:
        if (ow_journal_idle(&client->journal)) {
            settle_session(client);
        }
        ow_flow_advance(client);
        ow_log_advance(client);
        keep_alive(client);
        break;
    case OW_CLOSING:
        if (is_drained(client) || elapsed(client) >= OW_CLOSE_S) {
            ow_carrier_close(&client->link);
            enter(client, OW_WAITING);
            client->wait = 1;
        }
        break;
    default:
        break;
    }
}

/* --- packets that come in --- */

static uint8_t take_publish(struct ow_mqtt *client, uint8_t flags)
{
    struct ow_message message;
    uint16_t id;
    uint8_t error = ow_read_publish(flags, client->packet, client->have, &message, &id);
    return error ? error : ow_flow_publish(client, &message, id);
}

/* The identifier of a SUBSCRIBE is odd, that of an UNSUBSCRIBE even; both are far from every
 * publication in the journal. */
static uint16_t subscription_id(const struct ow_mqtt *client, enum ow_packet_type type)
{
    uint16_t id = (uint16_t)client->journal.next ^ 0x8000u;
    return type == OW_SUBSCRIBE ? id | 1 : (id | 3) - 1;
}

static uint8_t take_acknowledgement(struct ow_mqtt *client, enum ow_packet_type type)
{
    uint8_t reason;
    uint16_t id;
    uint8_t error = ow_read_ack(type, client->packet, client->have, &id, &reason);
    if (error) {
        return error;
    }
    if (type < OW_SUBSCRIBE) {
        return ow_flow_ack(client, type, id, reason);
    }
    if (id != client->ids.subscription || type != (id & 1 ? OW_SUBACK : OW_UNSUBACK)) {
        return OW_PROTOCOL_ERROR;
    }
    client->ids.subscription = 0;
    if (client->application->answered) {
        client->application->answered(client->user, type - 1, id, reason);
    }
    return OW_SUCCESS;
}

static uint8_t take_session_packet(struct ow_mqtt *client, uint8_t type, uint8_t flags)
{
    switch (type) {
    case OW_PUBLISH:
        return OW_SUBSCRIPTIONS ? take_publish(client, flags) : OW_PROTOCOL_ERROR;
    case OW_PUBACK:
    case OW_PUBREC:
    case OW_PUBREL:
    case OW_PUBCOMP:
    case OW_SUBACK:
    case OW_UNSUBACK:
        return take_acknowledgement(client, type);
    case OW_PINGRESP:
        if ((!OW_LORA && !client->ping_open) || client->have) { /* a turn without packets pings */
            return OW_PROTOCOL_ERROR;
        }
        client->ping_open = false;
        return OW_SUCCESS;
    default:
        return OW_PROTOCOL_ERROR;
    }
}

static uint8_t take_packet(struct ow_mqtt *client)
{
    uint8_t type = client->header >> 4;
    uint8_t flags = client->header & 15;
    if (type != OW_PUBLISH && flags != (type == OW_PUBREL ? 2 : 0)) {
        return OW_MALFORMED_PACKET; /* [MQTT-2.1.3-1] */
    }
    if (client->state == OW_CONNECTING) {
        return type == OW_CONNACK ? take_connack(client) : OW_PROTOCOL_ERROR;
    }
    if (type == OW_DISCONNECT) {
        uint8_t reason = client->have ? client->packet[0] : OW_SUCCESS;
        ow_carrier_close(&client->link);
        ow_flow_blame(client, reason);
        lost(client, OW_LOST_DISCONNECTED, reason, OW_RETRY_S);
        return OW_SUCCESS;
    }
    return take_session_packet(client, type, flags);
}

#if OW_LORA

/* An answer holds whole packets. */
static uint8_t take_whole(struct ow_mqtt *client, const uint8_t *packet, uint8_t length)
{
    client->have = (uint8_t)(length - 2);
    if (client->have > OW_MQTT_PACKET_SIZE - 2 || packet[1] != client->have) {
        return OW_PACKET_TOO_LARGE;
    }
    client->header = packet[0];
    memcpy(client->packet, packet + 2, client->have);
    return take_packet(client);
}

static void take_bytes(struct ow_mqtt *client, const uint8_t *bytes, uint8_t length)
{
    if (client->state == OW_CONNECTING || client->state == OW_CONNECTED) {
        uint8_t error = take_whole(client, bytes, length);
        if (error) {
            disconnect(client, error);
        }
    }
}

#else

static uint8_t take_byte(struct ow_mqtt *client, uint8_t byte)
{
    if (client->part == 0) {
        client->header = byte;
        client->part = 1;
        return OW_SUCCESS;
    }
    if (client->part == 1) {
        if (byte > OW_MQTT_PACKET_SIZE - 2) {
            return OW_PACKET_TOO_LARGE;
        }
        client->remaining = byte;
        client->have = 0;
        client->part = 2;
    } else {
        client->packet[client->have++] = byte;
    }
    if (client->have < client->remaining) {
        return OW_SUCCESS;
    }
    client->part = 0;
    return take_packet(client);
}

static void take_bytes(struct ow_mqtt *client, const uint8_t *bytes, uint8_t length)
{
    while (length-- && (client->state == OW_CONNECTING || client->state == OW_CONNECTED)) {
        uint8_t error = take_byte(client, *bytes++);
        if (error) {
            disconnect(client, error);
        }
    }
}

#endif

/* --- the event loop --- */

#if OW_LORA

/* Content of an answer: packets, the time, or invalid. */
static void take_stream(struct ow_mqtt *client)
{
    uint8_t length;
    const uint8_t *packet;
    while ((packet = ow_turn_packet(&client->link, &length))) {
        take_bytes(client, packet, length);
    }
    if (client->state == OW_CONNECTED) {
        enter(client, OW_CONNECTED); /* since: now */
    }
    if (client->link.utc_fresh) {
        client->link.utc_fresh = false;
        client->second = (uint16_t)(ow_hal_millis() - client->link.utc_part * 4u);
        client->utc_at_start = client->link.utc - client->uptime;
    }
}

static void take_down(struct ow_mqtt *client)
{
    switch (client->link.cause) {
    case OW_TURN_GATEWAY_GONE:
        lost(client, OW_LOST_GATEWAY_GONE, OW_SUCCESS, 0);
        break;
    case OW_TURN_PROTOCOL:
        lost(client, OW_LOST_PROTOCOL, OW_PROTOCOL_ERROR, OW_RETRY_S);
        break;
    default:
        lost(client, OW_LOST_NO_ANSWER, OW_SUCCESS, 0);
        break;
    }
}

static void take_event(struct ow_mqtt *client, enum ow_turn_event event)
{
    switch (event) {
    case OW_TURN_UP:
        if (client->link.utc) {
            client->utc_at_start = client->link.utc - client->uptime;
        }
        enter(client, OW_OPENING);
        break;
    case OW_TURN_DATA:
        take_stream(client);
        break;
    default:
        break;
    }
    /* also after an invalid answer, or one that used up the counter */
    if (client->link.state == OW_TURN_IDLE && client->state != OW_WAITING) {
        take_down(client);
    }
}

static void listen(struct ow_mqtt *client, uint16_t now)
{
    struct ow_turn *turn = &client->link;
    take_event(client, ow_turn_tick(turn, now));
    if (turn->phase == OW_TURN_SENDING) {
        if (ow_radio_sent()) {
            ow_turn_sent(turn, now);
            ow_radio_listen();
        }
    } else if (ow_turn_listens(turn)) {
        take_event(client, ow_turn_receive(turn, ow_radio_receive(turn->frame, OW_TURN_FRAME)));
    } else {
        ow_radio_sleep();
    }
}

static void speak(struct ow_mqtt *client, uint16_t now)
{
    (void)now;
    uint8_t length = client->radio ? ow_turn_send(&client->link) : 0;
    if (length) {
        ow_radio_send(client->link.frame, length);
    }
}

#else

/* An answer that waited is an old one. */
static bool take_answer(struct ow_mqtt *client)
{
    const uint8_t *answer = client->link.decoder.body + 1;
    if (elapsed(client)) {
        return false;
    }
    client->link.utc = ow_get_u32(answer);
    client->second = (uint16_t)(ow_hal_millis() - answer[4] * 4u); /* nearly 1000 / 256 */
    return true;
}

static void take_stream(struct ow_mqtt *client)
{
    uint8_t length;
    const uint8_t *bytes = ow_link_payload(&client->link, &length);
    take_bytes(client, bytes, length);
}

_Static_assert((uint8_t)OW_LOST_REFUSED == OW_LINK_REFUSED &&
                   (uint8_t)OW_LOST_GATEWAY_GONE == OW_LINK_GATEWAY_GONE &&
                   (uint8_t)OW_LOST_NO_ANSWER == OW_LINK_NO_ANSWER,
    "the link's causes are among the client's");

static void take_event(struct ow_mqtt *client, enum ow_link_event event)
{
    if ((event == OW_LINK_UP || (event == OW_LINK_TIME && take_answer(client))) &&
        client->link.utc) {
        client->utc_at_start = client->link.utc - client->uptime;
    }
    switch (event) {
    case OW_LINK_UP:
        enter(client, OW_OPENING);
        break;
    case OW_LINK_DATA:
        take_stream(client);
        break;
    case OW_LINK_DOWN:
        lost(client, (enum ow_lost)client->link.cause, 0,
            client->link.cause == OW_LINK_REFUSED ? OW_RETRY_S : 0);
        break;
    default:
        break;
    }
}

static void listen(struct ow_mqtt *client, uint16_t now)
{
    int16_t byte;
    take_event(client, ow_link_tick(&client->link, now));
    for (uint8_t i = 0; i < READ_AT_ONCE && (byte = ow_hal_uart_read()) >= 0; i++) {
        take_event(client, ow_link_receive(&client->link, (uint8_t)byte, now));
    }
}

static void speak(struct ow_mqtt *client, uint16_t now)
{
    int16_t byte;
    while (ow_hal_uart_writable() && (byte = ow_link_transmit(&client->link, now)) >= 0) {
        ow_hal_uart_write((uint8_t)byte);
    }
}

#endif

static void poll(struct ow_mqtt *client)
{
    uint16_t now = ow_hal_millis();
    uint8_t beat = (uint8_t)(now >> 3), spare = (uint8_t)(beat - client->polled) / 2;
    client->polled = beat;
    bool idle;
    while ((uint16_t)(now - client->second) >= 1000) {
        client->second = (uint16_t)(client->second + 1000);
        client->uptime++;
    }
    if (client->state == OW_STARTING) {
        spare |= START_MS; /* a program that always blocks until the reset has greeted, too */
    }
    do { /* a program that seldom polls would wait for each byte of the EEPROM */
        ow_hal_watch();
        ow_journal_poll(&client->journal);
        idle = ow_journal_idle(&client->journal);
    } while (!idle && (uint8_t)(ow_hal_millis() - now) < spare);
    if (client->state == OW_STARTING) {
        if (!idle) {
            return;
        }
        greet(client);
    }
    now = ow_hal_millis(); /* after the EEPROM's bytes: a radio's silence counts from here */
    listen(client, now);
    advance(client);
    speak(client, now);
}

void ow_mqtt_poll(struct ow_mqtt *client)
{
    OW_CHECK_CALL();
    OW_ON_BOARD_OF(client);
#if OW_DEBUG
    if (client->polling) { /* a call from a callback of the program */
        ow_hal_wrong_call();
    }
    client->polling = true;
    poll(client);
    client->polling = false;
#else
    poll(client);
#endif
}

void ow_mqtt_slept(struct ow_mqtt *client, uint32_t milliseconds)
{
    OW_CHECK_CALL();
    client->uptime += milliseconds / 1000;
    client->second = (uint16_t)(client->second - milliseconds % 1000);
}

/* --- calls of the program --- */

enum ow_result ow_mqtt_publish_source(struct ow_mqtt *client, const uint8_t *source)
{
    OW_CHECK_CALL();
    OW_ON_BOARD_OF(client);
    if (!ow_flow_keeps(client)) {
        return OW_CANNOT_KEEP;
    }
    if (ow_mqtt_busy(client)) {
        return OW_BUSY;
    }
    if (ow_journal_append(&client->journal, source)) {
        return OW_ACCEPTED;
    }
    return ow_flow_make_room(client) ? OW_BUSY : OW_FULL;
}

enum ow_result ow_mqtt_publish(struct ow_mqtt *client, const struct ow_message *message)
{
    OW_CHECK_CALL();
    OW_ON_BOARD_OF(client);
    const struct ow_application *application = client->application;
    uint8_t source[OW_JOURNAL_SOURCE];
    if (OW_PUBLICATIONS && message->qos && ow_flow_keeps(client)) {
        return application->save_packet && application->save_packet(client->user, message, source)
                   ? ow_mqtt_publish_source(client, source)
                   : OW_CANNOT_KEEP;
    }
    if (client->state != OW_CONNECTED) {
        return OW_OFFLINE;
    }
    struct ow_message copy = *message;
    return OW_PUBLICATIONS && message->qos ? ow_flow_send_once(client, &copy)
                                           : ow_flow_send(client, &copy, 0);
}

static bool may_subscribe(const struct ow_mqtt *client)
{
    return client->state == OW_CONNECTED && !client->ids.subscription;
}

bool ow_mqtt_subscribe(struct ow_mqtt *client, const char *filter, uint8_t options)
{
    OW_CHECK_CALL();
    uint16_t id = subscription_id(client, OW_SUBSCRIBE);
    if (!may_subscribe(client) || !ow_send_subscribe(&client->link, id, filter, options)) {
        return false;
    }
    client->ids.subscription = id;
    return true;
}

bool ow_mqtt_unsubscribe(struct ow_mqtt *client, const char *filter)
{
    OW_CHECK_CALL();
    uint16_t id = subscription_id(client, OW_UNSUBSCRIBE);
    if (!may_subscribe(client) || !ow_send_unsubscribe(&client->link, id, filter)) {
        return false;
    }
    client->ids.subscription = id;
    return true;
}

bool ow_mqtt_settled(const struct ow_mqtt *client)
{
    OW_CHECK_CALL();
#if OW_LORA /* a PUBREL goes only with the next publication, so it is not waited for */
    bool still = client->link.phase == OW_TURN_RESTING;
#else
    bool still = is_drained(client) && client->journal.released == 0;
#endif
    bool quiet = client->state != OW_CONNECTED || still;
    return quiet && ow_journal_idle(&client->journal) && ow_flow_settled(client);
}
