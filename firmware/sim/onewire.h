/* A 1-Wire bus at the Uno's pin 2 (PD2), with its pull-up and one DS18B20 that has a supply.
 *
 * In: the pin's direction, in time; a temperature. Out: the line's level at the pin. The sensor
 * answers Skip ROM, Convert T and Read Scratchpad (DS18B20 data sheet); after power-on its
 * scratchpad says 85 degrees until it has measured, which takes 750 ms. */
#ifndef SIM_ONEWIRE_H
#define SIM_ONEWIRE_H

#include <sim_irq.h>

#include "chip.h"

enum { ONEWIRE_SCRATCHPAD = 9 };

struct onewire {
    struct chip *chip;
    avr_irq_t *pin;
    int16_t temperature; /* sixteenths of a degree */
    bool low;            /* the chip pulls the line down */
    uint64_t fell;
    bool pulling;
    uint64_t release; /* when the sensor lets go */
    enum { ONEWIRE_IDLE, ONEWIRE_ROM, ONEWIRE_FUNCTION, ONEWIRE_SENDS } state;
    uint8_t bits, byte; /* of the command that comes in */
    unsigned sent;      /* bits of the scratchpad */
    uint64_t converted; /* when the measurement under way ends, NEVER: none */
    uint8_t scratchpad[ONEWIRE_SCRATCHPAD];
};

void onewire_init(struct onewire *onewire, struct chip *chip, int16_t sixteenths);
void onewire_power_on(struct onewire *onewire);

#endif
