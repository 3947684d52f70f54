/* SenML (RFC 8428) in its CBOR form, written record by record into a buffer. */
#ifndef OW_SENML_H
#define OW_SENML_H

#include <stdint.h>

/* number * 10^exponent, or number / 2^shift, exactly: -5.3 is {-53, -1}, and a thermometer's
 * sixteenths of a degree are {raw, 0, 4}. Written as an integer, a decimal fraction (CBOR tag 4),
 * or a 32-bit float. */
struct ow_senml_value {
    int32_t number;
    int8_t exponent;
    uint8_t shift; /* at most one of exponent and shift is not 0 */
};

struct ow_senml_record {
    /* in the first record: its base name is "DEVICE:" and channel; NULL in the others */
    const char *device;
    const char *channel; /* ending of the base name, or NULL */
    uint32_t base_time;  /* UTC seconds; 0: no base time */
    uint16_t offset;     /* seconds from the base time; 0: none is written */
    /* seconds by which the time may be wrong, either way, written as "tu", which is no label of the
     * RFC: who does not know it passes over it (section 4.4). 0: none is written */
    uint16_t time_error;
    const char *name;    /* e.g. "adc0", or NULL */
    const char *unit;    /* of the SenML registry, e.g. "V", or NULL */
    struct ow_senml_value value;
};

/**
 * Begins a pack.
 *
 * @param at       where to write
 * @param end      end of the buffer
 * @param records  how many will follow, at most 23
 * @return where to go on; NULL: there is no room, or there are too many
 */
uint8_t *ow_senml_pack(uint8_t *at, const uint8_t *end, uint8_t records);

/**
 * Writes one record.
 *
 * @param at      what the last call returned; NULL stays NULL, so look at the last result only
 * @param end     end of the buffer
 * @param record  texts of at most 127 characters
 * @return where to go on; NULL: there is no room, a text is too long, or the value cannot be
 *         written exactly
 */
uint8_t *ow_senml_record(
    uint8_t *at, const uint8_t *end, const struct ow_senml_record *record);

#endif
