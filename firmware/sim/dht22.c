#include "dht22.h"

#include <stdlib.h>
#include <string.h>

#include <avr_ioport.h>

enum { PIN = 3, US = CHIP_HZ / 1000000 };
enum { CALL_US = 800, AFTER_US = 30, GREETS_US = 80, LOW_US = 50, ZERO_US = 26, ONE_US = 70 };
#define PAUSE ((uint64_t)CHIP_HZ * 2)

const char *const dht22_faults[DHT22_FAULTS] = {
    "well", "open", "shorted", "swapped", "clone", "zeros", "soaked", "garbled"};

static void say(const struct dht22 *dht22, uint8_t *bytes)
{
    uint16_t magnitude = (uint16_t)abs(dht22->temperature), humidity = dht22->humidity;
    uint16_t temperature = (uint16_t)(magnitude | (dht22->temperature < 0 ? 0x8000 : 0));
    if (dht22->fault == DHT22_CLONE) temperature = (uint16_t)dht22->temperature;
    if (dht22->fault == DHT22_SOAKED) humidity = 1024;
    if (dht22->fault == DHT22_SWAPPED) {
        humidity = (uint16_t)(humidity / 10 << 8);
        temperature = (uint16_t)(magnitude / 10 << 8);
    }
    if (dht22->fault == DHT22_ZEROS) humidity = temperature = 0;
    bytes[0] = (uint8_t)(humidity >> 8);
    bytes[1] = (uint8_t)humidity;
    bytes[2] = (uint8_t)(temperature >> 8);
    bytes[3] = (uint8_t)temperature;
    bytes[4] = (uint8_t)(bytes[0] + bytes[1] + bytes[2] + bytes[3]);
    if (dht22->fault == DHT22_GARBLED) bytes[3] ^= 0x10;
}

static void answer(struct dht22 *dht22, uint64_t now)
{
    uint8_t bytes[5];
    say(dht22, bytes);
    uint8_t *lasts = dht22->lasts;
    *lasts++ = AFTER_US;
    *lasts++ = GREETS_US;
    *lasts++ = GREETS_US;
    for (int bit = 0; bit < 40; bit++) {
        *lasts++ = LOW_US;
        *lasts++ = bytes[bit / 8] << bit % 8 & 0x80 ? ONE_US : ZERO_US;
    }
    *lasts = LOW_US;
    dht22->step = 0;
    dht22->ready = now + PAUSE;
    chip_alarm(dht22->chip, ALARM_DHT22, now + AFTER_US * US);
}

static void on_alarm(void *context)
{
    struct dht22 *dht22 = context;
    dht22->step++;
    avr_raise_irq(dht22->pin, dht22->step == DHT22_STEPS || dht22->step % 2 == 0);
    if (dht22->step < DHT22_STEPS)
        chip_alarm(dht22->chip, ALARM_DHT22,
            chip_now(dht22->chip) + dht22->lasts[dht22->step] * (uint64_t)US);
}

static void on_direction(avr_irq_t *irq, uint32_t value, void *context)
{
    struct dht22 *dht22 = context;
    uint64_t now = chip_now(dht22->chip);
    bool low = value >> PIN & 1;
    (void)irq;
    if (low == dht22->low) return;
    dht22->low = low;
    avr_raise_irq(dht22->pin, !low && dht22->fault != DHT22_SHORTED);
    if (low)
        dht22->fell = now;
    else if (now - dht22->fell >= CALL_US * US && now >= dht22->ready &&
             dht22->fault != DHT22_OPEN && dht22->fault != DHT22_SHORTED)
        answer(dht22, now);
}

void dht22_power_on(struct dht22 *dht22)
{
    dht22->low = false;
    dht22->ready = chip_now(dht22->chip) + PAUSE;
    chip_alarm(dht22->chip, ALARM_DHT22, NEVER);
}

void dht22_set(struct dht22 *dht22, enum dht22_fault fault)
{
    dht22->fault = fault;
    chip_ground(dht22->chip, PIN, fault == DHT22_SHORTED);
    chip_alarm(dht22->chip, ALARM_DHT22, NEVER);
    avr_raise_irq(dht22->pin, fault != DHT22_SHORTED);
}

void dht22_init(struct dht22 *dht22, struct chip *chip, int16_t temperature, uint16_t humidity)
{
    memset(dht22, 0, sizeof *dht22);
    dht22->chip = chip;
    dht22->temperature = temperature;
    dht22->humidity = humidity;
    dht22->pin = chip_pull_up(chip, PIN);
    avr_irq_register_notify(
        avr_io_getirq(chip->avr, AVR_IOCTL_IOPORT_GETIRQ('D'), IOPORT_IRQ_DIRECTION_ALL),
        on_direction, dht22);
    chip_alarm_handler(chip, ALARM_DHT22, on_alarm, dht22);
    dht22_power_on(dht22);
}
