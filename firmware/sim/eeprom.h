/* The EEPROM: what the program writes takes 3.4 ms, and a power cut in between leaves a torn cell.
 *
 * In: accesses to EECR. Out: bytes in the image, and one call of `written` per cell that was
 * programmed, whole or torn. libsimavr writes at once; a real cell is first erased to 0xFF, then
 * its zeros are programmed (data sheet, "EEPROM Data Memory"). */
#ifndef SIM_EEPROM_H
#define SIM_EEPROM_H

#include "chip.h"

struct eeprom_write {
    uint64_t cycle; /* board time of the end, or of the cut */
    uint16_t address;
    uint8_t value; /* what the cell holds now */
    bool torn;
};

struct eeprom {
    struct chip *chip;
    uint8_t *cells;
    avr_int_vector_t *ready;
    /* a write has begun that will end at board time `ends` */
    void (*begun)(void *context, uint64_t ends);
    void (*written)(void *context, const struct eeprom_write *write);
    void *context;
    bool busy;
    uint8_t mode; /* EEPM bits of the write under way */
    uint16_t address;
    uint8_t value;
    uint64_t start, end, window; /* window: until when EEPE is accepted after EEMPE */
    /* bits of each cell that are worn out, and what they read as */
    uint8_t stuck[CHIP_EEPROM], stuck_at[CHIP_EEPROM];
    uint64_t stuck_writes;                             /* that a stuck bit made another value of */
};

/* cells: CHIP_EEPROM bytes. Set the callbacks before the chip runs. */
void eeprom_init(struct eeprom *eeprom, struct chip *chip, uint8_t *cells);

/* A reset does not stop a write under way (data sheet, "EEPROM write during power-down",
 * "Preventing EEPROM corruption"). */
void eeprom_reset(struct eeprom *eeprom);

/* Wear bits of a cell out: from its next write on they read as those of `value`, whatever is
 * written. */
void eeprom_stick(struct eeprom *eeprom, uint16_t address, uint8_t bits, uint8_t value);

/* The supply fails: a write under way stops where it is. */
void eeprom_power_fails(struct eeprom *eeprom);

#endif
