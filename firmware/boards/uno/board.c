/*
 * Arduino Uno and its kin with ATmega328P or ATmega2560: UART0, 8N1, on the USB serial chip (not
 * with OW_LORA, where it has nothing to carry), 1 ms tick on timer 0, sleep. The rest is
 * src/ow_avr.c. The Makefile knows the boards and says what they differ in: F_CPU, OW_BAUD,
 * OW_IDENTITY_PAGE, OW_WATCHDOG.
 *
 * The receive ring holds a full window of the gateway's frames (two of 61 bytes), so nothing is
 * lost while an EEPROM byte is written.
 */
#include <avr/interrupt.h>
#include <avr/io.h>
#include <avr/sleep.h>
#include <avr/wdt.h>
#include <util/atomic.h>

#include "ow_avr.h"
#include "ow_hal.h"
#include "ow_sketch.h"

#ifndef USART_RX_vect /* a chip with several USARTs */
#define USART_RX_vect USART0_RX_vect
#define USART_UDRE_vect USART0_UDRE_vect
#endif

#ifdef __AVR_ATmega2560__ /* pin 13 */
#define LED PB7
#else
#define LED PB5
#endif
#define RX_SIZE 128u
#ifndef TX_SIZE
#define TX_SIZE 16u
#endif

#if !OW_LORA

static struct {
    uint8_t bytes[RX_SIZE];
    volatile uint8_t head, tail;
} rx;

static struct {
    uint8_t bytes[TX_SIZE];
    volatile uint8_t head, tail;
} tx;

ISR(USART_RX_vect)
{
    bool good = !(UCSR0A & (_BV(FE0) | _BV(DOR0)));
    uint8_t byte = UDR0;
    uint8_t next = (rx.head + 1) & (RX_SIZE - 1);
    if (good && next != rx.tail) {
        rx.bytes[rx.head] = byte;
        rx.head = next;
    }
}

ISR(USART_UDRE_vect)
{
    if (tx.head == tx.tail) {
        UCSR0B &= (uint8_t)~_BV(UDRIE0);
        return;
    }
    UDR0 = tx.bytes[tx.tail];
    tx.tail = (tx.tail + 1) & (TX_SIZE - 1);
}

int16_t ow_hal_uart_read(void)
{
    if (rx.head == rx.tail) {
        return -1;
    }
    uint8_t byte = rx.bytes[rx.tail];
    rx.tail = (rx.tail + 1) & (RX_SIZE - 1);
    return byte;
}

bool ow_hal_uart_writable(void)
{
    return ((tx.head + 1) & (TX_SIZE - 1)) != tx.tail;
}

void ow_hal_uart_write(uint8_t byte)
{
    tx.bytes[tx.head] = byte;
    tx.head = (tx.head + 1) & (TX_SIZE - 1);
    UCSR0B |= _BV(UDRIE0);
}

/* for the program */
static bool nothing_waits(void)
{
    return rx.head == rx.tail;
}

static void start_uart(void)
{
    UCSR0A = _BV(U2X0); /* 2.1 % fast; without U2X it would be 3.5 % slow */
    UBRR0 = (F_CPU + 4 * OW_BAUD) / (8 * OW_BAUD) - 1;
    UCSR0B = _BV(RXEN0) | _BV(TXEN0) | _BV(RXCIE0);
    UCSR0C = _BV(UCSZ01) | _BV(UCSZ00);
}

#else

static bool nothing_waits(void)
{
    return true;
}

static void start_uart(void)
{
}

#endif

static volatile uint16_t milliseconds;

ISR(TIMER0_COMPA_vect)
{
    milliseconds++;
}

uint16_t ow_hal_millis(void)
{
    uint16_t now;
    ATOMIC_BLOCK(ATOMIC_RESTORESTATE)
    {
        now = milliseconds;
    }
    return now;
}

void ow_hal_led(bool on)
{
    if (on) {
        PORTB |= _BV(LED);
    } else {
        PORTB &= (uint8_t)~_BV(LED);
    }
}

void ow_hal_idle(void)
{
    wdt_reset();
    set_sleep_mode(SLEEP_MODE_IDLE);
    cli();
    if (nothing_waits()) {
        sleep_enable();
        sei(); /* the instruction after sei runs before any interrupt */
        sleep_cpu();
        sleep_disable();
    }
    sei();
}

static void start(void)
{
    ow_avr_start();
    TCCR0A = _BV(WGM01); /* count to OCR0A, every millisecond */
    TCCR0B = _BV(CS01) | _BV(CS00);
    OCR0A = F_CPU / 64 / 1000 - 1;
    TIMSK0 = _BV(OCIE0A);
    start_uart();
    DDRB |= _BV(LED);
    sei();
}

int main(void)
{
    start();
    setup();
    for (;;) {
        loop();
    }
}
