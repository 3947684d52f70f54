/* A 1-Wire bus at the Uno's pin 2 (PD2), with its pull-up and one DS18B20 that has a supply, or what
 * may stand there instead.
 *
 * In: the pin's direction, in time; a temperature; a fault. Out: the line's level at the pin. The
 * sensor answers Search ROM, Skip ROM, Convert T (and a read slot that asks whether it measures),
 * Write and Read Scratchpad (DS18B20 data sheet); after power-on its scratchpad says 85 degrees
 * until it has measured, which takes 750 ms. */
#ifndef SIM_ONEWIRE_H
#define SIM_ONEWIRE_H

#include <sim_irq.h>

#include "chip.h"

enum { ONEWIRE_SCRATCHPAD = 9, ONEWIRE_ROM_BITS = 64, ONEWIRE_DEVICES = 2 };

enum onewire_fault {
    ONEWIRE_WELL,
    ONEWIRE_OPEN,       /* no sensor is on the bus */
    ONEWIRE_SHORTED,    /* the line is shorted to ground */
    ONEWIRE_SWAPPED,    /* a DS18S20 is in its place */
    ONEWIRE_CONTENTION, /* a second DS18B20 is on the bus, 20 degrees warmer */
    ONEWIRE_WEAK,       /* a clone with too little power: it reports 127.94 degrees */
    ONEWIRE_RESTARTS,   /* its power goes after each measurement has begun */
    ONEWIRE_FAULTS
};
extern const char *const onewire_faults[ONEWIRE_FAULTS];

struct onewire_device {
    uint8_t rom[ONEWIRE_ROM_BITS / 8];
    enum {
        ONEWIRE_IDLE,
        ONEWIRE_ROM,
        ONEWIRE_SEARCH,
        ONEWIRE_FUNCTION,
        ONEWIRE_TAKES,
        ONEWIRE_MEASURES,
        ONEWIRE_SENDS
    } state;
    uint8_t bits, byte; /* of the command or byte that comes in */
    unsigned count;     /* bits of the ROM or the scratchpad that are through, or bytes taken */
    uint8_t turn;       /* in a search: 0 tells the bit, 1 its inverse, 2 takes the answer */
    uint64_t converted; /* when the measurement under way ends, NEVER: none */
    uint8_t scratchpad[ONEWIRE_SCRATCHPAD];
};

struct onewire {
    struct chip *chip;
    avr_irq_t *pin;
    int16_t temperature; /* sixteenths of a degree */
    enum onewire_fault fault;
    bool low; /* the chip pulls the line down */
    uint64_t fell;
    bool pulling;
    uint64_t release; /* when the sensor releases the line */
    struct onewire_device devices[ONEWIRE_DEVICES];
};

void onewire_init(struct onewire *onewire, struct chip *chip, int16_t sixteenths);
void onewire_power_on(struct onewire *onewire);
void onewire_set(struct onewire *onewire, enum onewire_fault fault);

#endif
