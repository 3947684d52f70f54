/* The 2-wire serial interface as a master, in place of libsimavr's, and one memory on its bus.
 *
 * In: accesses to TWCR. Out: status codes after as many cycles as the bus needs (ATmega328P data
 * sheet, "2-wire Serial Interface"). Polled only: there is no interrupt. */
#ifndef SIM_TWI_H
#define SIM_TWI_H

#include "chip.h"
#include "memory.h"

struct twi {
    struct chip *chip;
    struct memory *memory; /* NULL: no device is on the bus */
    uint8_t control;       /* of the operation under way */
    bool started, addressed, reads, taken;
};

void twi_init(struct twi *twi, struct chip *chip);
void twi_reset(struct twi *twi);

#endif
