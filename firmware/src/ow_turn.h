/*
 * The turn link of LoRa, board side (gateway/links/lora/README.md). Frames, MQTT packets and
 * milliseconds in; frames, MQTT packets and events out; no I/O of its own.
 *
 *     IDLE --ow_turn_greet--> GREETING --WELCOME--> OPEN      UP
 *     OPEN --WHO, 8 tries without an answer--> IDLE           DOWN, with the cause in `cause`
 *
 * A session is one MQTT Network Connection: after DOWN or ow_turn_close the owner greets again.
 * In each state one frame at most is under way:
 *
 *     RESTING --ow_turn_send--> SENDING --ow_turn_sent--> LISTENING --answer--> RESTING
 *                  ^                                         | nothing came
 *                  '---------- the law's silence, a wait --- WAITING
 *
 * The owner calls ow_turn_tick at least once a minute.
 */
#ifndef OW_TURN_H
#define OW_TURN_H

#include <stdbool.h>
#include <stdint.h>

#include "ow_ccm.h"
#include "ow_cmac.h"
#include "ow_config.h"
#include "ow_pack.h"
#include "ow_radio.h"

#define OW_TURN_FRAME (OW_TURN_MTU + OW_CCM_OVERHEAD)
#define OW_TURN_TRIES 8
#define OW_TURN_WINDOW_MS 1000u /* within it the gateway begins its answer */
#define OW_TURN_HELLO_FIRST_MS 4000ul
#define OW_TURN_HELLO_DOUBLINGS 8 /* then 17 min */

enum ow_turn_state { OW_TURN_IDLE, OW_TURN_GREETING, OW_TURN_OPEN };
enum ow_turn_phase { OW_TURN_RESTING, OW_TURN_SENDING, OW_TURN_LISTENING, OW_TURN_WAITING };
enum ow_turn_event { OW_TURN_NOTHING, OW_TURN_UP, OW_TURN_DATA, OW_TURN_DOWN };
enum ow_turn_cause {
    OW_TURN_CLOSED,
    OW_TURN_GATEWAY_GONE,
    OW_TURN_NO_ANSWER,
    OW_TURN_PROTOCOL, /* the gateway's answer was invalid */
    OW_TURN_WORN      /* the counter is used up */
};

struct ow_turn_greeting {
    uint16_t boot;
    uint32_t incarnation; /* 0: none yet */
    uint32_t next_sequence;
    bool power_on;    /* the last start was a power-on or a brown-out */
    uint32_t entropy; /* differs from start to start, also when the EEPROM was lost */
};

struct ow_turn_counts {
    uint16_t broken;  /* frames dropped: length, kind, tag, content */
    uint16_t repeats; /* frames sent again */
    uint16_t downs;   /* sessions lost */
};

struct ow_turn {
    enum ow_turn_state state;
    enum ow_turn_phase phase;
    enum ow_turn_cause cause;
    struct ow_radio_plan plan;
    uint16_t attempt;
    uint32_t incarnation; /* of the greeting; once OPEN, the one that holds */
    uint32_t utc;         /* seconds, from WELCOME or an answer; 0: not known */
    uint8_t utc_part;     /* 1/256 s */
    bool utc_fresh;       /* an answer had them */
    uint16_t counter;     /* of the TURN under way, or of the next one */
    uint8_t peer_mtu;

    uint8_t cut;    /* bytes of `queue` in the TURN under way, packed */
    uint8_t used;   /* of `queue` */
    bool ask_time;  /* in the next TURN */
    bool asks_time; /* in the TURN under way */
    bool turn_due;  /* though nothing that is put asks for it */
    uint8_t tries;  /* of the frame under way */
    uint8_t code[OW_CCM_TAG]; /* of the WHO that would answer it */

    /* the answer that is being read */
    uint8_t at;
    uint8_t length; /* 0: none */
    bool done;      /* the successes are being given out */
    struct ow_answers answers;
    uint8_t packet[OW_ANSWER_SIZE];

    uint16_t now;          /* of the last tick, milliseconds modulo 2^16 */
    uint32_t left;         /* ms of this phase */
    uint32_t silent;       /* ms in which the law forbids to send */
    uint16_t random;

    uint8_t key[OW_KEY_SIZE]; /* of the identity page; the owner sets it */
    uint8_t session[OW_KEY_SIZE];
    struct ow_turn_counts counts;
    uint8_t frame[OW_TURN_FRAME]; /* the one that is sent, or was heard */
    uint8_t queue[OW_TURN_QUEUE]; /* packets put; HELLO while it greets */
};

/* Silent at first, because it is not known what was sent before this start. */
void ow_turn_init(struct ow_turn *turn, const struct ow_radio_plan *plan, uint16_t now);

/* Greets with a new attempt. Drops a session and all that was put. */
void ow_turn_greet(struct ow_turn *turn, const struct ow_turn_greeting *greeting);
void ow_turn_close(struct ow_turn *turn);

/* Handles expired timers. */
enum ow_turn_event ow_turn_tick(struct ow_turn *turn, uint16_t now);

/* Length of the frame in `frame` that has to go on the air now, 0: none. Then ow_turn_sent, when
 * its last symbol has left. */
uint8_t ow_turn_send(struct ow_turn *turn);
void ow_turn_sent(struct ow_turn *turn, uint16_t now);

/* The radio must listen; else it may sleep. */
bool ow_turn_listens(const struct ow_turn *turn);

/* A frame of so many bytes was heard and lies in `frame`. After OW_TURN_DATA, ow_turn_packet gives
 * the packets until it gives NULL; only then may the next call follow. The session may be over
 * then, see `state`: the answer made no sense, or its counter was the last one. */
enum ow_turn_event ow_turn_receive(struct ow_turn *turn, uint8_t length);
const uint8_t *ow_turn_packet(struct ow_turn *turn, uint8_t *length);

/* Whole MQTT packets, only while OPEN and no more than there is room for. A PUBREL or another
 * acknowledgement waits for something else to be put, or for a second one. */
uint8_t ow_turn_room(const struct ow_turn *turn);
void ow_turn_put(struct ow_turn *turn, uint8_t byte);

/* Takes a turn although no packet needs one. */
void ow_turn_poll(struct ow_turn *turn);

/* Asks for the time with the next TURN. */
void ow_turn_ask_time(struct ow_turn *turn);

#endif
