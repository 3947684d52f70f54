#include "onewire.h"

#include <string.h>

#include <avr_ioport.h>

enum { PIN = 2, US = CHIP_HZ / 1000000 };
enum { RESET_US = 480, SLACK_US = 20, PRESENCE_AFTER_US = 30, PRESENCE_US = 120 };
enum { ONE_BELOW_US = 15, HOLD_US = 30 };
enum { SEARCH_ROM = 0xF0, SKIP_ROM = 0xCC, CONVERT = 0x44 };
enum { WRITE_SCRATCHPAD = 0x4E, READ_SCRATCHPAD = 0xBE, POLYNOMIAL = 0x8C };
enum { WRITTEN_FROM = 2, WRITTEN = 3 };
enum { DS18B20 = 0x28, DS18S20 = 0x10, TOO_LITTLE_POWER = 0x7FF, WARMER = 20 * 16 };
#define CONVERSION ((uint64_t)CHIP_HZ / 1000 * 750)

const char *const onewire_faults[ONEWIRE_FAULTS] = {
    "well", "open", "shorted", "swapped", "contention", "weak", "restarts"};

static uint8_t crc_of(const uint8_t *bytes, int count)
{
    uint8_t crc = 0;
    for (int i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? (uint8_t)(crc >> 1 ^ POLYNOMIAL) : crc >> 1;
    }
    return crc;
}

static int devices(const struct onewire *onewire)
{
    if (onewire->fault == ONEWIRE_OPEN || onewire->fault == ONEWIRE_SHORTED) return 0;
    return onewire->fault == ONEWIRE_CONTENTION ? 2 : 1;
}

static void seal(struct onewire_device *device)
{
    device->scratchpad[ONEWIRE_SCRATCHPAD - 1] = crc_of(device->scratchpad, ONEWIRE_SCRATCHPAD - 1);
}

static void set_temperature(struct onewire_device *device, int16_t sixteenths)
{
    device->scratchpad[0] = (uint8_t)sixteenths;
    device->scratchpad[1] = (uint8_t)(sixteenths >> 8);
    seal(device);
}

static void start(struct onewire_device *device)
{
    static const uint8_t rest[] = {0x4B, 0x46, 0x7F, 0xFF, 0x0C, 0x10}; /* as after power-on */
    device->state = ONEWIRE_IDLE;
    device->converted = NEVER;
    memcpy(device->scratchpad + WRITTEN_FROM, rest, sizeof rest);
    set_temperature(device, 85 * 16);
}

static void level(struct onewire *onewire, bool high)
{
    avr_raise_irq(onewire->pin, high && onewire->fault != ONEWIRE_SHORTED);
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
    level(onewire, !onewire->pulling);
    if (onewire->pulling) chip_alarm(onewire->chip, ALARM_ONEWIRE, onewire->release);
}

static void finish(struct onewire *onewire, struct onewire_device *device)
{
    int16_t value = onewire->temperature;
    if (device != onewire->devices) value = (int16_t)(value + WARMER);
    if (onewire->fault == ONEWIRE_WEAK) value = TOO_LITTLE_POWER;
    if (onewire->fault == ONEWIRE_SWAPPED) value = (int16_t)(value / 8); /* halves of a degree */
    device->converted = NEVER;
    set_temperature(device, value);
    if (onewire->fault == ONEWIRE_RESTARTS) start(device);
}

