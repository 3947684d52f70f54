/* A DHT22 at the Uno's pin 3 (PD3), with the pull-up of its line.
 *
 * In: the pin's direction, in time; temperature and humidity. Out: the line's level at the pin. The
 * sensor answers a call of 0.8 ms or longer, two seconds after power-on and after its last answer
 * (AM2302 data sheet). */
#ifndef SIM_DHT22_H
#define SIM_DHT22_H

#include <sim_irq.h>

#include "chip.h"

enum { DHT22_STEPS = 3 + 2 * 40 + 1 };

struct dht22 {
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

#endif
