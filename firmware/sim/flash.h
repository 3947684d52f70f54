/* Self-programming: how the boot loader erases and writes flash pages (data sheet, "Boot Loader
 * Support").
 *
 * In: writes to SPMCSR and the SPM instruction. Out: bytes in the image. A page takes 4.5 ms; a
 * power cut in between leaves a torn page; a page of the boot loader's half of the flash halts the
 * CPU meanwhile; the boot loader itself is locked, as on an Uno. */
#ifndef SIM_FLASH_H
#define SIM_FLASH_H

#include "chip.h"

struct flash {
    avr_io_t io; /* first: libsimavr finds the handler of SPM through it */
    struct chip *chip;
    avr_int_vector_t *ready;
    uint32_t locked_from; /* SPM does nothing from this address on */
    uint8_t buffer[CHIP_PAGE];
    bool filled[CHIP_PAGE / 2];
    bool busy, erasing;
    uint32_t page;
    uint64_t start, end;
};

void flash_init(struct flash *flash, struct chip *chip, uint32_t locked_from);
void flash_reset(struct flash *flash);
void flash_power_fails(struct flash *flash);

#endif
