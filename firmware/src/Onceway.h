/*
 * The library for programs in C and C++, which include this header alone. The other headers are
 * internal; ow_config.h has the sizes, ow_hal.h the functions that a board must offer.
 *
 * An MQTT 5 client for one gateway, over a serial line or by radio (OW_LORA). The program's loop
 * calls one function, which does not block. In: publications, and the functions of the board. Out:
 * the publications at the gateway, and the gateway's messages, at QoS 2 each exactly once, also after
 * power cuts.
 *
 * A publication at QoS 1 or 2 survives as its source: 8 bytes in the journal, from which the
 * program makes the packet whenever it must be sent. A publication that the gateway refuses for now
 * (its spool is full, a limit) stays in the journal and is tried again. A publication refused for
 * good (not authorized, too long) is set aside, and the next one is sent: see `refused`.
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
#include "ow_sensor.h" /* judges measurements */

/* --- messages, and callbacks of the program --- */

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
    /* of a command: MQTT 5's Response Topic and Correlation Data for its answer, each after a
     * byte with its length. NULL: none */
    const uint8_t *response, *correlation;
#endif
};

struct ow_entry {
    ow_slot slot;
    bool released; /* PUBREC has arrived */
    uint32_t sequence;
    uint8_t source[OW_JOURNAL_SOURCE];
    uint8_t kind; /* internal; not 0: the library's own packet replaces the publication */
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
    OW_LOST_GATEWAY_GONE, /* the gateway was restarted */
    OW_LOST_NO_ANSWER,    /* link or MQTT: the gateway is silent */
    OW_LOST_DISCONNECTED, /* the gateway ended the connection, with a reason */
    /* the gateway broke the protocol; the reason was sent to it */
    OW_LOST_PROTOCOL,
    /* CONNECT is longer than OW_LINK_TX_SIZE: the will is too long */
    OW_LOST_TOO_LONG,
};

/* Callbacks of the program. `user` is the argument of ow_mqtt_begin. Callbacks may publish and
 * subscribe. An optional one may be NULL. */
struct ow_application {
    /* (optional) Makes 8 bytes from which recall_packet can make `message` again. False: the
     * message cannot be kept. */
    bool (*save_packet)(void *user, const struct ow_message *message, uint8_t *source);
    /* Makes a journalled publication again: topic, payload, qos, retain, alias. `scratch` has
     * OW_SCRATCH bytes for the payload. (optional without OW_PUBLICATIONS, and without
     * OW_PERSISTENCE: each publication is then sent only once) */
    void (*recall_packet)(void *user, const struct ow_entry *entry, struct ow_message *message,
        uint8_t *scratch);
    /* (optional) The gateway has the publication: recall_packet is not called for it again. id: the
     * low 16 bits of its sequence. */
    void (*release_packet)(void *user, uint16_t id);
    /* There is a connection: subscribe here. Without a session present the gateway has no
     * subscriptions of the board; with one it has all subscriptions that it has answered. */
    void (*connected)(void *user, bool session_present);
    void (*connection_lost)(void *user, enum ow_lost cause, uint8_t reason); /* (optional) */
    /* A message has arrived. (optional without subscriptions) */
    void (*message_received)(void *user, const struct ow_message *message);
    /* (optional) OW_SUBSCRIBE, OW_UNSUBSCRIBE: the answer. OW_PUBLISH: the gateway refused this
     * publication for now. If the publication was sent only once, it is lost; the reason is
     * OW_UNSPECIFIED_ERROR if the gateway may have it. */
    void (*answered)(void *user, enum ow_packet_type to, uint16_t id, uint8_t reason);
    /* (optional; NULL: keep) The gateway has refused this publication for good. True: keep it; it
     * is tried again at each connection and about each hour, until its slot in the journal is
     * needed. False: drop it. */
    bool (*refused)(void *user, uint16_t id, uint8_t reason);
    const struct ow_message *will; /* (optional) */
};

/* --- the client --- */

enum ow_result {
    OW_ACCEPTED,
    /* the previous publication is still being written to the EEPROM, or there is no room in the
     * link: try again */
    OW_BUSY,
    OW_FULL,         /* the journal holds as many publications as it can */
    OW_OFFLINE,      /* no connection; messages at QoS 0 do not wait for one */
    OW_CANNOT_KEEP,  /* save_packet returned false, or is missing */
    /* sent, but not kept: `answered` reports if the connection is lost before the gateway has
     * it */
    OW_SENT_ONCE,
    OW_TOO_LONG,     /* longer than the gateway or the link's ring can take */
};

/**
 * Starts a client: reads its name and what the EEPROM holds. Call it once, in `setup`.
 *
 * @param client       all of its state; the caller keeps it
 * @param application  the program's functions; kept by address
 * @param user         first argument of each of them
 */
