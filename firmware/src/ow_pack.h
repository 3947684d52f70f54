/*
 * Packed MQTT packets of radio links (gateway/links/lora/FORMAT.md, Content). A list of whole
 * packets in, the content of a TURN out; a TURN in, the packets that answer it out.
 */
#ifndef OW_PACK_H
#define OW_PACK_H

#include <stdbool.h>
#include <stdint.h>

enum { OW_PACK_DONE = 0x01, OW_PACK_TIME = 0x02, OW_PACK_MORE = 0x03 }; /* from the gateway */
enum { OW_PACK_ASK_TIME = 0x01 };                                       /* from the board */
#define OW_PACK_TIME_SIZE 6
#define OW_PACK_PLAIN 0x10 /* from here on, a first byte is that of an MQTT packet */

/* The bytes of the MQTT packet at the beginning; 0: it is not whole, or none. */
uint8_t ow_pack_size(const uint8_t *bytes, uint8_t length);

/* Packs a list of whole packets in place; returns the length of what is left, 0 for a PINGREQ
 * alone. */
uint8_t ow_pack_turn(uint8_t *bytes, uint8_t length);

/* The successes that answer a TURN, one after the other. */
struct ow_answers {
    const uint8_t *turn; /* its content, packed; the caller keeps it */
    uint8_t length;
    uint8_t at;
    bool half; /* the PUBREL in a packed PUBLISH is answered */
    bool any;  /* there was a packet */
};

#define OW_ANSWER_SIZE 4

/* Writes the next one; returns its length, 0: that was all. */
uint8_t ow_pack_answer(struct ow_answers *answers, uint8_t *packet);

#endif
