/*
 * A board in memory: what ow_hal.h asks for, for a program in a shared library that has all of its
 * state to itself. The caller keeps what outlives the power: EEPROM, identity page, the logs.
 *
 * Time goes on in board_run, in milliseconds, one loop() in each, and while the program waits for the
 * EEPROM. The line carries PER_MS bytes in one each way. A write to the EEPROM takes WRITE_MS. When the power is cut in the middle
 * of one, its cell holds what it held, or what was written, or is erased, or something between.
 * What comes in and goes out stands in struct outside; board.py has the same.
 */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "ow_hal.h"
#include "ow_sketch.h"

enum { PER_MS = 12, WRITE_MS = 4, WAITS = 100, LINE = 8192, LOG = 1 << 18 };
enum { CYCLES_PER_MS = 16000, NS_PER_MS = 1000000 }; /* of the Uno, of the history */
enum tear { UNTOUCHED, WRITTEN, ERASED, BETWEEN };

struct outside {
    uint8_t eeprom[OW_EEPROM_SIZE];
    uint8_t identity[OW_IDENTITY_SIZE];
    uint32_t now;    /* ms */
    uint32_t random; /* what the board draws, and what lies at its ADC */
    uint32_t cut_at; /* the power is cut in so many writes to the EEPROM; 0: it is not */
    uint32_t tear;
    uint32_t busy_until;
    uint32_t rx_at, rx_end, tx_end;
    uint32_t writes_end, conversions_end;
    uint8_t rx[LINE], tx[LINE];
    char writes[LOG], conversions[LOG]; /* as the simulated board's logs are (firmware/sim) */
};

/* All variables of the program lie between these: this file is linked first. */
extern uint8_t _end[] __attribute__((visibility("hidden")));
uint8_t board_first[1] = {1};

static struct outside *outside;
static bool started;
static uint8_t may_read, may_write; /* bytes in this millisecond */
static uint16_t asked;              /* times in a row that the EEPROM was busy */
static jmp_buf dead;

static uint32_t draw(void)
{
    outside->random ^= outside->random << 13;
    outside->random ^= outside->random >> 17;
    outside->random ^= outside->random << 5;
    return outside->random;
}

static unsigned long long cycle(void)
{
    return (unsigned long long)outside->now * CYCLES_PER_MS;
}

size_t board_size(void)
{
    return (size_t)(_end - board_first);
}

/* Whether the power lasted until then. After it has failed, all variables must be made as they were
 * when the library was loaded. */
bool board_run(struct outside *memory, uint32_t until)
{
    outside = memory;
    if (setjmp(dead)) {
        return false;
    }
    if (!started) {
        started = true;
        outside->conversions_end += (uint32_t)sprintf(outside->conversions + outside->conversions_end,
            "%llu %llu start power-on\n", cycle(), (unsigned long long)outside->now * NS_PER_MS);
        outside->writes_end += (uint32_t)sprintf(
            outside->writes + outside->writes_end, "%llu start power-on\n", cycle());
        setup();
    }
    while (outside->now < until) {
        may_read = may_write = PER_MS;
        loop();
        outside->now++;
    }
    return true;
}

uint16_t ow_hal_millis(void)
{
    return (uint16_t)outside->now;
}

enum ow_reset_cause ow_hal_reset_cause(void)
{
    return OW_RESET_POWER_ON;
}

void ow_hal_reboot(void)
{
    longjmp(dead, 1);
}

uint32_t ow_hal_entropy(void)
{
    return draw();
}

int16_t ow_hal_uart_read(void)
{
    if (outside->rx_at == outside->rx_end || may_read == 0) {
        return -1;
    }
    may_read--;
    return outside->rx[outside->rx_at++];
}

bool ow_hal_uart_writable(void)
{
    return may_write > 0;
}

void ow_hal_uart_write(uint8_t byte)
{
    may_write--;
    outside->tx[outside->tx_end++] = byte;
}

uint8_t ow_hal_eeprom_read(uint16_t address)
{
    return outside->eeprom[address];
}

/* Somebody who asks again and again waits for it, and time goes by. */
bool ow_hal_eeprom_busy(void)
{
    bool busy = outside->now < outside->busy_until;
    asked = busy ? asked + 1 : 0;
    if (asked == WAITS) {
        asked = 0;
        outside->now++;
        may_read = may_write = PER_MS;
    }
    return busy;
}

static uint8_t torn(uint8_t before, uint8_t after)
{
    switch (outside->tear) {
    case UNTOUCHED:
        return before;
    case WRITTEN:
        return after;
    case ERASED:
        return 0xFF;
    default:
        return after | (uint8_t)draw(); /* erased, and only some of the zeros programmed */
    }
}

void ow_hal_eeprom_write(uint16_t address, uint8_t value)
{
    bool cut = outside->cut_at && --outside->cut_at == 0;
    uint8_t *cell = outside->eeprom + address;
    *cell = cut ? torn(*cell, value) : value;
    outside->busy_until = outside->now + WRITE_MS;
    outside->writes_end += (uint32_t)sprintf(outside->writes + outside->writes_end,
        "%llu %03x %02x %d\n", cycle(), address, *cell, cut);
    if (cut) {
        longjmp(dead, 1);
    }
}

void ow_hal_identity_read(uint8_t *bytes, uint8_t length)
{
    memcpy(bytes, outside->identity, length);
}

uint16_t ow_hal_adc_read(uint8_t channel)
{
    unsigned value = draw() % 1024;
    outside->conversions_end += (uint32_t)sprintf(outside->conversions + outside->conversions_end,
        "%llu %llu %u %u\n", cycle(), (unsigned long long)outside->now * NS_PER_MS, channel,
        (unsigned)((value * 5000000ull + 1023) / 1024));
    return (uint16_t)value;
}

void ow_hal_watch(void)
{
}

void ow_hal_led(bool on)
{
    (void)on;
}

void ow_hal_idle(void)
{
}
