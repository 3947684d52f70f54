/*
 * MQTT 5 client for one gateway over the reliable link, or by radio over the turn link (OW_LORA):
 * one event-loop call, nothing blocks.
 *
 * In: publications, bytes of the UART or frames of the radio, time. Out: the publications at the
 * gateway, and the gateway's messages, at QoS 2 each exactly once, power cuts included. ow_mqtt.c
 * keeps the connection, ow_flow.c the packet identifiers.
 *
 *     WAITING --greet--> GREETING --link up--> OPENING --CONNECT--> CONNECTING --CONNACK-->
 *     CONNECTED
 *        ^------------------ link down, refusal, protocol error (after CLOSING), no answer ------|
 *
 * A publication at QoS 1 or 2 survives as its source: 8 bytes in the journal, from which the
 * program makes the packet whenever it must be sent. What the gateway refuses for now (its spool is
 * full, a limit) stays in the journal and is tried again. What it refuses for good (it may not be
 * published, it is too long) is set aside, and the next one goes: see `refused`.
 */
#ifndef OW_MQTT_H
#define OW_MQTT_H

#include <stdbool.h>
#include <stdint.h>

#include "ow_config.h"
#include "ow_identity.h"
#include "ow_journal.h"
#include "ow_link.h" /* its causes, of which OW_LOST_… are made */
#include "ow_log.h"
#include "ow_packet.h"

/* CONNACK must come within; by radio each turn has its answer, or the link gives up */
#define OW_ANSWER_S (OW_LORA ? 3600 : 10)
#define OW_RETRY_S (OW_LORA ? 240 : 10) /* after a refusal */
#define OW_CLOSE_S (OW_LORA ? 60 : 2)   /* for what says why */
#define OW_ASK_TIME_S 3600              /* by radio, a turn asks for the time so often */
#define OW_TRIES 6     /* refusals for no stated reason that make a final one */
#define OW_SCRATCH 96  /* bytes for a payload that recall_packet makes */
#define OW_UPTIME_BIT 0x80000000ul

enum ow_state { OW_WAITING, OW_GREETING, OW_OPENING, OW_CONNECTING, OW_CONNECTED, OW_CLOSING };

enum ow_lost {
    /* the gateway does not know this device, or CONNACK with the reason */
    OW_LOST_REFUSED = OW_LINK_REFUSED,
    OW_LOST_GATEWAY_GONE = OW_LINK_GATEWAY_GONE, /* the gateway began a new life */
    OW_LOST_NO_ANSWER = OW_LINK_NO_ANSWER,       /* link or MQTT: the gateway is silent */
    OW_LOST_DISCONNECTED,                        /* by the gateway, with the reason */
    /* the gateway sent what it must not; the reason was sent to it */
    OW_LOST_PROTOCOL,
    /* CONNECT is longer than OW_LINK_TX_SIZE: the will is too long */
    OW_LOST_TOO_LONG,
};

/* What the client asks of the program. `user` is what the program gave to ow_mqtt_begin. Functions
 * may publish and subscribe. Those marked * may be left out (NULL). */
struct ow_application {
    /* Makes 8 bytes from which recall_packet can make `message` again. False: it cannot be kept.
     * * */
    bool (*save_packet)(void *user, const struct ow_message *message, uint8_t *source);
    /* Makes a journalled publication again: topic, payload, qos, retain, alias. `scratch` has
     * OW_SCRATCH bytes for the payload.
     * * without OW_PUBLICATIONS, and without OW_PERSISTENCE: publications are then sent once, and
     * never again */
    void (*recall_packet)(void *user, const struct ow_entry *entry, struct ow_message *message,
        uint8_t *scratch);
    /* The gateway has taken it over: recall_packet will not ask for this one again. id: the low 16
     * bits of its sequence. * */
    void (*release_packet)(void *user, uint16_t id);
    /* Subscriptions are made here: without a session present the gateway knows none, with one it
     * has all whose answer has come. */
    void (*connected)(void *user, bool session_present);
    void (*connection_lost)(void *user, enum ow_lost cause, uint8_t reason); /* * */
    /* * without subscriptions */
    void (*message_received)(void *user, const struct ow_message *message);
    /* OW_SUBSCRIBE, OW_UNSUBSCRIBE: the answer. OW_PUBLISH: the gateway refused this publication
     * for now; one that was sent once is lost, with OW_UNSPECIFIED_ERROR if it is not known whether
     * the gateway has it. * */
    void (*answered)(void *user, enum ow_packet_type to, uint16_t id, uint8_t reason);
    /* The gateway has refused this publication for good. True: keep it; it is tried again at each
     * connection and about each hour, until its slot in the journal is needed. False: drop it.
     * * left out: keep */
    bool (*refused)(void *user, uint16_t id, uint8_t reason);
    const struct ow_message *will; /* * */
};

