#include "onewire.h"

#include <string.h>

#include <avr_ioport.h>

enum { PIN = 2, US = CHIP_HZ / 1000000 };
enum { RESET_US = 480, SLACK_US = 20, PRESENCE_AFTER_US = 30, PRESENCE_US = 120 };
enum { ONE_BELOW_US = 15, HOLD_US = 30 };
enum { SKIP_ROM = 0xCC, CONVERT = 0x44, READ_SCRATCHPAD = 0xBE, POLYNOMIAL = 0x8C };
#define CONVERSION ((uint64_t)CHIP_HZ / 1000 * 750)

static void set_temperature(struct onewire *onewire, int16_t sixteenths)
{
    static const uint8_t rest[] = {0x4B, 0x46, 0x7F, 0xFF, 0x0C, 0x10}; /* as after power-on */
    uint8_t crc = 0, *bytes = onewire->scratchpad;
    bytes[0] = (uint8_t)sixteenths;
    bytes[1] = (uint8_t)(sixteenths >> 8);
    memcpy(bytes + 2, rest, sizeof rest);
    for (int i = 0; i < ONEWIRE_SCRATCHPAD - 1; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? (uint8_t)(crc >> 1 ^ POLYNOMIAL) : crc >> 1;
    }
    bytes[ONEWIRE_SCRATCHPAD - 1] = crc;
}

static void pull(struct onewire *onewire, uint64_t from, uint64_t until)
{
    onewire->release = until;
    onewire->pulling = false;
    chip_alarm(onewire->chip, ALARM_ONEWIRE, from);
}

static void on_alarm(void *context)
{
    struct onewire *onewire = context;
    onewire->pulling = !onewire->pulling;
    avr_raise_irq(onewire->pin, onewire->pulling ? 0 : 1);
    if (onewire->pulling) chip_alarm(onewire->chip, ALARM_ONEWIRE, onewire->release);
}

static void obey(struct onewire *onewire)
{
    uint64_t now = chip_now(onewire->chip);
    if (onewire->converted <= now) {
        onewire->converted = NEVER;
        set_temperature(onewire, onewire->temperature);
    }
    uint8_t command = onewire->byte;
    bool rom = onewire->state == ONEWIRE_ROM;
    onewire->state = ONEWIRE_IDLE;
    if (rom && command == SKIP_ROM) onewire->state = ONEWIRE_FUNCTION;
    if (!rom && command == CONVERT) onewire->converted = now + CONVERSION;
    if (!rom && command == READ_SCRATCHPAD) {
        onewire->state = ONEWIRE_SENDS;
        onewire->sent = 0;
    }
}

static void take_bit(struct onewire *onewire, bool one)
{
    onewire->byte = (uint8_t)(onewire->byte >> 1 | one << 7);
    if (++onewire->bits < 8) return;
    onewire->bits = 0;
    obey(onewire);
}

static void send_bit(struct onewire *onewire, uint64_t now)
{
    unsigned bit = onewire->sent++;
    bool one = bit >= 8 * ONEWIRE_SCRATCHPAD || onewire->scratchpad[bit / 8] >> bit % 8 & 1;
    if (!one) pull(onewire, now + US / 2, onewire->fell + HOLD_US * US);
}

static void rise(struct onewire *onewire)
{
    uint64_t now = chip_now(onewire->chip), width = (now - onewire->fell) / US;
    if (width + SLACK_US >= RESET_US) {
        onewire->state = ONEWIRE_ROM;
        onewire->bits = 0;
        pull(onewire, now + PRESENCE_AFTER_US * US, now + (PRESENCE_AFTER_US + PRESENCE_US) * US);
    } else if (onewire->state == ONEWIRE_SENDS)
        send_bit(onewire, now);
    else if (onewire->state != ONEWIRE_IDLE)
        take_bit(onewire, width < ONE_BELOW_US);
}

static void on_direction(avr_irq_t *irq, uint32_t value, void *context)
{
    struct onewire *onewire = context;
    bool low = value >> PIN & 1;
    (void)irq;
    if (low == onewire->low) return;
    onewire->low = low;
    if (low)
        onewire->fell = chip_now(onewire->chip);
    else
        rise(onewire);
}

void onewire_power_on(struct onewire *onewire)
{
    onewire->state = ONEWIRE_IDLE;
    onewire->low = onewire->pulling = false;
    onewire->converted = NEVER;
    set_temperature(onewire, 85 * 16);
    chip_alarm(onewire->chip, ALARM_ONEWIRE, NEVER);
}

void onewire_init(struct onewire *onewire, struct chip *chip, int16_t sixteenths)
{
    memset(onewire, 0, sizeof *onewire);
    onewire->chip = chip;
    onewire->temperature = sixteenths;
    onewire->pin = chip_pull_up(chip, PIN);
    avr_irq_register_notify(
        avr_io_getirq(chip->avr, AVR_IOCTL_IOPORT_GETIRQ('D'), IOPORT_IRQ_DIRECTION_ALL),
        on_direction, onewire);
    chip_alarm_handler(chip, ALARM_ONEWIRE, on_alarm, onewire);
    onewire_power_on(onewire);
}