void ow_mqtt_begin(
    struct ow_mqtt *client, const struct ow_application *application, void *user);

/**
 * Does what is due: reads and writes the line, the EEPROM, the timers, and calls the program's
 * functions. Call it over and over, at least every 2 s: it starts the watchdog.
 *
 * A call does not wait while calls are less than 8 ms apart. In a slower loop it waits for the
 * bytes of the EEPROM that are due, 3.4 ms each, up to a sixteenth of the time since the previous
 * call: 62 ms with `delay(1000)` between calls, 127 ms at most. The first call of a start takes
 * 14 ms and sends a HELLO, so that the gateway hears of a sketch whose loop the watchdog resets each
 * time. A publication at QoS 2 takes 16 of those bytes and five calls. So frequent calls bring
 * publications to the gateway sooner, and lose fewer bytes of the line.
 */
void ow_mqtt_poll(struct ow_mqtt *client);

/**
 * Tells the client how long the board slept while its millisecond clock was stopped, as in
 * power-down. Call it after waking. The board may sleep whenever ow_mqtt_settled is true, and for any
 * time: a session that the gateway has ended in between is begun again.
 */
void ow_mqtt_slept(struct ow_mqtt *client, uint32_t milliseconds);

/**
 * Publishes a message. At QoS 0 it goes out at once or not at all. At QoS 1 and 2 it goes through
 * save_packet into the journal; without recall_packet (OW_PERSISTENCE 0) it is sent once. May be
 * called at any time after ow_mqtt_begin, also from the program's functions.
 *
 * @param message  read during the call only
 * @return OW_ACCEPTED or OW_SENT_ONCE, or why it was refused; at OW_BUSY and OW_FULL try again
 */
enum ow_result ow_mqtt_publish(struct ow_mqtt *client, const struct ow_message *message);

/**
 * Puts a publication into the journal by its source; recall_packet supplies QoS and the rest.
 *
 * @param source  OW_JOURNAL_SOURCE bytes, copied
 * @return OW_ACCEPTED; OW_BUSY: try again soon; OW_FULL: try again when the gateway has accepted
 *         some; OW_CANNOT_KEEP
 */
enum ow_result ow_mqtt_publish_source(struct ow_mqtt *client, const uint8_t *source);

#define OW_NO_RETAINED 0x20 /* send no retained messages at this subscription */

/**
 * Asks for messages. The answer comes to `answered`. Best called from `connected`.
 *
 * @param filter   one topic filter, closed by a zero; read during the call only
 * @param options  the QoS, and OW_NO_RETAINED
 * @return false: not connected, the previous request is not answered yet, or there is no room in
 *         the link; for a filter of more than OW_LINK_TX_SIZE - 8 characters there never is
 */
bool ow_mqtt_subscribe(struct ow_mqtt *client, const char *filter, uint8_t options);

/** Ends a subscription. Returns as ow_mqtt_subscribe. */
bool ow_mqtt_unsubscribe(struct ow_mqtt *client, const char *filter);

/**
 * @return whether nothing is under way: no write to the EEPROM, no answer due, nothing
 *         unacknowledged on the line, no PUBCOMP awaited. A good moment to restart
 */
bool ow_mqtt_settled(const struct ow_mqtt *client);

/** @return the device's name; empty if the board was never provisioned */
static inline const char *ow_mqtt_name(const struct ow_mqtt *client)
{
    OW_CHECK_CALL();
    return client->name;
}

/** @return the state of the connection: messages go both ways in OW_CONNECTED */
static inline enum ow_state ow_mqtt_state(const struct ow_mqtt *client)
{
    OW_CHECK_CALL();
    return (enum ow_state)client->state;
}

/** @return seconds since ow_mqtt_begin, including those reported by ow_mqtt_slept */
static inline uint32_t ow_mqtt_uptime(const struct ow_mqtt *client)
{
    OW_CHECK_CALL();
    return client->uptime;
}

/** @return whether the EEPROM is being written, so ow_mqtt_publish_source returns OW_BUSY */
static inline bool ow_mqtt_busy(const struct ow_mqtt *client)
{
    OW_CHECK_CALL();
    return client->state == OW_STARTING || !ow_journal_idle(&client->journal);
}

/** The health of a board. Counts begin at its start, and stop at their largest value. */
struct ow_health {
    uint32_t next_sequence; /* of the next publication; after a start, once ow_mqtt_busy is false */
    /* remaining publications until the cells reach the maker's limit of writes */
    uint32_t left;
    uint16_t boot;    /* number of this start */
    uint16_t broken;  /* frames that arrived damaged and were dropped */
    uint16_t repeats; /* times that frames were sent again */
    uint16_t pending; /* publications in the journal that the gateway has not acknowledged */
    uint8_t worn;     /* failed writes to EEPROM cells */
    /* publications that the gateway refused for good, both kept and dropped */
    uint8_t aside;
    bool memory_missing; /* OW_JOURNAL_MEMORY: it does not answer; no publication is accepted */
};