struct ow_flight {
    uint16_t id;
    ow_slot slot;
    uint8_t step;
};

/* The state of all packet identifiers. */
struct ow_ids {
    struct ow_flight out[OW_FLIGHTS];
    uint16_t fresh; /* publications from this id on were never sent */
    uint16_t in;    /* the gateway's id */
    uint16_t subscription;
    uint8_t in_flags;
    ow_slot cursor; /* slot from which the next publication is taken */
};

struct ow_mqtt {
    const struct ow_application *application;
    void *user; /* for its functions */
#if OW_SEVERAL_BOARDS
    const struct ow_hal *hal; /* its board */
#endif
    ow_carrier link;
    struct ow_journal journal;
    struct ow_ids ids;
    char name[OW_NAME_MAX + 1];
    enum ow_state state;
    bool started; /* this start's boot number is in the EEPROM */
    bool session_present : 1;
    bool doubt : 1; /* it may have begun after publications were released: ow_flow.c */
    bool ping_open;
#if OW_LORA
    bool radio; /* the identity page says on which channel */
#endif
    uint8_t aliases; /* bit n: alias n + 1 is known to the gateway */

    /* the gateway's limits */
    uint8_t receive_maximum;
    uint8_t alias_maximum;
    uint8_t maximum_qos : 2;
    bool retain_available : 1;
    uint16_t maximum_packet;
    uint16_t keep_alive;

    /* time */
    uint32_t uptime;       /* seconds */
    uint32_t utc_at_start; /* UTC minus uptime, by the last time told; 0: not known */
    uint16_t second;       /* milliseconds when uptime last moved */
    /* low bits of uptime when the state was entered, or of the last PINGREQ */
    uint16_t since;
#if OW_LORA
    uint16_t time_asked; /* low bits of uptime */
#endif
    uint8_t wait;          /* seconds in OW_WAITING */
    uint8_t held;          /* low bits of uptime at the last refused publication, when `holding` */
    bool holding;

    /* publications that the gateway refused for good */
    /* refusals of the one that is tried now, and connections that ended by it */
    uint8_t tries;
    ow_slot kept;    /* before `ids.cursor` in the journal, to be tried in a later round */
    /* where the next connection begins its round, and how many of `kept` are before it; 0: none,
     * and it begins at the journal's tail */
    ow_slot begin, before;
    uint8_t round;   /* when this round began, high bits of uptime */
    uint8_t dropped; /* since the start; 255: or more */

#if OW_LOG_SIZE
    struct ow_log log;
#endif

    /* the packet that is coming in */
    uint8_t header;
    uint8_t part; /* 0: before the fixed header, 1: before the Remaining Length, 2: in the rest */
    uint8_t remaining;
    uint8_t have;
    uint8_t packet[OW_MQTT_PACKET_SIZE];
};

enum ow_result {
    OW_ACCEPTED,
    /* the last one is still being written to the EEPROM, or there is no room in the link: try
     * again */
    OW_BUSY,
    OW_FULL,         /* the journal holds as many publications as it can */
    OW_OFFLINE,      /* no connection, and QoS 0 does not wait for one */
    OW_CANNOT_KEEP,  /* save_packet said no, or there is none */
    /* sent, but not kept: if the connection is lost before the gateway has it, `answered` says
     * so */
    OW_SENT_ONCE,
    OW_TOO_LONG,     /* longer than the gateway or the link's ring can take */
};

