/*
 * The client, its board and the gateway together, over a line that may fail. One step is a
 * millisecond.
 *
 * The application of these tests publishes the journal's source as it is, on topic "t" with alias
 * 1, and counts the messages it gets.
 */
#ifndef WORLD_H
#define WORLD_H

#include "board.h"
#include "gateway.h"
#include "Onceway.h"

struct world {
    uint16_t lose, corrupt, insert; /* per 10,000 bytes, both ways */
    bool unplugged;
    uint8_t delay;          /* milliseconds from the device to the gateway */
    uint32_t produced;      /* highest sequence that the journal has taken */
    /* messages by their second byte since board_new; survive a power cut, as an effect in the world
     * does */
    uint32_t received[256];
    uint32_t lost[8];       /* calls of connection_lost by cause */
    uint8_t reason;         /* of the last one */
    uint8_t answers[16];    /* calls of answered by packet type */
    uint8_t answer;         /* reason of the last one */
    uint32_t releases;
    uint32_t refusals; /* times that the program was asked about one refused for good */
    bool drops;        /* its answer */
    uint32_t long_one; /* this sequence is longer than the gateway takes */
    uint8_t qos;            /* of publications, 2 at first */
    uint32_t connected;
    bool session_present;
    /* connections whose session may have begun after publications were released in an earlier
     * one */
    uint32_t doubtful;
    bool subscribe;
    bool any_message; /* they may look as they like; else they have two bytes */
    void (*obey)(const struct ow_message *command); /* what the program does with it; or NULL */
    bool reply; /* publish from inside message_received */
    uint8_t reply_qos;
    const struct ow_message *will;
    bool keeps_nothing; /* no recall_packet */
    uint8_t released[GATEWAY_SEQUENCES], answered[GATEWAY_SEQUENCES]; /* by packet identifier */
};

extern struct world world;
extern struct ow_mqtt client;

void world_new(void);
void world_boot(void);   /* the device starts */
void world_step(void);
void world_run(uint32_t milliseconds);

/* Steps until `condition` holds or `limit` milliseconds have passed; returns whether it holds. */
bool world_until(bool (*condition)(void), uint32_t limit);

void world_connect(void); /* a new device starts, and is connected */
void world_subscribe(void); /* the same, and its subscription is answered */
bool world_produce(void); /* one publication into the journal; false: not possible now */
enum ow_result world_publish(void); /* the same, as a program does it */
bool world_quiet(void);   /* everything produced is done */
bool world_online(void);

/* The gateway has this publication as the device made it, whatever became of it. */
void world_produced_as(uint32_t sequence);

/* Every publication that the device made was routed; `times` is how often at most. Returns how many
 * were routed more than once. */
uint32_t world_check(unsigned times);

#endif
