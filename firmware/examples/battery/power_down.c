#include "power_down.h"

#include <avr/interrupt.h>
#include <avr/io.h>
#include <avr/sleep.h>
#include <avr/wdt.h>

enum { SLEEP_MS = 8192 }; /* 2^20 periods of 128 kHz */

EMPTY_INTERRUPT(WDT_vect)

uint16_t power_down(void)
{
    uint8_t converter = ADCSRA;
    ADCSRA = 0; /* the ADC draws current, too */
    set_sleep_mode(SLEEP_MODE_PWR_DOWN);
    cli();
    wdt_reset();
    WDTCSR = _BV(WDCE) | _BV(WDE);
    WDTCSR = _BV(WDIE) | _BV(WDIF) | _BV(WDP3) | _BV(WDP0); /* it interrupts, and resets nothing */
    sleep_enable();
#ifdef sleep_bod_disable
    sleep_bod_disable();
#endif
    sei(); /* counts from the instruction after the next one on, so nothing comes in between */
    sleep_cpu();
    sleep_disable();
    wdt_disable();
    ADCSRA = converter;
    return SLEEP_MS;
}
