/* A DHT22 at the Uno's pin 3 (PD3), with the pull-up of its line.
 *
 * In: the pin's direction, in time; temperature and humidity. Out: the line's level at the pin. The
 * sensor answers a call of 0.8 ms or longer, two seconds after power-on and after its last answer
 * (AM2302 data sheet). A fault puts something else in its place. */
#ifndef SIM_DHT22_H
#define SIM_DHT22_H

#include <sim_irq.h>

#include "chip.h"

enum { DHT22_STEPS = 3 + 2 * 40 + 1 };

enum dht22_fault {
    DHT22_WELL,
    DHT22_OPEN,    /* no answer */
    DHT22_SHORTED, /* the line is shorted to ground */
    DHT22_SWAPPED, /* a DHT11 is in its place */
    DHT22_CLONE,   /* no fault: below zero it sends two's complement */
    DHT22_ZEROS,   /* an answer of zeros */
    DHT22_SOAKED,  /* 102.4 percent */
    DHT22_GARBLED, /* a bit of each answer is wrong */
    DHT22_FAULTS
};
extern const char *const dht22_faults[DHT22_FAULTS];

struct dht22 {
    enum dht22_fault fault;
    struct chip *chip;
    avr_irq_t *pin;
    int16_t temperature; /* tenths of a degree */
    uint16_t humidity;   /* tenths of a percent */
    bool low;            /* the chip pulls the line down */
    uint64_t fell;
    uint64_t ready;             /* when it answers again */
    unsigned step;              /* of the answer under way */
    uint8_t lasts[DHT22_STEPS]; /* microseconds; the line is low in each second one */
};

void dht22_init(struct dht22 *dht22, struct chip *chip, int16_t temperature, uint16_t humidity);
void dht22_power_on(struct dht22 *dht22);
void dht22_set(struct dht22 *dht22, enum dht22_fault fault);

#endif
