#include "dht22.h"

#include <Arduino.h>

/* A bit takes 76 us if it is 0, and 120 us if it is 1: between two falling edges. */
enum { LONGEST_ZERO_US = 98 };
/* The sensor's greeting ends with one, and each bit with one. */
enum { EDGES = 2 + 40 };

static uint8_t line;
static volatile uint8_t edges, bytes[DHT22_BYTES];
static volatile uint16_t last;

static void fell(void)
{
    uint16_t now = (uint16_t)micros();
    uint8_t carry = (uint16_t)(now - last) > LONGEST_ZERO_US;
    last = now;
    if (edges < UINT8_MAX) {
        edges++;
    }
    for (uint8_t i = DHT22_BYTES; i-- > 0;) {
        uint8_t byte = bytes[i];
        bytes[i] = (uint8_t)(byte << 1 | carry);
        carry = byte >> 7;
    }
}

void dht22_begin(uint8_t pin)
{
    line = pin;
    digitalWrite(pin, LOW); /* as an output it pulls the line down, as an input it releases it */
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

enum ow_sensor_fault dht22_read(int16_t *temperature, uint16_t *humidity)
{
    uint8_t answer[DHT22_BYTES];
    detachInterrupt(digitalPinToInterrupt(line));
    if (edges < EDGES) { /* of more, one was our own; the last 40 are the bits */
        if (edges > 1) {
            return OW_SENSOR_GARBLED;
        }
        return digitalRead(line) == LOW ? OW_SENSOR_SHORTED : OW_SENSOR_ABSENT;
    }
    for (uint8_t i = 0; i < DHT22_BYTES; i++) {
        answer[i] = bytes[i];
    }
    return dht22_decode(answer, temperature, humidity);
}
