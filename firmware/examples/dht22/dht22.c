#include "dht22.h"

#include <Arduino.h>

/* A bit takes 76 us if it is 0, and 120 us if it is 1: between two falling edges. */
enum { LONGEST_ZERO_US = 98 };
/* The sensor's greeting ends with one, and each bit with one. */
enum { EDGES = 2 + 40, BYTES = 5, SIGN = 0x80 };

static uint8_t line;
static volatile uint8_t edges, bytes[BYTES];
static volatile uint16_t last;

static void fell(void)
{
    uint16_t now = (uint16_t)micros();
    uint8_t carry = (uint16_t)(now - last) > LONGEST_ZERO_US;
    last = now;
    if (edges < UINT8_MAX) {
        edges++;
    }
    for (uint8_t i = BYTES; i-- > 0;) {
        uint8_t byte = bytes[i];
        bytes[i] = (uint8_t)(byte << 1 | carry);
        carry = byte >> 7;
    }
}

void dht22_begin(uint8_t pin)
{
    line = pin;
    digitalWrite(pin, LOW); /* as an output it pulls the line down, as an input it lets go */
    pinMode(pin, INPUT);
}

void dht22_call(void)
{
    pinMode(line, OUTPUT);
}

void dht22_listen(void)
{
    edges = 0;
    pinMode(line, INPUT);
    attachInterrupt(digitalPinToInterrupt(line), fell, FALLING);
}

bool dht22_read(int16_t *temperature, uint16_t *humidity)
{
    detachInterrupt(digitalPinToInterrupt(line));
    if (edges < EDGES) {
        return false; /* of more, one was our own; the last 40 are the bits */
    }
    uint8_t sum = 0;
    for (uint8_t i = 0; i < BYTES - 1; i++) {
        sum = (uint8_t)(sum + bytes[i]);
    }
    *humidity = (uint16_t)(bytes[0] << 8 | bytes[1]);
    int16_t tenths = (int16_t)((bytes[2] & ~SIGN) << 8 | bytes[3]);
    *temperature = bytes[2] & SIGN ? (int16_t)-tenths : tenths;
    return sum == bytes[BYTES - 1];
}