/**
 * Starts a client: reads its name and what the EEPROM holds. Call it once, in `setup`.
 *
 * @param client       all of its state; the caller keeps it
 * @param application  the program's functions; kept by address
 * @param user         what each of them gets as its first argument
 */
void ow_mqtt_begin(
    struct ow_mqtt *client, const struct ow_application *application, void *user);

/**
 * Does what is due: reads and writes the line, the EEPROM, the timers, and calls the program's
 * functions. Call it over and over, at least every 2 s: it starts the watchdog. It never waits.
 */
void ow_mqtt_poll(struct ow_mqtt *client);

/**
 * Tells how long the board slept while its milliseconds stood still, as in power-down. Call it when
 * it has woken. It may sleep whenever ow_mqtt_settled says so, and for as long as it wants: a
 * session that the gateway has ended meanwhile is begun again.
 */
void ow_mqtt_slept(struct ow_mqtt *client, uint32_t milliseconds);

/**
 * @return the time now, to be kept in 4 bytes: UTC seconds modulo 2^31, or seconds since the start
 *         with OW_UPTIME_BIT set while UTC is not known
 */
uint32_t ow_mqtt_time(const struct ow_mqtt *client);

/**
 * @param time          as ow_mqtt_time gave it
 * @param utc_at_start  of the start in which it was kept: `client->utc_at_start` if it was this
 *                      one, 0 if that is not known
 * @return UTC seconds, right until 2089; 0: not known
 */
uint32_t ow_mqtt_utc(uint32_t time, uint32_t utc_at_start);

/**
 * Publishes a message. At QoS 0 it goes out at once or not at all. At QoS 1 and 2 it goes through
 * save_packet into the journal; without recall_packet (OW_PERSISTENCE 0) it is sent once. May be
 * called at any time after ow_mqtt_begin, also from the program's functions.
 *
 * @param message  read during the call only
 * @return OW_ACCEPTED or OW_SENT_ONCE, or why it was not taken; at OW_BUSY and OW_FULL try again
 */
enum ow_result ow_mqtt_publish(struct ow_mqtt *client, const struct ow_message *message);

/**
 * Puts a publication into the journal by its source; QoS and all else come from recall_packet.
 *
 * @param source  OW_JOURNAL_SOURCE bytes, copied
 * @return OW_ACCEPTED; OW_BUSY: try again soon; OW_FULL: when the gateway has taken some;
 *         OW_CANNOT_KEEP
 */
enum ow_result ow_mqtt_publish_source(struct ow_mqtt *client, const uint8_t *source);

/**
 * @return publications that the gateway has refused for good and that are kept, or were dropped
 *         since the start; 255: or more
 */
uint8_t ow_mqtt_aside(const struct ow_mqtt *client);

#define OW_NO_RETAINED 0x20 /* send no retained messages at this subscription */

/**
 * Asks for messages. The answer comes to `answered`. Best called from `connected`.
 *
 * @param filter   one topic filter, closed by a zero; read during the call only
 * @param options  the QoS, and OW_NO_RETAINED
 * @return false: not connected, the answer to the last one is still out, or there is no room in the
 *         link; a filter of more than OW_LINK_TX_SIZE - 8 characters never finds any
 */
bool ow_mqtt_subscribe(struct ow_mqtt *client, const char *filter, uint8_t options);

/** Ends a subscription; as ow_mqtt_subscribe. */
bool ow_mqtt_unsubscribe(struct ow_mqtt *client, const char *filter);

/**
 * @return nothing is under way: no write to the EEPROM, no answer due, nothing unacknowledged on
 *         the line, no PUBCOMP awaited. A good moment to restart
 */
bool ow_mqtt_settled(const struct ow_mqtt *client);

#endif
