/* A program that does to the radio's bus what it is told, so that a test speaks to an SX1276
 * register by register. It also runs on a real Uno with a real RFM95: then the same questions show
 * whether the model answers as the chip does.
 *
 * 115200 baud. After each start: 'B'. Commands and answers stand beside their functions. */
#include <avr/io.h>
#include <util/delay.h>

#define RADIO_RESET _BV(PB1)
#define RADIO_SELECT _BV(PB2)

static void put(uint8_t byte)
{
    while (!(UCSR0A & _BV(UDRE0))) {
    }
    UDR0 = byte;
}

static uint8_t get(void)
{
    while (!(UCSR0A & _BV(RXC0))) {
    }
    return UDR0;
}

/* 'S' COUNT BYTES -> 's' BYTES: select, exchange so many bytes, let go. */
static void exchange(void)
{
    static uint8_t bytes[255];
    uint8_t count = get();
    for (uint8_t i = 0; i < count; i++) {
        bytes[i] = get();
    }
    PORTB &= (uint8_t)~RADIO_SELECT;
    for (uint8_t i = 0; i < count; i++) {
        SPDR = bytes[i];
        while (!(SPSR & _BV(SPIF))) {
        }
        bytes[i] = SPDR;
    }
    PORTB |= RADIO_SELECT;
    put('s');
    for (uint8_t i = 0; i < count; i++) {
        put(bytes[i]);
    }
}

/* 'R' -> 'r': pull NRESET for a millisecond. */
static void reset(void)
{
    DDRB |= RADIO_RESET;
    _delay_ms(1);
    DDRB &= (uint8_t)~RADIO_RESET;
    put('r');
}

/* 'C' -> 'c' CYCLES: how long a byte takes. */
static void count(void)
{
    TCCR1B = _BV(CS10);
    uint16_t start = TCNT1;
    SPDR = 0;
    while (!(SPSR & _BV(SPIF))) {
    }
    uint16_t end = TCNT1;
    start = end - start;
    (void)SPDR;
    put('c');
    put((uint8_t)start);
}

int main(void)
{
    UCSR0A = _BV(U2X0);
    UBRR0 = 16;
    UCSR0B = _BV(RXEN0) | _BV(TXEN0);
    UCSR0C = _BV(UCSZ01) | _BV(UCSZ00);
    PORTB = RADIO_SELECT;
    DDRB = RADIO_SELECT | _BV(PB3) | _BV(PB5);
    SPCR = _BV(SPE) | _BV(MSTR);
    put('B');
    for (;;) {
        switch (get()) {
        case 'S': exchange(); break;
        case 'R': reset(); break;
        case 'C': count(); break;
        case 'D': /* -> 'd' LEVEL of DIO0 */
            put('d');
            put(PIND >> PD2 & 1);
            break;
        }
    }
}
