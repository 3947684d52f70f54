/*
 * Arduino Uno and its kin with ATmega328P or ATmega2560: UART0, 8N1, on the USB serial chip, 1 ms tick on timer 0, EEPROM, ADC, watchdog.
 * The Makefile knows the boards and says what they differ in: F_CPU, OW_BAUD, OW_IDENTITY_PAGE, OW_WATCHDOG.
 *
 * The receive ring holds a full window of the gateway's frames (two of 61 bytes), so nothing is lost while an EEPROM byte is written.
 */
#include <avr/interrupt.h>
#include <avr/io.h>
#include <avr/pgmspace.h>
#include <avr/sleep.h>
#include <avr/wdt.h>
#include <util/atomic.h>

#include "ow_hal.h"
#include "sketch.h"

#ifndef USART_RX_vect /* a chip with several USARTs */
#define USART_RX_vect USART0_RX_vect
#define USART_UDRE_vect USART0_UDRE_vect
#endif

#define LED PB5
#define RX_SIZE 128u
#define TX_SIZE 16u
#define RAM_MAGIC 0x4F57A55Aul
#define ADC_PRESCALER_128 (_BV(ADPS2) | _BV(ADPS1) | _BV(ADPS0))

static struct {
    uint8_t bytes[RX_SIZE];
    volatile uint8_t head, tail;
} rx;

static struct {
    uint8_t bytes[TX_SIZE];
    volatile uint8_t head, tail;
} tx;

static volatile uint16_t milliseconds;
static enum ow_reset_cause reset_cause;

/* Boot loaders clear MCUSR before the program can read it. What they leave alone is RAM: the mark is gone only if the power was. */
static uint32_t ram_mark __attribute__((section(".noinit")));
static uint8_t reset_flags __attribute__((section(".noinit")));

/* Before anything else: after a watchdog reset the watchdog runs on at 16 ms. */
void stop_watchdog(void) __attribute__((naked, used, section(".init3")));
void stop_watchdog(void)
{
    reset_flags = MCUSR;
    MCUSR = 0;
    wdt_disable();
}

static void find_reset_cause(void)
{
    bool powered = ram_mark == RAM_MAGIC;
    ram_mark = RAM_MAGIC;
    if (reset_flags & _BV(WDRF)) {
        reset_cause = OW_RESET_WATCHDOG;
    } else if (reset_flags & _BV(EXTRF) || (reset_flags == 0 && powered)) {
        reset_cause = OW_RESET_EXTERNAL;
    } else if (reset_flags & _BV(BORF)) {
        reset_cause = OW_RESET_BROWN_OUT;
    } else {
        reset_cause = OW_RESET_POWER_ON;
    }
}

ISR(TIMER0_COMPA_vect)
{
    milliseconds++;
}

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

uint16_t ow_hal_millis(void)
{
    uint16_t now;
    ATOMIC_BLOCK(ATOMIC_RESTORESTATE)
    {
        now = milliseconds;
    }
    return now;
}

enum ow_reset_cause ow_hal_reset_cause(void)
{
    return reset_cause;
}

void ow_hal_reboot(void)
{
    cli();
#if OW_WATCHDOG
    wdt_enable(WDTO_15MS);
    for (;;) {
    }
#else
    __asm__ volatile("jmp 0");
    __builtin_unreachable();
#endif
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

bool ow_hal_eeprom_busy(void)
{
    return EECR & _BV(EEPE);
}

uint8_t ow_hal_eeprom_read(uint16_t address)
{
    while (ow_hal_eeprom_busy()) {
    }
    EEAR = address;
    EECR |= _BV(EERE);
    return EEDR;
}

void ow_hal_eeprom_write(uint16_t address, uint8_t value)
{
    EEAR = address;
    EEDR = value;
    ATOMIC_BLOCK(ATOMIC_RESTORESTATE) /* EEPE counts only within four cycles of EEMPE */
    {
        EECR |= _BV(EEMPE);
        EECR |= _BV(EEPE);
    }
}

void ow_hal_identity_read(uint8_t *bytes, uint8_t length)
{
#ifdef RAMPZ /* more flash than a 16-bit address reaches */
    memcpy_PF(bytes, OW_IDENTITY_PAGE, length);
#else
    memcpy_P(bytes, (const void *)OW_IDENTITY_PAGE, length);
#endif
}

uint16_t ow_hal_adc_read(uint8_t channel)
{
    ADMUX = _BV(REFS0) | channel;
    ADCSRA = _BV(ADEN) | _BV(ADSC) | ADC_PRESCALER_128;
    while (ADCSRA & _BV(ADSC)) {
    }
    return ADC;
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
    if (rx.head == rx.tail) {
        sleep_enable();
        sei(); /* the instruction after sei runs before any interrupt */
        sleep_cpu();
        sleep_disable();
    }
    sei();
}

static void start(void)
{
    find_reset_cause();
#if OW_WATCHDOG
    wdt_enable(WDTO_2S);
#endif
    TCCR0A = _BV(WGM01); /* count to OCR0A, every millisecond */
    TCCR0B = _BV(CS01) | _BV(CS00);
    OCR0A = F_CPU / 64 / 1000 - 1;
    TIMSK0 = _BV(OCIE0A);
    UCSR0A = _BV(U2X0); /* 2.1 % fast; without U2X it would be 3.5 % slow */
    UBRR0 = (F_CPU + 4 * OW_BAUD) / (8 * OW_BAUD) - 1;
    UCSR0B = _BV(RXEN0) | _BV(TXEN0) | _BV(RXCIE0);
    UCSR0C = _BV(UCSZ01) | _BV(UCSZ00);
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
