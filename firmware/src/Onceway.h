/*
 * The library, for programs in C and in C++: this header is all that they include. The others in
 * this folder are the library's own; ow_config.h has its sizes, ow_hal.h what a board must offer.
 *
 * An MQTT 5 client for one gateway, over a serial line or by radio (OW_LORA): one call in the
 * program's loop, and nothing blocks. In: publications, and what the board offers. Out: the
 * publications at the gateway, and the gateway's messages, at QoS 2 each exactly once, power cuts
 * included.
 *
 * A publication at QoS 1 or 2 survives as its source: 8 bytes in the journal, from which the
 * program makes the packet whenever it must be sent. What the gateway refuses for now (its spool is
 * full, a limit) stays in the journal and is tried again. What it refuses for good (it may not be
 * published, it is too long) is set aside, and the next one goes: see `refused`.
 *
 * No function that takes a client, nor ow_journal_application, may be called from an interrupt, with
 * interrupts off, or from another thread than the one that polls. ow_mqtt_poll may not be called
 * from the program's functions that it calls. An interrupt sets a `volatile` flag, and the program's
 * loop looks at it. With OW_DEBUG=1 a wrong call stops the program, and the LED blinks.
 */
#ifndef ONCEWAY_H
#define ONCEWAY_H

#ifdef __cplusplus
extern "C" {
#endif

#include <stdbool.h>
#include <stdint.h>

#include "ow_bytes.h" /* integers in a source */
#include "ow_hal.h"   /* the board: ow_hal_idle, ow_hal_reset_cause and so on */
#include "ow_mqtt.h"  /* what struct ow_mqtt is made of */
#include "ow_sensor.h" /* whether a measurement counts */

/* --- messages, and what the program is asked for --- */

enum ow_packet_type {
    OW_CONNECT = 1,
    OW_CONNACK,
    OW_PUBLISH,
    OW_PUBACK,
    OW_PUBREC,
    OW_PUBREL,
    OW_PUBCOMP,
    OW_SUBSCRIBE,
    OW_SUBACK,
    OW_UNSUBSCRIBE,
    OW_UNSUBACK,
    OW_PINGREQ,
    OW_PINGRESP,
    OW_DISCONNECT,
};

enum ow_reason {
    OW_SUCCESS = 0x00,
    OW_UNSPECIFIED_ERROR = 0x80, /* from here on: errors */
    OW_MALFORMED_PACKET = 0x81,
    OW_PROTOCOL_ERROR = 0x82,
    OW_NOT_AUTHORIZED = 0x87,
    OW_TOPIC_NAME_INVALID = 0x90,
    OW_ID_NOT_FOUND = 0x92,
    OW_RECEIVE_MAXIMUM_EXCEEDED = 0x93,
    OW_TOPIC_ALIAS_INVALID = 0x94,
    OW_PACKET_TOO_LARGE = 0x95,
    OW_QUOTA_EXCEEDED = 0x97,
    OW_PAYLOAD_FORMAT_INVALID = 0x99,
};

struct ow_message {
    /* topic_length characters; not closed by a zero in a received message */
    const char *topic;
    const uint8_t *payload; /* size bytes */
    uint16_t topic_length;
    uint16_t size;
    uint8_t qos;
    bool retain;
    bool dup;
    /* to send: a number from 1 on that stands for this topic after its first use in a connection;
     * 0: none */
    uint8_t alias;
#if OW_ANSWERS
    /* of a command: where its answer is awaited (MQTT 5, Response Topic) and what to put beside it
     * (Correlation Data), behind a byte that tells their length. NULL: none */
    const uint8_t *response, *correlation;
#endif
};

struct ow_entry {
    ow_slot slot;
    bool released; /* PUBREC has come */
    uint32_t sequence;
    uint8_t source[OW_JOURNAL_SOURCE];
    uint8_t kind; /* for the library: not 0: what it is in place of the program's publication */
};

enum ow_state {
    OW_WAITING,
    OW_GREETING,
    OW_OPENING,
    OW_CONNECTING,
    OW_CONNECTED,
    OW_CLOSING,
    OW_STARTING /* this start's boot number is not yet in the EEPROM */
};

enum ow_lost {
    /* the gateway does not know this device, or CONNACK with the reason */
    OW_LOST_REFUSED = 1,
    OW_LOST_GATEWAY_GONE, /* the gateway began a new life */
    OW_LOST_NO_ANSWER,    /* link or MQTT: the gateway is silent */
    OW_LOST_DISCONNECTED, /* by the gateway, with the reason */
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

/* --- the client --- */

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
 * functions. Call it over and over, at least every 2 s: it starts the watchdog.
 *
 * A call waits for nothing while calls are less than 8 ms apart. In a slower loop it waits for the
 * bytes of the EEPROM that are due, 3.4 ms each, up to a sixteenth of the time since the call
 * before: 62 ms with `delay(1000)` between them, 127 ms at most. A publication at QoS 2 takes 16 of those bytes and five
 * calls; so the more often it is called, the sooner the gateway has what was published, and the
 * fewer bytes of the line are lost.
 */
void ow_mqtt_poll(struct ow_mqtt *client);

/**
 * Tells how long the board slept while its milliseconds stood still, as in power-down. Call it when
 * it has woken. It may sleep whenever ow_mqtt_settled says so, and for as long as it wants: a
 * session that the gateway has ended meanwhile is begun again.
 */
void ow_mqtt_slept(struct ow_mqtt *client, uint32_t milliseconds);

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

/** @return the device's name; empty if the board was never provisioned */
static inline const char *ow_mqtt_name(const struct ow_mqtt *client)
{
    OW_CHECK_CALL();
    return client->name;
}

/** @return how far the connection is: messages go both ways in OW_CONNECTED */
static inline enum ow_state ow_mqtt_state(const struct ow_mqtt *client)
{
    OW_CHECK_CALL();
    return (enum ow_state)client->state;
}

/** @return seconds since ow_mqtt_begin, those included that ow_mqtt_slept was told of */
static inline uint32_t ow_mqtt_uptime(const struct ow_mqtt *client)
{
    OW_CHECK_CALL();
    return client->uptime;
}

/** @return the EEPROM is being written, so ow_mqtt_publish_source would say OW_BUSY */
static inline bool ow_mqtt_busy(const struct ow_mqtt *client)
{
    OW_CHECK_CALL();
    return client->state == OW_STARTING || !ow_journal_idle(&client->journal);
}

/** How a board is. Counts begin with its start, and stop at the most that they can hold. */
struct ow_health {
    uint32_t next_sequence; /* of the next publication; after a start, once ow_mqtt_busy is false */
    /* publications that are left until the cells have had as many writes as their maker promises */
    uint32_t left;
    uint16_t boot;    /* number of this start */
    uint16_t broken;  /* frames that were dropped: damaged on the way */
    uint16_t repeats; /* times that frames were sent again */
    uint16_t pending; /* publications in the journal that the gateway has not taken over */
    uint8_t worn;     /* writes to the EEPROM that a cell did not take */
    /* publications that the gateway has refused for good, and that are kept, or were dropped */
    uint8_t aside;
    bool memory_missing; /* OW_JOURNAL_MEMORY: nobody answers on the bus, no publication is taken */
};

/** Tells how the board is now. May be called at any time after ow_mqtt_begin. */
void ow_mqtt_health(const struct ow_mqtt *client, struct ow_health *health);

/**
 * Writes the application's own bytes and waits for the end: 3.4 ms for each that changes. May be
 * called at any time, also from message_received: what a message changes is then kept before the
 * gateway hears that it came. They carry no check: add one.
 *
 * @return false: more than OW_JOURNAL_APPLICATION_SIZE, and nothing is written
 */
bool ow_journal_application(const uint8_t *bytes, uint8_t length);

/* --- time --- */

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

/* How far the time that the client tells may be wrong. The gateway tells it at each connection and
 * every half of the keep-alive time; between, the board counts by itself. UTC of times that were
 * kept before the gateway had told it is always the same one, however often a reading is sent. */
struct ow_clock {
    uint32_t utc_at_start; /* by the first time that the gateway told, 0: none yet */
    uint32_t learnt;       /* uptime then */
    uint32_t told;         /* UTC seconds that the gateway told last */
    uint32_t told_at;      /* uptime then */
};

/** Looks whether the gateway has told the time. Call it right after ow_mqtt_poll. */
void ow_clock_poll(struct ow_clock *clock, const struct ow_mqtt *client);

/**
 * @param time  as ow_mqtt_time gave it, in this start
 * @return UTC seconds; 0: not known yet
 */
uint32_t ow_clock_utc(const struct ow_clock *clock, uint32_t time);

/**
 * @return by how many seconds the UTC of ow_mqtt_time may be wrong now, either way: the gateway
 *         told whole seconds, its answer took less than one, ours are whole ones too; and since
 *         then the board's clock was wrong by one part of OW_CLOCK_PARTS at most
 */
uint32_t ow_clock_error(const struct ow_clock *clock, const struct ow_mqtt *client);

/** The same for a time with OW_UPTIME_BIT, whose UTC is reckoned back from the first one told. */
uint32_t ow_clock_error_before(const struct ow_clock *clock, uint32_t time);

/* --- a log for debugging, which `onceway device log NAME` reads (ow_log.h) --- */

#if OW_LOG_SIZE

/**
 * Adds a line. May be called at any time after ow_mqtt_begin, also from the program's functions.
 *
 * @param text  copied; closed by a zero
 */
void ow_log(struct ow_mqtt *client, const char *text);

/** Adds a line that ends with a space and a number. */
void ow_log_number(struct ow_mqtt *client, const char *text, int32_t number);

/**
 * For message_received: whether a message on `commands/NAME` asks for the log. It is then sent as
 * there is room in the link.
 */
bool ow_log_asked(struct ow_mqtt *client, const struct ow_message *message);

#else /* the calls cost nothing */

static inline void ow_log(struct ow_mqtt *client, const char *text)
{
    (void)client;
    (void)text;
}

static inline void ow_log_number(struct ow_mqtt *client, const char *text, int32_t number)
{
    (void)client;
    (void)text;
    (void)number;
}

static inline bool ow_log_asked(struct ow_mqtt *client, const struct ow_message *message)
{
    (void)client;
    (void)message;
    return false;
}

#endif

/* --- answers to commands, which `onceway device command NAME TEXT --wait` prints --- */

enum ow_answer {
    OW_ANSWER_DONE = 1,
    OW_ANSWER_VALUE,  /* what the command asked for */
    OW_ANSWER_REFUSED /* and an enum ow_refusal; from 16 on they are the program's own */
};

enum ow_refusal {
    OW_REFUSAL_UNKNOWN = 1, /* there is no such command */
    OW_REFUSAL_RANGE,       /* its number is too small or too large */
    OW_REFUSAL_UNFIT,       /* this firmware, or this board, cannot do it */
    OW_REFUSAL_BUSY,        /* not now */
    OW_REFUSAL_WEAR,        /* it would wear the memory out: see the status */
};

#if OW_ANSWERS

/**
 * Answers a command, from message_received. The answer goes through the journal at QoS 2 and is
 * kept there before the gateway hears that the command came. It goes to `logs/NAME` with the
 * command's Correlation Data, as 8 bytes: answer:4 length:4 correlation[3] number:i32.
 *
 * Nothing is sent to a command without Response Topic, with another one than `logs/NAME`, or with
 * more than 3 bytes of Correlation Data.
 *
 * @param command  as message_received got it
 * @param number   the value or the reason; without a meaning at OW_ANSWER_DONE
 */
void ow_mqtt_answer(struct ow_mqtt *client, const struct ow_message *command,
    enum ow_answer answer, int32_t number);

#else /* the calls cost nothing */

static inline void ow_mqtt_answer(struct ow_mqtt *client, const struct ow_message *command,
    enum ow_answer answer, int32_t number)
{
    (void)client;
    (void)command;
    (void)answer;
    (void)number;
}

#endif

/* --- SenML (RFC 8428) in its CBOR form, written record by record into a buffer --- */

/* number * 10^exponent, or number / 2^shift, exactly: -5.3 is {-53, -1}, and a thermometer's
 * sixteenths of a degree are {raw, 0, 4}. Written as an integer, a decimal fraction (CBOR tag 4),
 * or a 32-bit float. */
struct ow_senml_value {
    int32_t number;
    int8_t exponent;
    uint8_t shift; /* at most one of exponent and shift is not 0 */
};

struct ow_senml_record {
    /* in the first record: its base name is "DEVICE:" and channel; NULL in the others */
    const char *device;
    const char *channel; /* ending of the base name, or NULL */
    uint32_t base_time;  /* UTC seconds; 0: no base time */
    uint16_t offset;     /* seconds from the base time; 0: none is written */
    /* seconds by which the time may be wrong, either way, written as "tu", which is no label of the
     * RFC: who does not know it passes over it (section 4.4). 0: none is written */
    uint16_t time_error;
    const char *name;    /* e.g. "adc0", or NULL */
    const char *unit;    /* of the SenML registry, e.g. "V", or NULL */
    struct ow_senml_value value;
};

/**
 * Begins a pack.
 *
 * @param at       where to write
 * @param end      end of the buffer
 * @param records  how many will follow, at most 23
 * @return where to go on; NULL: there is no room, or there are too many
 */
uint8_t *ow_senml_pack(uint8_t *at, const uint8_t *end, uint8_t records);

/**
 * Writes one record.
 *
 * @param at      what the last call returned; NULL stays NULL, so look at the last result only
 * @param end     end of the buffer
 * @param record  texts of at most 127 characters
 * @return where to go on; NULL: there is no room, a text is too long, or the value cannot be
 *         written exactly
 */
uint8_t *ow_senml_record(
    uint8_t *at, const uint8_t *end, const struct ow_senml_record *record);

#ifdef __cplusplus
}
#endif

#endif
