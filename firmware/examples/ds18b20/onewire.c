#include "onewire.h"

#include <Arduino.h>
#include <util/atomic.h>
#include <util/delay.h>

enum { SKIP_ROM = 0xCC, CONVERT = 0x44, READ_SCRATCHPAD = 0xBE };
enum { SCRATCHPAD = 9, POLYNOMIAL = 0x8C };

static volatile uint8_t *mode;
static volatile uint8_t *input;
static uint8_t mask;

void onewire_begin(uint8_t pin)
{
    mode = portModeRegister(digitalPinToPort(pin));
    input = portInputRegister(digitalPinToPort(pin));
    mask = digitalPinToBitMask(pin);
    digitalWrite(pin, LOW); /* as an output it pulls the line down, as an input it lets go */
    pinMode(pin, INPUT);
}

/* Pulls the line down for a while, then looks at it. The line is released with interrupts off: a
 * UART byte between two edges would make another bit of this one. */
static bool slot(bool one)
{
    bool high;
    ATOMIC_BLOCK(ATOMIC_RESTORESTATE)
    {
        *mode |= mask;
        if (one) {
            _delay_us(3);
        } else {
            _delay_us(65);
        }
        *mode &= (uint8_t)~mask;
        _delay_us(8);
        high = *input & mask;
    }
    _delay_us(60);
    return high;
}

static bool reset(void)
{
    bool present;
    *mode |= mask;
    _delay_us(480); /* longer does no harm */
    ATOMIC_BLOCK(ATOMIC_RESTORESTATE)
    {
        *mode &= (uint8_t)~mask;
        _delay_us(70);
        present = !(*input & mask);
    }
    _delay_us(410);
    return present;
}

static void send(uint8_t byte)
{
    for (uint8_t bit = 0; bit < 8; bit++) {
        slot(byte >> bit & 1);
    }
}

static uint8_t receive(void)
{
    uint8_t byte = 0;
    for (uint8_t bit = 0; bit < 8; bit++) {
        byte |= (uint8_t)(slot(true) << bit);
    }
    return byte;
}

static bool command(uint8_t code)
{
    if (!reset()) {
        return false;
    }
    send(SKIP_ROM);
    send(code);
    return true;
}

bool ds18b20_convert(void)
{
    return command(CONVERT);
}

bool ds18b20_read(int16_t *sixteenths)
{
    uint8_t bytes[SCRATCHPAD], crc = 0, any = 0;
    if (!command(READ_SCRATCHPAD)) {
        return false;
    }
    for (uint8_t i = 0; i < SCRATCHPAD; i++) {
        bytes[i] = receive();
        any |= bytes[i];
        crc ^= bytes[i];
        for (uint8_t bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? (uint8_t)(crc >> 1 ^ POLYNOMIAL) : crc >> 1;
        }
    }
    *sixteenths = (int16_t)(bytes[0] | bytes[1] << 8);
    return crc == 0 && any; /* a line that lies on the ground reads as zeros, whose CRC fits */
}
