/* A program for testing the simulated board: it does one thing to the hardware per command and
 * reports what the hardware did.
 *
 * After each start: 'B', MCUSR, and a byte of RAM that no start-up code clears (set to 0x5A by
 * 'N'). 115200 baud. Times are counts of timer 1 at clk/64 (4 us). Commands and answers stand
 * beside their functions. */
#include <avr/eeprom.h>
#include <avr/interrupt.h>
#include <avr/io.h>
#include <avr/sleep.h>
#include <avr/wdt.h>
#include <util/delay.h>

static uint8_t kept __attribute__((section(".noinit")));

static void put(uint8_t byte)
{
    while (!(UCSR0A & _BV(UDRE0))) {
    }
    UDR0 = byte;
}

static void put16(uint16_t value)
{
    put(value >> 8);
    put(value & 0xFF);
}

static uint8_t get(void)
{
    while (!(UCSR0A & _BV(RXC0))) {
    }
    return UDR0;
}

static uint16_t get16(void)
{
    uint16_t high = get();
    return high << 8 | get();
}

/* 'E' MODE ADDRESS16 VALUE -> 'e' TIME16: program one EEPROM cell; mode is the EEPM bits 0, 1
 * (erase only) or 2 (write only). */
static void program_cell(void)
{
    uint8_t mode = get() << EEPM0;
    EEAR = get16();
    EEDR = get();
    uint16_t start = TCNT1;
    EECR = mode;
    EECR |= _BV(EEMPE);
    EECR |= _BV(EEPE);
    eeprom_busy_wait();
    uint16_t time = TCNT1 - start;
    put('e');
    put16(time);
}

/* 'U' ADDRESS16 VALUE -> 'u' STATUS: set EEPE too late after EEMPE; STATUS is EECR afterwards. */
static void program_too_late(void)
{
    EEAR = get16();
    EEDR = get();
    EECR |= _BV(EEMPE);
    __asm__ volatile("nop\n nop\n nop\n nop\n nop\n nop\n");
    EECR |= _BV(EEPE);
    put('u');
    put(EECR);
}

/* 'A' CHANNEL -> 'a' VALUE16 */
static void convert(void)
{
    ADMUX = _BV(REFS0) | get();
    ADCSRA = _BV(ADEN) | _BV(ADSC) | 7;
    while (ADCSRA & _BV(ADSC)) {
    }
    put('a');
    put16(ADC);
}

ISR(WDT_vect)
{
}

/* 'P' MODE -> 'p' TIME16: sleep in this mode until the watchdog's interrupt after 250 ms; how long
 * timer 1 has run meanwhile. */
static void sleep_until_watchdog(void)
{
    uint8_t mode = get() << SM0;
    WDTCSR = _BV(WDCE) | _BV(WDE);
    WDTCSR = _BV(WDIE) | _BV(WDP2);
    SMCR = mode | _BV(SE);
    uint16_t start = TCNT1;
    sei();
    sleep_cpu();
    cli();
    uint16_t time = TCNT1 - start;
    wdt_disable();
    put('p');
    put16(time);
}

/* 'D' TENTHS -> 'd' COUNT OVERRUN BYTES: do not read for so many 100 us, then tell what the
 * receiver still had. */
static void read_late(void)
{
    uint8_t bytes[8], count = 0, overrun = 0;
    for (uint8_t left = get(); left; left--) {
        _delay_us(100);
    }
    while (count < sizeof bytes && UCSR0A & _BV(RXC0)) {
        overrun |= UCSR0A & _BV(DOR0);
        bytes[count++] = UDR0;
    }
    put('d');
    put(count);
    put(overrun ? 1 : 0);
    for (uint8_t i = 0; i < count; i++) {
        put(bytes[i]);
    }
}

/* 'K' -> 'k': use 200 bytes of stack more than ever before. */
static __attribute__((noinline)) void dig(void)
{
    volatile uint8_t hole[200];
    for (uint8_t i = 0; i < sizeof hole; i++) {
        hole[i] = i ^ 0x3C;
    }
    put('k');
}

static volatile uint8_t ring[256], head, tail, ended;

ISR(USART_RX_vect)
{
    uint8_t byte = UDR0;
    ended = byte == 0x04;
    ring[head++] = byte;
    UCSR0B |= _BV(UDRIE0);
}

ISR(USART_UDRE_vect)
{
    if (head == tail) {
        UCSR0B &= (uint8_t)~_BV(UDRIE0);
    } else {
        UDR0 = ring[tail++];
    }
}

/* 'T' BYTES 0x04 -> BYTES 0x04: echo by interrupts while the CPU sleeps in idle mode. */
static void echo(void)
{
    ended = 0;
    UCSR0B |= _BV(RXCIE0);
    set_sleep_mode(SLEEP_MODE_IDLE);
    sleep_enable();
    sei();
    while (!ended || head != tail) {
        sleep_cpu();
    }
    cli();
    UCSR0B &= (uint8_t)~(_BV(RXCIE0) | _BV(UDRIE0));
}

int main(void)
{
    uint8_t cause = MCUSR;
    MCUSR = 0;
    wdt_disable();
    TCCR1B = _BV(CS11) | _BV(CS10);
    UCSR0A = _BV(U2X0);
    UBRR0 = 16;
    UCSR0B = _BV(RXEN0) | _BV(TXEN0);
    put('B');
    put(cause);
    put(kept);
    for (;;) {
        switch (get()) {
        case 'E': program_cell(); break;
        case 'U': program_too_late(); break;
        case 'R': put('r'), put(eeprom_read_byte((uint8_t *)get16())); break;
        case 'A': convert(); break;
        case 'P': sleep_until_watchdog(); break;
        case 'D': read_late(); break;
        case 'T': echo(); break;
        case 'K': dig(); break;
        case 'N': kept = 0x5A; put('n'); break;
        case 'W': wdt_enable(WDTO_60MS); for (;;) { } break; /* hang until the watchdog bites */
        case 'Z':
            cli();
            set_sleep_mode(SLEEP_MODE_IDLE);
            sleep_enable();
            UCSR0B |= _BV(RXCIE0);
            sleep_cpu();
            put('z');
            break;
        }
    }
}
