#include "flash.h"

#include <string.h>

enum {
    SPMIE = 0x80,
    RWWSB = 0x40,
    RWWSRE = 0x10,
    PGWRT = 0x04,
    PGERS = 0x02,
    SPMEN = 0x01,
    OPERATION = 0x1F
};
enum { NRWW_START = 0x7000 };

#define CYCLES_PAGE (CHIP_HZ / 10000 * 45)

static uint8_t *page_bytes(struct flash *flash) { return flash->chip->avr->flash + flash->page; }

static void empty_buffer(struct flash *flash)
{
    memset(flash->buffer, 0xFF, sizeof flash->buffer);
    memset(flash->filled, 0, sizeof flash->filled);
}

static void finish(struct flash *flash)
{
    uint8_t *bytes = page_bytes(flash);
    for (unsigned i = 0; i < CHIP_PAGE; i++)
        bytes[i] = flash->erasing ? 0xFF : bytes[i] & flash->buffer[i];
    if (!flash->erasing) empty_buffer(flash);
    flash->busy = false;
}

static void on_programmed(void *context)
{
    struct flash *flash = context;
    finish(flash);
    chip_put(flash->chip, REG_SPMCSR, chip_get(flash->chip, REG_SPMCSR) & (SPMIE | RWWSB));
    chip_interrupt_level(flash->chip, flash->ready, true);
}

void flash_power_fails(struct flash *flash)
{
    if (!flash->busy) return;
    uint64_t past = chip_now(flash->chip) - flash->start, whole = flash->end - flash->start;
    uint8_t *bytes = page_bytes(flash);
    for (unsigned i = 0; i < CHIP_PAGE; i++) {
        if (chip_noise(flash->chip) % whole >= past) continue; /* this byte was not reached */
        bytes[i] = flash->erasing ? 0xFF : bytes[i] & flash->buffer[i];
    }
    flash->busy = false;
    chip_alarm(flash->chip, ALARM_FLASH, NEVER);
}

static void begin(struct flash *flash, uint16_t z, bool erasing)
{
    uint32_t page = z & (CHIP_FLASH - CHIP_PAGE);
    if (page >= flash->locked_from) {
        chip_put(flash->chip, REG_SPMCSR, chip_get(flash->chip, REG_SPMCSR) & (SPMIE | RWWSB));
        return;
    }
    flash->busy = true;
    flash->erasing = erasing;
    flash->page = page;
    flash->start = chip_now(flash->chip);
    flash->end = flash->start + CYCLES_PAGE;
    chip_alarm(flash->chip, ALARM_FLASH, flash->end);
    if (page >= NRWW_START)
        chip_halt_cpu(flash->chip, CYCLES_PAGE);
    else
        chip_put(flash->chip, REG_SPMCSR, chip_get(flash->chip, REG_SPMCSR) | RWWSB);
}

static void fill(struct flash *flash, uint16_t z)
{
    unsigned word = z % CHIP_PAGE / 2;
    if (flash->filled[word]) return; /* a word can be filled once */
    flash->filled[word] = true;
    flash->buffer[2 * word] = chip_get(flash->chip, 0);
    flash->buffer[2 * word + 1] = chip_get(flash->chip, 1);
}

static int on_ioctl(avr_io_t *io, uint32_t request, void *parameter)
{
    (void)parameter;
    if (request != AVR_IOCTL_DEF('f', 's', 'p', 'm')) return -1;
    struct flash *flash = (struct flash *)io;
    uint8_t spmcsr = chip_get(flash->chip, REG_SPMCSR), operation = spmcsr & OPERATION;
    uint16_t z = (uint16_t)(chip_get(flash->chip, R_ZL) | chip_get(flash->chip, R_ZH) << 8);
    if (flash->busy || !(operation & SPMEN)) return 0;
    if (operation == (PGERS | SPMEN) || operation == (PGWRT | SPMEN)) {
        begin(flash, z, operation & PGERS);
        return 0;
    }
    if (operation == SPMEN) fill(flash, z);
    if (operation == (RWWSRE | SPMEN)) {
        empty_buffer(flash);
        spmcsr &= (uint8_t)~RWWSB;
    }
    chip_put(flash->chip, REG_SPMCSR, spmcsr & (SPMIE | RWWSB));
    return 0;
}

static void write_control(avr_t *avr, avr_io_addr_t address, uint8_t value, void *context)
{
    (void)avr;
    struct flash *flash = context;
    uint8_t now = chip_get(flash->chip, address);
    if (flash->busy)
        /* locked until the page is done */
        chip_put(flash->chip, address, (now & (uint8_t)~SPMIE) | (value & SPMIE));
    else
        chip_put(flash->chip, address, (now & RWWSB) | (value & (SPMIE | OPERATION)));
    chip_interrupt_level(flash->chip, flash->ready, !(chip_get(flash->chip, address) & SPMEN));
}

void flash_init(struct flash *flash, struct chip *chip, uint32_t locked_from)
{
    memset(flash, 0, sizeof *flash);
    flash->chip = chip;
    flash->locked_from = locked_from;
    flash->ready = chip_vector(chip, VECTOR_SPM);
    flash->io.kind = "onceway flash";
    flash->io.ioctl = on_ioctl;
    empty_buffer(flash);
    avr_register_io(chip->avr, &flash->io);
    chip_take_register(chip, REG_SPMCSR, NULL, write_control, flash);
    chip_alarm_handler(chip, ALARM_FLASH, on_programmed, flash);
}

void flash_reset(struct flash *flash)
{
    chip_put(flash->chip, REG_SPMCSR, flash->busy ? SPMEN : 0);
    empty_buffer(flash);
}
