/* SenML (RFC 8428) in its CBOR form, written record by record into a buffer. */
#ifndef OW_SENML_H
#define OW_SENML_H

#include <stdint.h>

/* numerator / 2^shift. Shift 0 is written as an integer below 2^16, else as a 32-bit float, which
 * is exact for a numerator below 2^24. */
struct ow_senml_value {
    uint32_t numerator;
    uint8_t shift;
};

struct ow_senml_record {
    /* in the first record: its base name is "DEVICE:" and channel; NULL in the others */
    const char *device;
    const char *channel; /* ending of the base name, or NULL */
    uint32_t base_time;  /* UTC seconds; 0: no base time */
    uint16_t offset;     /* seconds from the base time; 0: none is written */
    const char *name;    /* e.g. "adc0", at most 23 characters, or NULL */
    const char *unit;    /* of the SenML registry, e.g. "V", or NULL */
    struct ow_senml_value value;
};

/* Both return where to go on. A pack has at most 23 records. */
uint8_t *ow_senml_pack(uint8_t *at, uint8_t records);
uint8_t *ow_senml_record(uint8_t *at, const struct ow_senml_record *record);

#endif
