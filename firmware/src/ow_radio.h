/*
 * What the client asks of a board's radio (OW_LORA). Nothing here waits for the air. One frame at a
 * time: who has sent calls ow_radio_sent until it is true, then ow_radio_listen or ow_radio_sleep.
 */
#ifndef OW_RADIO_H
#define OW_RADIO_H

#include <stdbool.h>
#include <stdint.h>

/* What the identity page says of the radio. */
struct ow_radio_plan {
    uint8_t network;
    uint8_t device;   /* 1…254 */
    uint8_t factor;   /* spreading factor, 7…12 */
    uint8_t power;    /* dBm, 2…17 */
    uint16_t silence; /* so many times a frame's airtime nothing is sent after it */
    uint32_t channel; /* frequency in steps of 32 MHz / 2^19 */
};

/* Sets it up for this channel, asleep. False: there is none, or it does not answer. The rest may be
 * called all the same: it is tried again with each frame. */
bool ow_radio_begin(const struct ow_radio_plan *plan);

void ow_radio_send(const uint8_t *frame, uint8_t length);

/* The last symbol has left, or would have by now if the radio had done as it was told. */
bool ow_radio_sent(void);

void ow_radio_listen(void);

/* Copies a frame that was heard, with a CRC that was right; returns its length, 0: none. One that
 * is longer than `size` is dropped. */
uint8_t ow_radio_receive(uint8_t *frame, uint8_t size);

void ow_radio_sleep(void);

#endif
