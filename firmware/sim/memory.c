#include "memory.h"

#include <string.h>

enum { DEVICE = 0x50, ADDRESS_BYTES = 2 };

#define PROGRAMMING (CHIP_HZ / 1000 * 5) /* 24LC256 data sheet, write cycle time */

/* Where byte `i` of the latch belongs: it runs round within its page. */
static uint16_t place(const struct memory *memory, unsigned i)
{
    unsigned page = memory->at & ~(MEMORY_PAGE - 1);
    return (uint16_t)(page | ((memory->at + i) & (MEMORY_PAGE - 1)));
}

static void on_programmed(void *context)
{
    struct memory *memory = context;
    memory->busy = false;
    for (unsigned i = 0; i < memory->latched; i++) {
        memory->bytes[place(memory, i)] = memory->latch[i];
        memory->written(memory->context, false);
    }
    memory->latched = 0;
}

bool memory_address(struct memory *memory, uint8_t device, bool reads)
{
    if (device != DEVICE || memory->busy) return false;
    if (!reads) memory->address_bytes = 0;
    return true;
}

uint8_t memory_read(struct memory *memory)
{
    uint8_t byte = memory->bytes[memory->at];
    memory->at = (memory->at + 1) % MEMORY_SIZE;
    return byte;
}

bool memory_write(struct memory *memory, uint8_t byte)
{
    if (memory->address_bytes < ADDRESS_BYTES) {
        memory->address_bytes++;
        memory->at = (uint16_t)(memory->at << 8 | byte) % MEMORY_SIZE;
        memory->latched = 0;
    } else if (memory->fram) {
        memory->bytes[memory->at] = byte;
        memory->at = (memory->at + 1) % MEMORY_SIZE;
        memory->written(memory->context, false);
    } else {
        memory->latch[memory->latched++ % MEMORY_PAGE] = byte;
        if (memory->latched > MEMORY_PAGE) memory->latched = MEMORY_PAGE;
    }
    return true;
}

void memory_byte_begins(struct memory *memory, uint64_t ends)
{
    if (memory->fram && memory->address_bytes == ADDRESS_BYTES)
        memory->begun(memory->context, ends);
}

void memory_stop(struct memory *memory)
{
    if (memory->fram || memory->latched == 0 || memory->busy) return;
    memory->busy = true;
    memory->start = chip_now(memory->chip);
    memory->end = memory->start + PROGRAMMING;
    chip_alarm(memory->chip, ALARM_MEMORY, memory->end);
    memory->begun(memory->context, memory->end);
}

void memory_power_fails(struct memory *memory)
{
    uint64_t half = PROGRAMMING / 2, past = chip_now(memory->chip) - memory->start;
    for (unsigned i = 0; memory->busy && i < memory->latched; i++) {
        uint8_t *byte = &memory->bytes[place(memory, i)];
        if (past < half) /* some bits are erased already */
            *byte |= chip_some_bits(memory->chip, past, half);
        else /* some zeros are programmed already */
            *byte = (uint8_t) ~(~memory->latch[i] &
                                chip_some_bits(memory->chip, past - half, half));
        memory->written(memory->context, true);
    }
    memory->busy = false;
    memory->latched = memory->address_bytes = 0;
    chip_alarm(memory->chip, ALARM_MEMORY, NEVER);
}

void memory_init(struct memory *memory, struct chip *chip, uint8_t *bytes, bool fram)
{
    memset(memory, 0, sizeof *memory);
    memory->chip = chip;
    memory->bytes = bytes;
    memory->fram = fram;
    chip_alarm_handler(chip, ALARM_MEMORY, on_programmed, memory);
}
