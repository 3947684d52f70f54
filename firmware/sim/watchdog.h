/* The watchdog timer: its own 128 kHz oscillator, so it runs on in every sleep mode (data sheet,
 * "Watchdog Timer").
 *
 * In: writes to WDTCSR and the WDR instruction. Out: the watchdog interrupt, or a call of `bites`
 * when the chip is to be reset. */
#ifndef SIM_WATCHDOG_H
#define SIM_WATCHDOG_H

#include "chip.h"

struct watchdog {
    avr_io_t io; /* first: libsimavr finds the handler of WDR through it */
    struct chip *chip;
    avr_int_vector_t *interrupt;
    void (*bites)(void *context);
    void *context;
    uint64_t window; /* until when WDE and the prescaler may be changed after WDCE */
};

void watchdog_init(
    struct watchdog *watchdog, struct chip *chip, void (*bites)(void *context), void *context);

/* After a reset. forced: the watchdog caused it, so it stays on at its shortest time until WDRF is
 * cleared. */
void watchdog_reset(struct watchdog *watchdog, bool forced);

#endif
