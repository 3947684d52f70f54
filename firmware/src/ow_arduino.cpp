/* ow_hal.h on the Arduino core, beside ow_avr.c: Serial belongs to the gateway, pin 13's LED to
 * `identify`. Other builds have boards of their own. */
#if defined(ARDUINO) && defined(__AVR__)

#include <Arduino.h>
#include <avr/sleep.h>
#include <avr/wdt.h>

#include "Onceway.h"

extern "C" {
#include "ow_avr.h"
}

#if F_CPU < 16000000UL
#define BAUD 57600 /* 8 MHz do not divide to 115200 */
#else
#define BAUD 115200
#endif

/* The core calls this between its own start and setup(). */
void initVariant()
{
    ow_avr_start();
    pinMode(LED_BUILTIN, OUTPUT);
    Serial.begin(BAUD);
}

uint16_t ow_hal_millis(void)
{
    return (uint16_t)millis();
}

int16_t ow_hal_uart_read(void)
{
    return Serial.read();
}

bool ow_hal_uart_writable(void)
{
    return Serial.availableForWrite() > 0;
}

void ow_hal_uart_write(uint8_t byte)
{
    Serial.write(byte);
}

void ow_hal_led(bool on)
{
    digitalWrite(LED_BUILTIN, on ? HIGH : LOW);
}

void ow_hal_idle(void)
{
    wdt_reset();
    if (!Serial.available()) {
        set_sleep_mode(SLEEP_MODE_IDLE);
        sleep_mode(); /* the core's tick wakes it within a millisecond */
    }
}

#endif
