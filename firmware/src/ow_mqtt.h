/*
 * MQTT 5 client for one gateway over the reliable link: one event-loop call, nothing blocks.
 *
 * In: publications from the journal, bytes of the UART, time. Out: the same publications at the gateway, each exactly once, and the
 * messages of the gateway, each at QoS 2 once. ow_mqtt.c keeps the connection, ow_flow.c the packet identifiers.
 *
 *     WAITING --greet--> GREETING --link up--> OPENING --CONNECT--> CONNECTING --CONNACK--> CONNECTED
 *        ^------------------ link down, refusal, protocol error (after CLOSING), no answer ------|
 */
#ifndef OW_MQTT_H
#define OW_MQTT_H

#include <stdbool.h>
#include <stdint.h>

#include "ow_identity.h"
#include "ow_journal.h"
#include "ow_link.h"
#include "ow_packet.h"
#include "ow_sizes.h"

#define OW_KEEP_ALIVE_S 60
#define OW_ANSWER_S 10  /* CONNACK must come within */
#define OW_RETRY_S 10   /* after a refusal */
#define OW_SCRATCH 64   /* bytes that the application may use for a payload */
#define OW_UPTIME_BIT 0x80000000ul

enum ow_state { OW_WAITING, OW_GREETING, OW_OPENING, OW_CONNECTING, OW_CONNECTED, OW_CLOSING };

enum ow_lost {
    OW_LOST_REFUSED = OW_LINK_REFUSED,           /* the gateway does not know this device, or CONNACK with the reason */
    OW_LOST_GATEWAY_GONE = OW_LINK_GATEWAY_GONE, /* the gateway began a new life */
    OW_LOST_NO_ANSWER = OW_LINK_NO_ANSWER,       /* link or MQTT: the gateway is silent */
    OW_LOST_DISCONNECTED,                        /* by the gateway, with the reason */
    OW_LOST_PROTOCOL,                            /* the gateway sent what it must not; the reason was sent to it */
};

/* What the client asks of the program. Every function is there. */
struct ow_application {
    /* Makes the packet of a journalled publication: topic, payload, qos, retain, alias. `scratch` has OW_SCRATCH bytes for the payload. */
    void (*recall_packet)(const struct ow_entry *entry, struct ow_message *message, uint8_t *scratch);
    /* Subscriptions are made here; without a session present the gateway knows none. */
    void (*connected)(bool session_present);
    void (*connection_lost)(enum ow_lost cause, uint8_t reason);
    void (*message_received)(const struct ow_message *message);
};

struct ow_flight {
    uint16_t id;
    uint8_t slot;
    uint8_t step;
};

/* The state of all packet identifiers. */
struct ow_ids {
    struct ow_flight out[OW_FLIGHTS];
    uint16_t fresh;  /* publications from this id on were never sent */
    uint16_t in_id;  /* the gateway's id, when in_step says so */
    uint16_t subscription;
    uint8_t in_step;
    uint8_t cursor;  /* slot from which the next publication is taken */
};

struct ow_mqtt {
    const struct ow_application *application;
    struct ow_link link;
    struct ow_journal journal;
    struct ow_ids ids;
    char name[OW_NAME_MAX + 1];
    enum ow_state state;
    bool started;          /* this start's boot number is in the EEPROM */
    bool session_present;
    bool ping_open;
    uint8_t aliases;       /* bit n: alias n + 1 is known to the gateway */

    /* the gateway's limits */
    uint8_t receive_maximum;
    uint8_t alias_maximum;
    uint8_t maximum_qos;
    uint16_t maximum_packet;
    uint16_t keep_alive;

    /* time */
    uint32_t uptime;       /* seconds */
    uint32_t utc_at_start; /* 0: not known */
    uint16_t second;       /* milliseconds when uptime last moved */
    uint16_t since;        /* low bits of uptime when the state was entered, or of the last PINGREQ */
    uint16_t wait;         /* seconds in OW_WAITING */
    uint16_t held;         /* low bits of uptime at the last refused publication, when `holding` */
    bool holding;

    /* the packet that is coming in */
    uint8_t header;
    uint8_t part; /* 0: before the fixed header, 1: before the Remaining Length, 2: in the rest */
    uint8_t remaining;
    uint8_t have;
    uint8_t packet[OW_MQTT_PACKET_SIZE];
};

void ow_mqtt_begin(struct ow_mqtt *client, const struct ow_application *application);

/* Call this over and over. */
void ow_mqtt_poll(struct ow_mqtt *client);

/* UTC seconds, or seconds since the start with OW_UPTIME_BIT set while UTC is not known. */
uint32_t ow_mqtt_time(const struct ow_mqtt *client);

/* Sends SUBSCRIBE for one filter. False: not connected, no room, or the answer to the last one is still out. */
bool ow_mqtt_subscribe(struct ow_mqtt *client, const char *filter, uint8_t qos);

#endif
