#include "onewire.h"

#include <Arduino.h>
#include <util/atomic.h>
#include <util/delay.h>

enum { SEARCH_ROM = 0xF0, CONVERT = 0x44, WRITE_SCRATCHPAD = 0x4E, READ_SCRATCHPAD = 0xBE };

static volatile uint8_t *mode;
static volatile uint8_t *input;
static uint8_t mask;
static uint8_t mark; /* of the measurement under way */

void onewire_begin(uint8_t pin)
{
    mode = portModeRegister(digitalPinToPort(pin));
    input = portInputRegister(digitalPinToPort(pin));
    mask = digitalPinToBitMask(pin);
    digitalWrite(pin, LOW); /* as an output it pulls the line down, as an input it releases it */
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

static enum ow_sensor_fault reset(void)
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
    _delay_us(410); /* the sensor has released the line since */
    if (!(*input & mask)) {
        return OW_SENSOR_SHORTED;
    }
    return present ? OW_SENSOR_WELL : OW_SENSOR_ABSENT;
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

/* Finds the one sensor of the bus, and speaks to it alone from here on: each sensor tells a bit of
 * its ROM code and its inverse, and goes on listening if the answer is its bit. */
static enum ow_sensor_fault select(void)
{
    uint8_t rom[DS18B20_ROM] = {0};
    enum ow_sensor_fault fault = reset();
    if (fault != OW_SENSOR_WELL) {
        return fault;
    }
    send(SEARCH_ROM);
    for (uint8_t bit = 0; bit < 8 * DS18B20_ROM; bit++) {
        bool one = slot(true), inverse = slot(true);
        if (one == inverse) {
            return one ? OW_SENSOR_GARBLED : OW_SENSOR_SEVERAL;
        }
        slot(one);
        rom[bit / 8] |= (uint8_t)(one << bit % 8);
    }
    return ds18b20_check_rom(rom);
}

enum ow_sensor_fault ds18b20_convert(void)
{
    enum ow_sensor_fault fault = select();
    if (fault != OW_SENSOR_WELL) {
        return fault;
    }
    mark++;
    send(WRITE_SCRATCHPAD);
    send(mark);
    send((uint8_t)~mark);
    send(DS18B20_12_BITS);
    fault = select();
    if (fault != OW_SENSOR_WELL) {
        return fault;
    }
    send(CONVERT);
    return slot(true) ? OW_SENSOR_UNMEASURED : OW_SENSOR_WELL; /* 0 while it measures */
}

enum ow_sensor_fault ds18b20_read(int16_t *sixteenths)
{
    uint8_t bytes[DS18B20_SCRATCHPAD];
    bool measures = !slot(true);
    enum ow_sensor_fault fault = select();
    if (fault != OW_SENSOR_WELL) {
        return fault;
    }
    if (measures) {
        return OW_SENSOR_UNMEASURED; /* still: the scratchpad has the previous measurement */
    }
    send(READ_SCRATCHPAD);
    for (uint8_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = receive();
    }
    return ds18b20_decode(bytes, mark, sixteenths);
}