static void obey(struct onewire *onewire, struct onewire_device *device)
{
    uint64_t now = chip_now(onewire->chip);
    uint8_t command = device->byte;
    if (device->state == ONEWIRE_TAKES) {
        device->scratchpad[WRITTEN_FROM + device->count++] = command;
        seal(device);
        if (device->count == WRITTEN) device->state = ONEWIRE_IDLE;
        return;
    }
    bool rom = device->state == ONEWIRE_ROM;
    device->state = ONEWIRE_IDLE;
    device->count = 0;
    device->turn = 0;
    if (rom && command == SKIP_ROM) device->state = ONEWIRE_FUNCTION;
    if (rom && command == SEARCH_ROM) device->state = ONEWIRE_SEARCH;
    if (!rom && command == CONVERT) {
        device->converted = now + CONVERSION;
        device->state = ONEWIRE_MEASURES;
    }
    if (!rom && command == WRITE_SCRATCHPAD) device->state = ONEWIRE_TAKES;
    if (!rom && command == READ_SCRATCHPAD) device->state = ONEWIRE_SENDS;
}

static void take_bit(struct onewire *onewire, struct onewire_device *device, bool one)
{
    device->byte = (uint8_t)(device->byte >> 1 | one << 7);
    if (++device->bits < 8) return;
    device->bits = 0;
    obey(onewire, device);
}

/* A bit that every device sends or reads in its own way. Returns whether the line stays high. */
static bool slot(struct onewire *onewire, struct onewire_device *device, bool one)
{
    unsigned bit = device->count;
    bool mine = device->rom[bit / 8 % sizeof device->rom] >> bit % 8 & 1;
    switch (device->state) {
    case ONEWIRE_IDLE: return true;
    case ONEWIRE_MEASURES: return device->converted == NEVER;
    case ONEWIRE_SENDS:
        device->count++;
        return bit >= 8 * ONEWIRE_SCRATCHPAD || device->scratchpad[bit / 8] >> bit % 8 & 1;
    case ONEWIRE_SEARCH:
        if (device->turn < 2) return device->turn++ ? !mine : mine;
        device->turn = 0;
        device->count++;
        if (one != mine) device->state = ONEWIRE_IDLE;
        if (one == mine && device->count == ONEWIRE_ROM_BITS) device->state = ONEWIRE_FUNCTION;
        return true;
    default: take_bit(onewire, device, one); return true;
    }
}

static void rise(struct onewire *onewire)
{
    uint64_t now = chip_now(onewire->chip), width = (now - onewire->fell) / US;
    bool is_reset = width + SLACK_US >= RESET_US, free = true;
    for (int i = 0; i < devices(onewire); i++) {
        struct onewire_device *device = &onewire->devices[i];
        if (device->converted <= now) finish(onewire, device);
        if (is_reset) {
            device->state = ONEWIRE_ROM;
            device->bits = 0;
        } else if (!slot(onewire, device, width < ONE_BELOW_US))
            free = false;
    }
    if (is_reset && devices(onewire))
        pull(onewire, now + PRESENCE_AFTER_US * US, now + (PRESENCE_AFTER_US + PRESENCE_US) * US);
    else if (!free)
        pull(onewire, now + US / 2, onewire->fell + HOLD_US * US);
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
    onewire->low = onewire->pulling = false;
    for (int i = 0; i < ONEWIRE_DEVICES; i++) start(&onewire->devices[i]);
    chip_alarm(onewire->chip, ALARM_ONEWIRE, NEVER);
    level(onewire, true);
}

void onewire_set(struct onewire *onewire, enum onewire_fault fault)
{
    onewire->fault = fault;
    chip_ground(onewire->chip, PIN, fault == ONEWIRE_SHORTED);
    for (int i = 0; i < ONEWIRE_DEVICES; i++) {
        uint8_t *rom = onewire->devices[i].rom;
        memcpy(rom, (uint8_t[]){fault == ONEWIRE_SWAPPED ? DS18S20 : DS18B20, 0x5A, 0x21, 0x07},
            4);
        rom[6] = (uint8_t)i;
        rom[7] = crc_of(rom, 7);
        onewire->devices[i].state = ONEWIRE_IDLE;
    }
    chip_alarm(onewire->chip, ALARM_ONEWIRE, NEVER);
    level(onewire, true);
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
    onewire_set(onewire, ONEWIRE_WELL);
    onewire_power_on(onewire);
}
