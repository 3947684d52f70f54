/* Sleep in power-down until the watchdog's interrupt. The chip's clock stops in the meantime. */
#ifndef POWER_DOWN_H
#define POWER_DOWN_H

#include <stdint.h>

/* Largest error of the watchdog's own oscillator: one part in this many. (ATmega328P
 * data sheet, watchdog oscillator frequency against temperature and supply.) */
enum { POWER_DOWN_PARTS = 10 };

/* Sleeps once; returns for how many milliseconds. The watchdog is off then, until ow_mqtt_poll. */
uint16_t power_down(void);

#endif
