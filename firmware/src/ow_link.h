/*
 * The reliable link, device side (gateway/links/README.md). Bytes and milliseconds in, bytes and
 * events out; no I/O of its own.
 *
 *     IDLE --ow_link_greet--> GREETING --WELCOME--> OPEN        UP
 *     GREETING --refused--> IDLE, OPEN --WHO, 8 expiries--> IDLE  DOWN, with the cause in `cause`
 *
 * A session is one MQTT Network Connection: after DOWN or ow_link_close the owner greets again,
 * which is a new attempt.
 */
#ifndef OW_LINK_H
#define OW_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "ow_cmac.h"
#include "ow_frame.h"
#include "ow_config.h"

#define OW_LINK_VERSION (OW_KEYS ? 2 : 1)
#define OW_LINK_NAME_MAX 23
#define OW_LINK_RTO_FIRST_MS 250
#define OW_LINK_RTO_MIN_MS 60
#define OW_LINK_RTO_MAX_MS 1000
#define OW_LINK_EXPIRIES_MAX 8
#define OW_LINK_HELLO_FIRST_MS 250
#define OW_LINK_HELLO_MAX_MS 2000

enum ow_link_state { OW_LINK_IDLE, OW_LINK_GREETING, OW_LINK_OPEN };
enum ow_link_event { OW_LINK_NOTHING, OW_LINK_UP, OW_LINK_DATA, OW_LINK_DOWN, OW_LINK_TIME };
enum ow_link_cause { OW_LINK_CLOSED, OW_LINK_REFUSED, OW_LINK_GATEWAY_GONE, OW_LINK_NO_ANSWER };

/* The device's data in HELLO. */
struct ow_greeting {
    const char *name; /* at most OW_LINK_NAME_MAX characters */
    uint16_t boot;
    uint32_t incarnation; /* 0: none yet */
    uint32_t next_sequence;
    bool power_on; /* the last start was a power-on or a brown-out */
#if OW_KEYS
    uint32_t entropy; /* differs from start to start, also when the EEPROM was lost */
#endif
};

struct ow_link_counts {
    uint16_t broken;  /* frames dropped: COBS, CRC, size, type */
    uint16_t repeats; /* times that frames were sent again */
    uint16_t downs;   /* sessions lost: gave up or gateway gone */
};

struct ow_link {
    enum ow_link_state state;
    enum ow_link_cause cause;
    uint16_t boot;
    uint8_t attempt;
    uint32_t incarnation; /* of the greeting; once OPEN, the one that holds */

    /* from WELCOME */
    uint32_t utc; /* seconds, 0: not known; the owner takes newer ones from TIME */
    ow_check seed;
    uint8_t peer_mtu;
    uint8_t peer_window;

    /* sending: `ring` holds the frames in flight from `start` on, then bytes not yet cut into
     * frames */
    ow_size start;
    ow_size used;
    ow_size cut;                  /* bytes of `used` that are in frames */
    /* payload lengths of the frames in flight, by number modulo the window's power of two */
    uint8_t lengths[OW_LINK_WINDOW];
    uint8_t base;                    /* number of the oldest frame in flight */
    uint8_t flight;                  /* frames in flight */
    uint8_t sent;                    /* of them, sent since the last step back */
    bool repeated;                   /* a repeated acknowledgement of `base` was answered */
    bool hello_due;                  /* in a session: TIME is due */

    /* receiving */
    uint8_t payload_length;
    uint8_t expected;
    bool ack_due;

    /* timers, milliseconds modulo 2^16 */
    uint16_t timer_start;
    uint16_t timeout;
    bool timer_on;
    uint8_t expiries;
    uint16_t smoothed; /* round trip, 1/8 ms; 0: no sample yet */
    uint16_t variation; /* 1/4 ms */
    uint8_t timed;      /* number of the frame whose round trip is measured */
    bool timing;
    uint16_t timed_at;
    uint16_t random;

#if OW_KEYS
    uint8_t key[OW_KEY_SIZE]; /* of the identity page; the owner sets it before the first greeting */
#endif

    struct ow_link_counts counts;

    /* The large parts last: the fields above are then within the reach of an AVR's short
     * addressing. */
    struct ow_frame_encoder encoder;
    struct ow_frame_decoder decoder;
    uint8_t ring[OW_LINK_TX_SIZE];
};

void ow_link_init(struct ow_link *link);

/* Greets with a new attempt. Drops a session and all queued bytes. */
void ow_link_greet(struct ow_link *link, const struct ow_greeting *greeting);

/* Drops the session without a frame; the next HELLO informs the peer. */
void ow_link_close(struct ow_link *link);

/* One byte from the line. After OW_LINK_DATA, ow_link_payload gives the bytes of the MQTT stream
 * until the next call. */
enum ow_link_event ow_link_receive(struct ow_link *link, uint8_t byte, uint16_t now);
const uint8_t *ow_link_payload(const struct ow_link *link, uint8_t *length);

/* Asks the gateway for the time, once, without retransmission. Only while OPEN. At OW_LINK_TIME,
 * ow_link_payload gives OW_LINK_TIME_SIZE bytes: UTC seconds, and how many 1/256 of the next one
 * have passed. */
#define OW_LINK_TIME_SIZE 5
void ow_link_ask_time(struct ow_link *link);

/* Handles expired timers. */
enum ow_link_event ow_link_tick(struct ow_link *link, uint16_t now);

/* The next byte for the line, or -1. */
int16_t ow_link_transmit(struct ow_link *link, uint16_t now);

/* Room for bytes of the MQTT stream. Put no more than this, and only while OPEN. */
ow_size ow_link_room(const struct ow_link *link);
void ow_link_put(struct ow_link *link, uint8_t byte);

/* Everything that was put is acknowledged. */
bool ow_link_drained(const struct ow_link *link);

#endif
