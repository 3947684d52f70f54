/*
 * The client's state, for the library's own files: programs include Onceway.h. ow_mqtt.c keeps the
 * connection, ow_flow.c the packet identifiers.
 *
 *     STARTING --boot number written--> WAITING
 *
 *     WAITING --greet--> GREETING --link up--> OPENING --CONNECT--> CONNECTING --CONNACK-->
 *     CONNECTED
 *        ^------------------ link down, refusal, protocol error (after CLOSING), no answer ------|
 */
#ifndef OW_MQTT_H
#define OW_MQTT_H

#include <stdbool.h>
#include <stdint.h>

#include "ow_carrier.h"
#include "ow_config.h"
#include "ow_identity.h"
#include "ow_journal.h"
#include "ow_log.h"

struct ow_application;
struct ow_hal;

/* CONNACK must come within; by radio each turn gets an answer, or the link gives up */
#define OW_ANSWER_S (OW_LORA ? 3600 : 10)
#define OW_RETRY_S (OW_LORA ? 240 : 10) /* after a refusal */
#define OW_CLOSE_S (OW_LORA ? 60 : 2)   /* for a packet with the reason */
#define OW_ASK_TIME_S 3600              /* by radio, seconds between requests for the time */
#define OW_TRIES 6     /* refusals without a specific reason that count as final */
#define OW_SCRATCH 96  /* bytes for a payload that recall_packet makes */
#define OW_UPTIME_BIT 0x80000000ul

struct ow_flight {
    uint16_t id;
    ow_slot slot;
    uint8_t step;
};

/* The state of all packet identifiers. */
struct ow_ids {
    struct ow_flight out[OW_FLIGHTS];
    uint16_t fresh; /* publications from this identifier on were never sent */
    uint16_t in;    /* the gateway's packet identifier */
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
#if OW_SLOT_CHECK || OW_LOG_SIZE || OW_ANSWERS
    char logs[5]; /* "logs/": with the name after it, the topic of log lines and answers */
#endif
    char name[OW_NAME_MAX + 1];
    uint8_t state; /* enum ow_state */
    uint8_t polled; /* when, in 8 ms; low bits */
#if OW_DEBUG
    bool polling;
#endif
    bool session_present : 1;
    bool doubt : 1; /* the session may have begun after publications were released: ow_flow.c */
    bool ping_open;
#if OW_LORA
    bool radio; /* channel and settings from the identity page */
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
    uint32_t utc_at_start; /* UTC minus uptime, by the gateway's last time; 0: not known */
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
    /* refusals of the publication that is tried now, and connections that it ended */
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

#if OW_ANSWERS
    uint8_t answer[OW_JOURNAL_SOURCE]; /* ow_answer.h; its first byte is 0: none waits */
#endif

    /* the packet that is coming in */
    uint8_t header;
    uint8_t part; /* 0: before the fixed header, 1: before the Remaining Length, 2: in the rest */
    uint8_t remaining;
    uint8_t have;
    uint8_t packet[OW_MQTT_PACKET_SIZE];
};

#endif
