#include "ow_memory.h"

#include <string.h>

#include "ow_config.h"

#if OW_JOURNAL_MEMORY && defined(__AVR__)

#include <avr/io.h>
#include <util/delay.h>

/* ATmega328P data sheet, 2-wire serial interface: status codes of a master. */
enum { STARTED = 0x08, STARTED_AGAIN = 0x10, ADDRESSED = 0x18, TAKEN = 0x28, ASKED = 0x40 };
enum { DEVICE = 0x50 << 1, READ = 1, STATUS_MASK = 0xF8 };
enum { ANSWERS_WITHIN_MS = 20 };
#define BUS_HZ 400000ul /* both chips accept it at 5 V */
#define PATIENCE 1000u  /* turns of the loop below; a byte takes 25 us */

#ifdef __AVR_ATmega2560__
#define BUS_PORT PORTD
#define BUS_DDR DDRD
#define CLOCK_PIN PD0
#else
#define BUS_PORT PORTC
#define BUS_DDR DDRC
#define CLOCK_PIN PC5
#endif

static bool written; /* since the chip was last seen to be ready */

/* Lets the bus do one step; returns its status, 0 if it is stuck. */
static uint8_t step(uint8_t what)
{
    TWCR = (uint8_t)(_BV(TWINT) | _BV(TWEN) | what);
    for (uint16_t i = 0; i < PATIENCE; i++) {
        if (TWCR & _BV(TWINT)) {
            return TWSR & STATUS_MASK;
        }
    }
    TWCR = 0;
    return 0;
}

static bool send(uint8_t byte, uint8_t status)
{
    TWDR = byte;
    return step(0) == status;
}

static void stop(void)
{
    TWCR = _BV(TWINT) | _BV(TWEN) | _BV(TWSTO);
}

static bool call(void)
{
    uint8_t status = step(_BV(TWSTA));
    return (status == STARTED || status == STARTED_AGAIN) && send(DEVICE, ADDRESSED);
}

static bool call_at(uint16_t address)
{
    return call() && send((uint8_t)(address >> 8), TAKEN) && send((uint8_t)address, TAKEN);
}

bool ow_memory_busy(void)
{
    if (written) {
        written = !call();
        stop();
    }
    return written;
}

/* A reset in the middle of a read leaves the chip holding the data line down: nine clocks make it let
 * go (I2C-bus specification, section 3.1.16). The board's pull-ups raise the lines. */
static void free_bus(void)
{
    TWCR = 0;
    BUS_PORT &= (uint8_t)~_BV(CLOCK_PIN);
    for (uint8_t i = 0; i < 9; i++) {
        BUS_DDR |= _BV(CLOCK_PIN);
        _delay_us(5);
        BUS_DDR &= (uint8_t)~_BV(CLOCK_PIN);
        _delay_us(5);
    }
}

/* An EEPROM that was programming when the power went is still busy for a while. */
bool ow_memory_begin(void)
{
    free_bus();
    TWSR = 0;
    TWBR = (uint8_t)((F_CPU / BUS_HZ - 16) / 2);
    for (uint16_t i = 0; i < ANSWERS_WITHIN_MS * (BUS_HZ / 1000 / 10); i++) {
        written = true;
        if (!ow_memory_busy()) {
            return true;
        }
    }
    return written = false;
}

void ow_memory_read(uint8_t *to, uint16_t address, uint8_t length)
{
    memset(to, 0xFF, length);
    while (ow_memory_busy()) {
    }
    if (call_at(address) && step(_BV(TWSTA)) == STARTED_AGAIN && send(DEVICE | READ, ASKED)) {
        while (length--) {
            if (step(length ? _BV(TWEA) : 0) == 0) {
                break;
            }
            *to++ = TWDR;
        }
    }
    stop();
}

void ow_memory_write(uint16_t address, uint8_t value)
{
    written = call_at(address) && send(value, TAKEN);
    stop();
}

#endif
