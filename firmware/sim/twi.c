#include "twi.h"

#include <string.h>

enum { TWINT = 0x80, TWEA = 0x40, TWSTA = 0x20, TWSTO = 0x10, TWEN = 0x04, PRESCALER = 0x03 };
enum { START = 0x08, REPEATED = 0x10, WRITE_ACK = 0x18, SENT_ACK = 0x28, READ_ACK = 0x40 };
enum { GOT_ACK = 0x50, NACK = 0x08 };
enum { BITS_OF_A_BYTE = 9, BITS_OF_A_START = 1 };

static uint64_t bit_cycles(const struct twi *twi)
{
    unsigned scale = 1u << 2 * (chip_get(twi->chip, REG_TWSR) & PRESCALER);
    return 16 + 2ull * chip_get(twi->chip, REG_TWBR) * scale;
}

static uint8_t start(struct twi *twi)
{
    uint8_t status = twi->started ? REPEATED : START;
    twi->started = true;
    twi->addressed = false;
    return status;
}

static uint8_t move_byte(struct twi *twi)
{
    uint8_t byte = chip_get(twi->chip, REG_TWDR);
    if (!twi->addressed) {
        twi->addressed = true;
        twi->reads = byte & 1;
        twi->taken = twi->memory && memory_address(twi->memory, byte >> 1, twi->reads);
        return (uint8_t)((twi->reads ? READ_ACK : WRITE_ACK) + (twi->taken ? 0 : NACK));
    }
    if (twi->reads) {
        chip_put(twi->chip, REG_TWDR, twi->taken ? memory_read(twi->memory) : 0xFF);
        return (uint8_t)(GOT_ACK + (twi->control & TWEA ? 0 : NACK));
    }
    return (uint8_t)(SENT_ACK + (twi->taken && memory_write(twi->memory, byte) ? 0 : NACK));
}

static void on_done(void *context)
{
    struct twi *twi = context;
    uint8_t status = twi->control & TWSTA ? start(twi) : move_byte(twi);
    chip_put(twi->chip, REG_TWSR, status | (chip_get(twi->chip, REG_TWSR) & PRESCALER));
    chip_put(twi->chip, REG_TWCR, chip_get(twi->chip, REG_TWCR) | TWINT);
}

static void write_control(avr_t *avr, avr_io_addr_t address, uint8_t value, void *context)
{
    struct twi *twi = context;
    (void)avr;
    chip_put(twi->chip, address, value & (uint8_t) ~(TWINT | TWSTO));
    if (!(value & TWEN)) {
        twi_reset(twi);
        return;
    }
    if (!(value & TWINT)) return;
    if (value & TWSTO) {
        twi->started = twi->addressed = false;
        if (twi->memory) memory_stop(twi->memory);
        return;
    }
    twi->control = value;
    unsigned bits = value & TWSTA ? BITS_OF_A_START : BITS_OF_A_BYTE;
    chip_alarm(twi->chip, ALARM_TWI, chip_now(twi->chip) + bits * bit_cycles(twi));
    if (twi->memory && twi->taken && twi->addressed && !twi->reads && !(value & TWSTA))
        memory_byte_begins(twi->memory, chip_now(twi->chip) + bits * bit_cycles(twi));
}

void twi_init(struct twi *twi, struct chip *chip)
{
    memset(twi, 0, sizeof *twi);
    twi->chip = chip;
    chip_take_register(chip, REG_TWCR, NULL, write_control, twi);
    chip_take_register(chip, REG_TWDR, NULL, NULL, NULL);
    chip_take_register(chip, REG_TWSR, NULL, NULL, NULL);
    chip_take_register(chip, REG_TWBR, NULL, NULL, NULL);
    chip_alarm_handler(chip, ALARM_TWI, on_done, twi);
}

void twi_reset(struct twi *twi)
{
    twi->started = twi->addressed = twi->taken = false;
    chip_alarm(twi->chip, ALARM_TWI, NEVER);
}
