/*
 * A gateway in memory, for tests: the far end of the link and an MQTT 5 server with Delivery Method
 * B, just enough of both.
 *
 * Bytes of the device come in one by one, bytes for it go to `board.to_device` through
 * `gateway_line`. What a real gateway keeps on its disk survives gateway_kill; the link and the
 * connection do not.
 */
#ifndef GATEWAY_H
#define GATEWAY_H

#include <stdbool.h>
#include <stdint.h>

#include "ow_link.h"

enum { GATEWAY_SEQUENCES = 16384, GATEWAY_LOG = 64 };

struct gateway {
    bool running;
    uint32_t now;

    /* on disk */
    uint16_t boot;
    bool session; /* the MQTT session of the device */
    uint8_t held[8192]; /* inbound packet identifiers, a bit each */
    uint16_t routed[GATEWAY_SEQUENCES];  /* times that a publication was delivered, by sequence */
    uint8_t source[GATEWAY_SEQUENCES][8]; /* its payload */
    uint32_t incarnation; /* of the last HELLO or WELCOME */

    /* the link's session */
    bool linked;
    uint16_t handshake, device_boot;
    ow_check seed;
    uint8_t device_attempt, expected, sending;
    uint8_t welcome[OW_FRAME_WELCOME];
    uint32_t next_sequence;
    uint8_t out[1024], out_frame; /* stream to the device; bytes of it in flight */
    uint16_t out_length;
    uint32_t out_at; /* when the frame in flight was sent */
    uint8_t body[256], body_length, run, bad, started;
    uint32_t who_at;
    uint8_t time[5]; /* an answer that waits until `time_at` */
    uint32_t time_at; /* 0: none */

    /* the connection */
    bool connected, clean_start;
    bool ended; /* by our DISCONNECT: later packets are ignored */
    uint8_t packet[512];
    uint16_t packet_length;
    char topic[64]; /* of alias 1 */
    /* ids of publications between PUBLISH and PUBCOMP on this connection, in order of PUBLISH */
    uint16_t open[16];
    uint8_t open_count, most_open;
    uint16_t last_id; /* of PUBLISH on this connection, for the order */
    uint16_t recs[16]; /* PUBRECs sent and not answered by PUBREL, in order */
    uint8_t rec_count;
    /* a PUBLISH was refused, or a PUBREL unknown: that one may come again out of order */
    bool refused;

    /* a message for the device, at QoS 2 */
    uint16_t message_id; /* 0: none */
    bool message_received; /* PUBREC has come */
    const uint8_t *properties; /* of it, after their length; NULL: none */

    /* what the test wants */
    bool forget_session;   /* at the next CONNECT */
    bool lose_connack;     /* the next one, after all that CONNECT means was done */
    uint8_t refuse;        /* so many PUBLISH with `refuse_reason` */
    uint8_t refuse_reason; /* 0x97 at first */
    uint32_t poison;       /* this sequence is refused each time; 0: none */
    uint32_t poison_too;   /* and this one */
    bool poison_ends;      /* they are answered by DISCONNECT with `refuse_reason` */
    uint8_t alias_maximum;
    uint8_t receive_maximum; /* at most 16 */
    bool silent_pubrel;    /* PUBREL gets no answer */
    bool mute;             /* takes bytes and never answers */
    uint8_t maximum_qos;
    uint8_t maximum_packet;
    bool refuse_device;     /* in WELCOME */
    int32_t drift;          /* its clock goes so many millionths faster than the board's */
    bool tells_no_time;     /* no answer to TIME, as older gateways */
    uint32_t answers_late;  /* milliseconds that an answer to TIME waits */
    /* instead of the usual one, once; its length is its second byte plus 2 */
    const uint8_t *connack;

    /* what happened */
    uint32_t connects, publishes, dups, pubrels, unknown_pubrels, disconnects, subscribes,
        unsubscribes, pubacks;
    uint32_t ends; /* connections that it ended because of a poison */
    uint32_t asked_time; /* questions for the time */
    uint32_t qos0; /* publications at QoS 0 */
    uint32_t retained; /* publications with RETAIN */
    char log[GATEWAY_LOG][64]; /* lines on `logs/NAME` */
    unsigned log_lines;
    unsigned answers; /* at QoS 2 on `logs/NAME`, repetitions included */
    uint8_t answer[8]; /* payload of the last one */
    uint8_t beside[16]; /* its properties, after their length */
    uint16_t pubcomps[2]; /* by success and 0x92 */
    char will[16];
    uint8_t disconnect_reason;
};

extern struct gateway gateway;

/* Its clock: milliseconds since 1970. */
uint64_t gateway_utc_ms(void);

void gateway_new(void);
void gateway_start(void);
void gateway_kill(void);
void gateway_receive(uint8_t byte);
void gateway_tick(uint32_t now);

/* Sends `id` as a command at QoS 2, or goes on with it after a reconnect. */
void gateway_command(uint16_t id);

/* Any bytes on the connection. */
void gateway_send(const uint8_t *bytes, unsigned length);

/* The gateway closes the MQTT connection, as it would for an error of the client. */
void gateway_close(void);

/* Puts bytes on the line to the device; the test decides what arrives. */
void gateway_line(const uint8_t *bytes, unsigned length);

#endif