/** Fills in the board's present health. May be called at any time after ow_mqtt_begin. */
void ow_mqtt_health(const struct ow_mqtt *client, struct ow_health *health);

/**
 * Writes the application's own bytes and waits for the end: 3.4 ms for each that changes. May be
 * called at any time, also from message_received: a change by a message is then kept before the
 * gateway gets the acknowledgement. The bytes carry no checksum: add one.
 *
 * @return false: more than OW_JOURNAL_APPLICATION_SIZE, and nothing is written
 */
bool ow_journal_application(const uint8_t *bytes, uint8_t length);

/**
 * Reads the application's bytes from `at` on, of which the last two are the CRC of those before
 * (ow_crc of ow_crc.h). A bit that has changed at rest is changed back: in 3 to 6 bytes with their
 * CRC only one bit fits.
 *
 * @param bytes  has room for one more than `length`
 * @return false: the CRC does not match, also with each bit changed
 */
bool ow_journal_application_read(uint8_t *bytes, uint8_t at, uint8_t length);

/* --- time --- */

/**
 * @return the time now, to be kept in 4 bytes: UTC seconds modulo 2^31, or seconds since the start
 *         with OW_UPTIME_BIT set while UTC is not known
 */
uint32_t ow_mqtt_time(const struct ow_mqtt *client);

/**
 * @param time          as ow_mqtt_time gave it
 * @param utc_at_start  of the start in which the time was taken: `client->utc_at_start` for the
 *                      present start, 0 if unknown
 * @return UTC seconds, right until 2089; 0: not known
 */
uint32_t ow_mqtt_utc(uint32_t time, uint32_t utc_at_start);

/* The possible error of the client's time. The gateway sends the time at each connection and twice
 * per keep-alive time; in between the board counts by itself. For a time taken before the first one
 * arrived, UTC is computed from that first one, so a reading that is sent again has the same UTC. */
struct ow_clock {
    uint32_t utc_at_start; /* by the first time from the gateway, 0: none yet */
    uint32_t learnt;       /* uptime then */
    uint32_t told;         /* UTC seconds of the last time from the gateway */
    uint32_t told_at;      /* uptime then */
};

/** Checks for a new time from the gateway. Call it right after ow_mqtt_poll. */
void ow_clock_poll(struct ow_clock *clock, const struct ow_mqtt *client);

/**
 * @param time  as ow_mqtt_time gave it, in this start
 * @return UTC seconds; 0: not known yet
 */
uint32_t ow_clock_utc(const struct ow_clock *clock, uint32_t time);

/**
 * @return the possible error of ow_mqtt_time's UTC now, in seconds, either way. The gateway sends
 *         whole seconds, its answer takes less than one, and the board counts whole ones, too;
 *         since then the board's clock was off by one part in OW_CLOCK_PARTS at most
 */
uint32_t ow_clock_error(const struct ow_clock *clock, const struct ow_mqtt *client);

/** The same for a time with OW_UPTIME_BIT, whose UTC is computed from the gateway's first time. */
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
 * For message_received: whether a message on `commands/NAME` asks for the log. The log is then sent
 * as the link has room.
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
    OW_ANSWER_VALUE,  /* the value that the command asked for */
    OW_ANSWER_REFUSED /* and an enum ow_refusal; from 16 on they are the program's own */
};

enum ow_refusal {
    OW_REFUSAL_UNKNOWN = 1, /* there is no such command */
    OW_REFUSAL_RANGE,       /* its number is too small or too large */
    OW_REFUSAL_UNFIT,       /* this firmware, or this board, cannot do it */
    OW_REFUSAL_BUSY,        /* not now */
    OW_REFUSAL_WEAR,        /* the EEPROM would wear out: see the status */
};

#if OW_ANSWERS

/**
 * Answers a command, from message_received. The answer goes through the journal at QoS 2 and is
 * kept there before the gateway gets the acknowledgement of the command. It goes to `logs/NAME` with
 * the command's Correlation Data, as 8 bytes: answer:4 length:4 correlation[3] number:i32.
 *
 * Nothing is sent to a command without Response Topic, with a Response Topic other than
 * `logs/NAME`, or with more than 3 bytes of Correlation Data.
 *
 * @param command  as message_received got it
 * @param number   the value or the reason; ignored with OW_ANSWER_DONE
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
    /* possible error of the time in seconds, either way, written as "tu". The RFC does not define
     * that label; decoders skip unknown labels (section 4.4). 0: none is written */
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
