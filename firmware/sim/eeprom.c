#include "eeprom.h"

#include <string.h>

enum { EERE = 0x01, EEPE = 0x02, EEMPE = 0x04, EERIE = 0x08, EEPM = 0x30 };
enum { ERASE_AND_WRITE = 0x00, ERASE_ONLY = 0x10, WRITE_ONLY = 0x20 };

#define CYCLES_ERASE_AND_WRITE (CHIP_HZ / 10000 * 34)
#define CYCLES_HALF (CHIP_HZ / 10000 * 18) /* erase only or write only */

static void show(struct eeprom *eeprom)
{
    uint8_t eecr = chip_get(eeprom->chip, REG_EECR) & (EEPM | EERIE);
    if (eeprom->busy) eecr |= EEPE;
    if (eeprom->window > chip_now(eeprom->chip)) eecr |= EEMPE;
    chip_put(eeprom->chip, REG_EECR, eecr);
    chip_interrupt_level(eeprom->chip, eeprom->ready, !eeprom->busy);
}

static void program(struct eeprom *eeprom, uint8_t value, bool torn)
{
    uint8_t stuck = eeprom->stuck[eeprom->address], meant = value;
    value = (uint8_t)((value & ~stuck) | (eeprom->stuck_at[eeprom->address] & stuck));
    eeprom->stuck_writes += value != meant;
    eeprom->busy = false;
    eeprom->cells[eeprom->address] = value;
    struct eeprom_write write = {
        .cycle = chip_now(eeprom->chip), .address = eeprom->address, .value = value, .torn = torn};
    eeprom->written(eeprom->context, &write);
}

static void on_programmed(void *context)
{
    struct eeprom *eeprom = context;
    uint8_t old = eeprom->cells[eeprom->address], value = eeprom->value;
    if (eeprom->mode == ERASE_ONLY) value = 0xFF;
    if (eeprom->mode == WRITE_ONLY) value &= old;
    program(eeprom, value, false);
    show(eeprom);
}

void eeprom_power_fails(struct eeprom *eeprom)
{
    if (!eeprom->busy) return;
    uint64_t whole = eeprom->end - eeprom->start, past = chip_now(eeprom->chip) - eeprom->start;
    uint64_t erase = eeprom->mode == ERASE_ONLY   ? whole
                     : eeprom->mode == WRITE_ONLY ? 0
                                                  : whole / 2;
    uint8_t old = eeprom->cells[eeprom->address], value;
    if (past < erase)
        value = old | chip_some_bits(eeprom->chip, past, erase); /* some bits are erased already */
    else {
        uint8_t erased = eeprom->mode == WRITE_ONLY ? old : 0xFF, zeros = (uint8_t)~eeprom->value;
        /* some zeros are programmed already */
        value = erased & (uint8_t)~(zeros & chip_some_bits(eeprom->chip, past - erase, whole - erase));
    }
    chip_alarm(eeprom->chip, ALARM_EEPROM, NEVER);
    program(eeprom, value, true);
}

static uint16_t addressed(const struct eeprom *eeprom)
{
    return (chip_get(eeprom->chip, REG_EEARL) | chip_get(eeprom->chip, REG_EEARH) << 8) %
           CHIP_EEPROM;
}

static void begin(struct eeprom *eeprom)
{
    eeprom->busy = true;
    eeprom->window = 0;
    eeprom->mode = chip_get(eeprom->chip, REG_EECR) & EEPM;
    eeprom->address = addressed(eeprom);
    eeprom->value = chip_get(eeprom->chip, REG_EEDR);
    eeprom->start = chip_now(eeprom->chip);
    eeprom->end =
        eeprom->start + (eeprom->mode == ERASE_AND_WRITE ? CYCLES_ERASE_AND_WRITE : CYCLES_HALF);
    chip_halt_cpu(eeprom->chip, 2);
    chip_alarm(eeprom->chip, ALARM_EEPROM, eeprom->end);
    eeprom->begun(eeprom->context, eeprom->end);
}

static void write_control(avr_t *avr, avr_io_addr_t address, uint8_t value, void *context)
{
    (void)avr;
    struct eeprom *eeprom = context;
    /* locked during a write */
    uint8_t mode = eeprom->busy ? chip_get(eeprom->chip, address) & EEPM : value & EEPM;
    bool unlocked = eeprom->window > chip_now(eeprom->chip);
    chip_put(eeprom->chip, address, mode | (value & EERIE));
    if (unlocked && value & EEPE && !eeprom->busy)
        begin(eeprom);
    else if (value & EEMPE)
        /* four cycles, counted from the end of this instruction */
        eeprom->window = chip_now(eeprom->chip) + 6;
    if (value & EERE && !eeprom->busy) {
        chip_put(eeprom->chip, REG_EEDR, eeprom->cells[addressed(eeprom)]);
        chip_halt_cpu(eeprom->chip, 4);
    }
    show(eeprom);
}

/* EEMPE falls by itself after four cycles. */
static uint8_t read_control(avr_t *avr, avr_io_addr_t address, void *context)
{
    (void)avr;
    show(context);
    return chip_get(((struct eeprom *)context)->chip, address);
}

static void on_handler(struct avr_irq_t *irq, uint32_t running, void *context)
{
    (void)irq;
    if (!running) show(context);
}

void eeprom_init(struct eeprom *eeprom, struct chip *chip, uint8_t *cells)
{
    memset(eeprom, 0, sizeof *eeprom);
    eeprom->chip = chip;
    eeprom->cells = cells;
    eeprom->ready = chip_vector(chip, VECTOR_EEPROM);
    chip_take_register(chip, REG_EECR, read_control, write_control, eeprom);
    chip_alarm_handler(chip, ALARM_EEPROM, on_programmed, eeprom);
    avr_irq_register_notify(eeprom->ready->irq + AVR_INT_IRQ_RUNNING, on_handler, eeprom);
}

void eeprom_stick(struct eeprom *eeprom, uint16_t address, uint8_t bits, uint8_t value)
{
    eeprom->stuck[address] = bits;
    eeprom->stuck_at[address] = value;
}

void eeprom_reset(struct eeprom *eeprom)
{
    eeprom->window = 0;
    show(eeprom);
}
