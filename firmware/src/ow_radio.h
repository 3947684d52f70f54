/*
 * The functions of a board's radio for the client (OW_LORA). None waits for the air. One frame at a
 * time: after sending, call ow_radio_sent until it is true, then ow_radio_listen or ow_radio_sleep.
 */
#ifndef OW_RADIO_H
#define OW_RADIO_H

#include <stdbool.h>
#include <stdint.h>

/* The radio settings of the identity page. */
struct ow_radio_plan {
    uint8_t network;
    uint8_t device;   /* 1…254 */
    uint8_t factor;   /* spreading factor, 7…12 */
    uint8_t power;    /* dBm, 2…17 */
    uint16_t silence; /* pause after each frame, in multiples of its airtime */
    uint32_t channel; /* frequency in steps of 32 MHz / 2^19 */
};

/* Sets the radio up for this channel, asleep. False: it does not answer. The other functions may be
 * called nevertheless: each frame tries again. */
bool ow_radio_begin(const struct ow_radio_plan *plan);

void ow_radio_send(const uint8_t *frame, uint8_t length);

/* The last symbol has been sent, or would have been sent by now if the radio worked. */
bool ow_radio_sent(void);

void ow_radio_listen(void);

/* Copies a frame that was heard, with a CRC that was right; returns its length, 0: none. One that
 * is longer than `size` is dropped. */
uint8_t ow_radio_receive(uint8_t *frame, uint8_t size);

void ow_radio_sleep(void);

#endif
