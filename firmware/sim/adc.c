#include "adc.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <avr_adc.h>

#define NS_PER_S 1000000000u
#define REFERENCE_MV 5000u
#define STRIDE 619 /* odd, so that every step comes before one comes again; neighbours differ much */

static void log_line(struct adc *adc, const char *what)
{
    struct timespec now;
    char line[128];
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t ns = (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
    int length = snprintf(
        line, sizeof line, "%" PRIu64 " %" PRIu64 " %s\n", chip_now(adc->chip), ns, what);
    if (adc->log >= 0 && write(adc->log, line, (size_t)length) != length)
        perror("simboard: log");
}

static void apply(struct adc *adc, unsigned channel, uint32_t millivolts)
{
    avr_raise_irq(
        avr_io_getirq(adc->chip->avr, AVR_IOCTL_ADC_GETIRQ, (int)(ADC_IRQ_ADC0 + channel)),
        millivolts);
}

/* libsimavr 1.6 has 1023 steps from 0 to the reference, the chip 1024 (data sheet, "ADC Conversion
 * Result"): give it what makes this one. */
static void apply_step(struct adc *adc, uint16_t step)
{
    apply(adc, 0, (2u * step + 1) * REFERENCE_MV / (2 * (ADC_STEPS - 1)));
}

static void on_conversion(avr_irq_t *irq, uint32_t value, void *context)
{
    struct adc *adc = context;
    union {
        uint32_t value;
        avr_adc_mux_t mux;
    } trigger = {.value = value};
    unsigned channel = trigger.mux.src;
    char what[32];
    (void)irq;
    if (trigger.mux.kind != ADC_MUX_SINGLE || channel >= ADC_CHANNELS) return;
    if (channel == 0 && adc->scheduled) {
        adc->microvolts[0] =
            (uint32_t)((2ull * adc->step + 1) * REFERENCE_MV * 1000 / (2 * ADC_STEPS));
        apply_step(adc, adc->step);
        adc->step = (adc->step + STRIDE) % ADC_STEPS;
    }
    snprintf(what, sizeof what, "%u %" PRIu32, channel, adc->microvolts[channel]);
    log_line(adc, what);
    if (channel == 0 && adc->sampled) adc->sampled(adc->context);
}

void adc_init(struct adc *adc, struct chip *chip)
{
    adc->chip = chip;
    adc->log = -1;
    avr_irq_register_notify(
        avr_io_getirq(chip->avr, AVR_IOCTL_ADC_GETIRQ, ADC_IRQ_OUT_TRIGGER), on_conversion, adc);
}

void adc_set(struct adc *adc, unsigned channel, uint16_t millivolts)
{
    adc->microvolts[channel] = millivolts * 1000u;
    apply(adc, channel, millivolts);
}

void adc_schedule(struct adc *adc, uint16_t step)
{
    adc->scheduled = true;
    adc->step = step;
}

void adc_start(struct adc *adc, const char *cause)
{
    char what[32];
    for (unsigned i = 0; i < ADC_CHANNELS; i++) apply(adc, i, adc->microvolts[i] / 1000);
    snprintf(what, sizeof what, "start %s", cause);
    log_line(adc, what);
}
