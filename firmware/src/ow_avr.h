/* What boards with an AVR have in common (ow_avr.c); the UART, the tick and sleeping are each
 * board's own. */
#ifndef OW_AVR_H
#define OW_AVR_H

/* Once, before anything else of ow_hal.h: finds the reset cause. */
void ow_avr_start(void);

#endif
