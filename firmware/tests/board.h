/*
 * A board in memory, for tests: ow_hal.h with a clock that the test turns, an EEPROM whose power
 * can be cut, and both ends of the UART.
 *
 * A cut tears the byte that is being written (see `tear`) and jumps to `board.cut`; what is in
 * `eeprom` then is what the next start finds.
 */
#ifndef BOARD_H
#define BOARD_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>

#include "ow_hal.h"
#include "ow_memory.h"

enum tear { TEAR_NOTHING_WRITTEN, TEAR_WRITTEN, TEAR_ERASED, TEAR_HALF, TEARS };

struct board {
    uint32_t now; /* milliseconds */
    uint8_t eeprom[OW_EEPROM_SIZE];
    uint32_t cell_writes[OW_EEPROM_SIZE];
    bool dead_cell[OW_EEPROM_SIZE]; /* keeps its value */
    uint32_t busy_until;
    uint16_t asked; /* how often in a row whether it is busy */
    uint8_t memory[OW_MEMORY_SIZE]; /* on the bus, with OW_JOURNAL_MEMORY */
    uint32_t memory_busy_until;
    uint16_t memory_asked;
    bool memory_missing;
    bool instant; /* a write takes no time */
    uint32_t writes; /* of EEPROM and memory, since the last power_on */
    uint32_t cut_at_write; /* cut the power during this write, counted from 1; 0: never */
    uint32_t sent;         /* UART bytes since the last power_on */
    uint32_t cut_at_sent;  /* cut the power after so many; 0: never */
    enum tear tear;
    jmp_buf cut;

    uint8_t to_device[65536], to_gateway[65536]; /* rings */
    uint16_t to_device_head, to_device_tail, to_gateway_head, to_gateway_tail;
    uint16_t adc;
    enum ow_reset_cause cause;
    bool rebooted; /* ow_hal_reboot was called */
    bool led;
    bool watched; /* the watchdog runs */
    bool interrupted; /* an interrupt's program runs */
};

extern struct board board;

/* Erases the EEPROM, writes an identity page for `name`, and empties the line. */
void board_new(const char *name);

/* Replaces the identity page. */
void board_identity(const uint8_t *page, uint8_t length);

/* Starts the board: sets the counters of writes and bytes to 0, and empties the UART. */
void board_power_on(void);

uint32_t board_random(void);

#endif
