/* The ADC's input voltages, set by hand or, on channel 0, by a schedule of the rig; and a log of
 * every conversion with the time of this machine.
 *
 * With a schedule each conversion on channel 0 finds another voltage than the 1023 before it, from
 * the very first one on, through resets and power cuts. So every reading
 * of a program can be compared with its voltage. The voltage lies in the middle of a step of the ADC,
 * so that the result is exact. */
#ifndef SIM_ADC_H
#define SIM_ADC_H

#include "chip.h"

enum { ADC_CHANNELS = 8, ADC_STEPS = 1024 };

struct adc {
    struct chip *chip;
    int log; /* file descriptor, -1 for none */
    bool scheduled;
    uint16_t step; /* of the next conversion on channel 0 */
    uint32_t microvolts[ADC_CHANNELS];
    void (*sampled)(void *context); /* a conversion on channel 0 begins */
    void *context;
};

void adc_init(struct adc *adc, struct chip *chip);

void adc_set(struct adc *adc, unsigned channel, uint16_t millivolts);

/* Channel 0 follows the schedule from now on; step: of the first conversion, 0 to 1023. */
void adc_schedule(struct adc *adc, uint16_t step);

/* The board has started: a line in the log, which so relates board time to this machine's, and the
 * voltages for the chip, which has forgotten them. */
void adc_start(struct adc *adc, const char *cause);

#endif
