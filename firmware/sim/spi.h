/* The SPI as a master (ATmega328P data sheet, chapter "SPI - Serial Peripheral Interface"), instead
 * of libsimavr's, whose bytes take 100 us at any clock.
 *
 * In: register accesses of the program. Out: bytes to the radio, and its bytes. SS is taken to be
 * an output, and interrupts are not raised. */
#ifndef SIM_SPI_H
#define SIM_SPI_H

#include "chip.h"
#include "sx1276.h"

struct spi {
    struct chip *chip;
    struct sx1276 *radio; /* NULL: no device drives MISO */
    uint8_t out, in;      /* the byte that is moved, and the last one that came */
    bool moving, seen;    /* seen: SPSR was read while SPIF was set */
};

void spi_init(struct spi *spi, struct chip *chip);
void spi_reset(struct spi *spi);

#endif
