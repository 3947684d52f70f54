/* A memory on the I2C bus at address 0x50: MB85RC256V (FRAM) or 24LC256 (EEPROM), 32 KiB.
 *
 * In: what the bus carries. Out: bytes in the image, and one call of `written` per byte, whole or
 * torn. A FRAM has a byte when it acknowledges it. An EEPROM takes up to a page, programs it after
 * the stop condition for 5 ms, and does not answer meanwhile; a power cut leaves torn bytes, each
 * as in eeprom.c. */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include "chip.h"

#define MEMORY_SIZE 32768u
#define MEMORY_PAGE 64u

struct memory {
    struct chip *chip;
    uint8_t *bytes;
    bool fram;
    /* the next byte is being written, or programmed, until board time `ends` */
    void (*begun)(void *context, uint64_t ends);
    void (*written)(void *context, bool torn);
    void *context;
    uint16_t at;
    uint8_t address_bytes; /* of `at`, that have come since the device was called */
    uint8_t latch[MEMORY_PAGE];
    uint8_t latched; /* bytes of `latch`, for `at` and what follows in its page */
    bool busy;
    uint64_t start, end; /* of programming */
};

/* bytes: MEMORY_SIZE of them. Set the callbacks before the chip runs. */
void memory_init(struct memory *memory, struct chip *chip, uint8_t *bytes, bool fram);

bool memory_address(struct memory *memory, uint8_t device, bool reads); /* whether it answers */
uint8_t memory_read(struct memory *memory);
bool memory_write(struct memory *memory, uint8_t byte);
void memory_byte_begins(struct memory *memory, uint64_t ends);
void memory_stop(struct memory *memory);
void memory_power_fails(struct memory *memory);

#endif
