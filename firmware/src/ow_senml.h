/* SenML (RFC 8428) in its CBOR form: one pack with one record of a base name, a base time if known, and a value. */
#ifndef OW_SENML_H
#define OW_SENML_H

#include <stdint.h>

/* A value of numerator / 2^shift, written as a 32-bit float, which holds it exactly: numerator below 2^24, shift below 100. */
struct ow_senml_value {
    uint32_t numerator;
    uint8_t shift;
};

struct ow_senml_record {
    const char *device; /* base name is "DEVICE:"; at most OW_NAME_MAX characters */
    const char *name;   /* at most 20 characters, e.g. "adc0" */
    const char *unit;   /* at most 20 characters, a unit of the SenML registry, e.g. "V" */
    uint32_t time;      /* UTC seconds, 0: not known, then the record has no time */
    struct ow_senml_value value;
};

#define OW_SENML_SIZE(names) (22 + (names)) /* `names`: characters of device, name and unit together */

/* Returns the length written to `out`. */
uint8_t ow_senml_encode(uint8_t *out, const struct ow_senml_record *record);

#endif
