#include "watchdog.h"

#include <string.h>

enum { WDIF = 0x80, WDIE = 0x40, WDP3 = 0x20, WDCE = 0x10, WDE = 0x08, WDP = 0x27 };

static uint64_t timeout(uint8_t wdtcsr)
{
    int prescaler = (wdtcsr & 7) | (wdtcsr & WDP3 ? 8 : 0);
    return (uint64_t)(2048u << (prescaler > 9 ? 9 : prescaler)) * (CHIP_HZ / 128000);
}

/* Its oscillator jitters against the chip's clock: the firmware takes its entropy from that. */
static uint64_t jittered(struct watchdog *watchdog, uint64_t cycles)
{
    return cycles - cycles / 512 + chip_noise(watchdog->chip) % (cycles / 256);
}

static void restart(struct watchdog *watchdog)
{
    uint8_t wdtcsr = chip_get(watchdog->chip, REG_WDTCSR);
    chip_alarm(watchdog->chip, ALARM_WATCHDOG,
        wdtcsr & (WDE | WDIE)
            ? chip_now(watchdog->chip) + jittered(watchdog, timeout(wdtcsr))
            : NEVER);
}

static void on_timeout(void *context)
{
    struct watchdog *watchdog = context;
    uint8_t wdtcsr = chip_get(watchdog->chip, REG_WDTCSR);
    if (!(wdtcsr & WDIE)) {
        watchdog->bites(watchdog->context);
        return;
    }
    avr_raise_interrupt(watchdog->chip->avr, watchdog->interrupt);
    /* In interrupt and reset mode the hardware clears WDIE, so that the next timeout resets.
     * libsimavr looks at WDIE when it serves the interrupt, therefore on_handler clears it. */
    restart(watchdog);
}

static void on_handler(struct avr_irq_t *irq, uint32_t running, void *context)
{
    (void)irq;
    struct watchdog *watchdog = context;
    uint8_t wdtcsr = chip_get(watchdog->chip, REG_WDTCSR);
    if (running && wdtcsr & WDE) chip_put(watchdog->chip, REG_WDTCSR, wdtcsr & (uint8_t)~WDIE);
}

static void write_control(avr_t *avr, avr_io_addr_t address, uint8_t value, void *context)
{
    struct watchdog *watchdog = context;
    uint8_t old = chip_get(watchdog->chip, address), fresh;
    bool unlocked = watchdog->window > chip_now(watchdog->chip);
    if (unlocked)
        fresh = value & (WDIE | WDE | WDP);
    else
        /* WDE may be set, never cleared; the prescaler stays */
        fresh = (value & WDIE) | (old & WDP) | ((old | value) & WDE);
    if (chip_get(watchdog->chip, REG_MCUSR) & RESET_WATCHDOG) fresh |= WDE;
    if (value & WDIF) avr_clear_interrupt(avr, watchdog->interrupt);
    /* four cycles, from the end of this instruction */
    watchdog->window = value & WDCE && value & WDE ? chip_now(watchdog->chip) + 6 : 0;
    chip_put(watchdog->chip, address, fresh | (old & (value & WDIF ? 0 : WDIF)));
    if (unlocked || (old ^ fresh) & (WDE | WDIE)) restart(watchdog);
}

static int on_ioctl(avr_io_t *io, uint32_t request, void *parameter)
{
    (void)parameter;
    if (request != AVR_IOCTL_DEF('w', 'd', 't', 'r')) return -1;
    restart((struct watchdog *)io);
    return 0;
}

void watchdog_init(
    struct watchdog *watchdog, struct chip *chip, void (*bites)(void *context), void *context)
{
    memset(watchdog, 0, sizeof *watchdog);
    watchdog->chip = chip;
    watchdog->bites = bites;
    watchdog->context = context;
    watchdog->interrupt = chip_vector(chip, VECTOR_WATCHDOG);
    watchdog->io.kind = "onceway watchdog";
    watchdog->io.ioctl = on_ioctl;
    avr_register_io(chip->avr, &watchdog->io);
    chip_take_register(chip, REG_WDTCSR, NULL, write_control, watchdog);
    chip_alarm_handler(chip, ALARM_WATCHDOG, on_timeout, watchdog);
    avr_irq_register_notify(watchdog->interrupt->irq + AVR_INT_IRQ_RUNNING, on_handler, watchdog);
}

void watchdog_reset(struct watchdog *watchdog, bool forced)
{
    watchdog->window = 0;
    chip_put(watchdog->chip, REG_WDTCSR, forced ? WDE : 0);
    restart(watchdog);
}
