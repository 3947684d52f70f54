#include "spi.h"

#include <string.h>

enum { SPE = 0x40, MSTR = 0x10, CLOCK = 0x03 };         /* SPCR */
enum { SPIF = 0x80, WCOL = 0x40, SPI2X = 0x01 };        /* SPSR */
enum { BITS = 8, FLOATING = 0xFF };

/* Cycles of a bit. */
static unsigned divider(const struct spi *spi)
{
    static const unsigned dividers[] = {4, 16, 64, 128};
    unsigned found = dividers[chip_get(spi->chip, REG_SPCR) & CLOCK];
    return chip_get(spi->chip, REG_SPSR) & SPI2X ? found / 2 : found;
}

static void show(struct spi *spi, uint8_t set, uint8_t clear)
{
    uint8_t status = chip_get(spi->chip, REG_SPSR);
    chip_put(spi->chip, REG_SPSR, (uint8_t)((status | set) & ~clear));
}

static void on_moved(void *context)
{
    struct spi *spi = context;
    spi->moving = false;
    spi->in = spi->radio ? sx1276_exchange(spi->radio, spi->out) : FLOATING;
    show(spi, SPIF, 0);
}

/* An access to SPDR after a look at SPSR clears the flags. */
static void touch(struct spi *spi)
{
    if (spi->seen) show(spi, 0, SPIF | WCOL);
    spi->seen = false;
}

static void write_data(avr_t *avr, avr_io_addr_t address, uint8_t value, void *context)
{
    struct spi *spi = context;
    (void)avr, (void)address;
    touch(spi);
    if ((chip_get(spi->chip, REG_SPCR) & (SPE | MSTR)) != (SPE | MSTR)) return;
    if (spi->moving) {
        show(spi, WCOL, 0);
        return;
    }
    spi->out = value;
    spi->moving = true;
    chip_alarm(spi->chip, ALARM_SPI, chip_now(spi->chip) + BITS * divider(spi));
}

static uint8_t read_data(avr_t *avr, avr_io_addr_t address, void *context)
{
    struct spi *spi = context;
    (void)avr, (void)address;
    touch(spi);
    return spi->in;
}

static uint8_t read_status(avr_t *avr, avr_io_addr_t address, void *context)
{
    struct spi *spi = context;
    (void)avr;
    uint8_t status = chip_get(spi->chip, address);
    spi->seen |= (status & (SPIF | WCOL)) != 0;
    return status;
}

static void write_status(avr_t *avr, avr_io_addr_t address, uint8_t value, void *context)
{
    struct spi *spi = context;
    (void)avr, (void)address;
    show(spi, value & SPI2X, (uint8_t)(~value & SPI2X));
}

void spi_init(struct spi *spi, struct chip *chip)
{
    memset(spi, 0, sizeof *spi);
    spi->chip = chip;
    chip_take_register(chip, REG_SPCR, NULL, NULL, NULL);
    chip_take_register(chip, REG_SPSR, read_status, write_status, spi);
    chip_take_register(chip, REG_SPDR, read_data, write_data, spi);
    chip_alarm_handler(chip, ALARM_SPI, on_moved, spi);
}

void spi_reset(struct spi *spi)
{
    spi->moving = spi->seen = false;
    chip_alarm(spi->chip, ALARM_SPI, NEVER);
}
