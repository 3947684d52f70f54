/* Sleep in power-down, from which the watchdog's interrupt wakes: nothing else runs meanwhile, the
 * clock of the chip neither. */
#ifndef POWER_DOWN_H
#define POWER_DOWN_H

#include <stdint.h>

/* The watchdog's own oscillator times it, which may be wrong by so much: one part of. (ATmega328P
 * data sheet, watchdog oscillator frequency against temperature and supply.) */
enum { POWER_DOWN_PARTS = 10 };

/* Sleeps once; returns for how many milliseconds. The watchdog is off then, until ow_mqtt_poll. */
uint16_t power_down(void);

#endif
