/* An Arduino Uno: the chip with its EEPROM, flash, UART and watchdog, its power switch, and the
 * cuts that are armed against it.
 *
 * In: commands (power, reset, cut, ADC voltages) and bytes from the host. Out: bytes to the host,
 * one line per EEPROM write in a log, and events as JSON objects. EEPROM and flash outlive a power
 * cut, RAM does not. */
#ifndef SIM_BOARD_H
#define SIM_BOARD_H

#include "adc.h"
#include "chip.h"
#include "eeprom.h"
#include "flash.h"
#include "line.h"
#include "dht22.h"
#include "onewire.h"
#include "spi.h"
#include "sx1276.h"
#include "twi.h"
#include "uart.h"
#include "watchdog.h"

enum cut {
    CUT_NONE,
    CUT_CYCLES,
    CUT_TX,
    CUT_SENDS, /* steps of the radio: it begins a frame, has sent it, listens, has heard one */
    CUT_SENT,
    CUT_LISTENS,
    CUT_HEARD,
    CUT_EEPROM,
    CUT_MEMORY,
    CUT_KINDS
};
enum { FRAME = 32 };

struct board {
    struct chip chip;
    struct adc adc;
    struct uart uart;
    struct line line;
    struct eeprom eeprom;
    struct watchdog watchdog;
    struct flash flash;
    struct twi twi;
    struct memory memory;
    struct onewire onewire;
    struct dht22 dht22;
    struct spi spi;
    struct sx1276 radio;

    int eeprom_log, tx_log; /* file descriptors, -1 for none */
    void (*event)(void *context, const char *json);
    /* the board has begun its `strike_at`th conversion on channel 0, or a later one; called at the
     * end of the instruction that began it */
    void (*struck)(void *context);
    /* the radio sends a frame; it listens, or (NULL) it does not, and a frame is cut off */
    void (*sends)(
        void *context, const struct sx1276_way *way, const uint8_t *frame, unsigned length);
    void (*listens)(void *context, const struct sx1276_way *way);
    void *context;
    uint64_t samples, strike_at; /* conversions on channel 0; NEVER: nothing waits for one */

    uint8_t reset_due; /* causes, handled when the chip has stopped at an instruction's end */
    bool power_fails;
    bool hangs; /* the crystal has stopped */
    struct {
        enum cut kind;
        uint64_t left; /* cycles, bytes, steps or writes */
        bool torn;
        uint64_t tx, writes; /* totals when it was armed */
    } cut;
    uint8_t ram_at_power_on[CHIP_DATA];

    uint8_t cause; /* of the last start */
    uint8_t frame[FRAME]; /* sent since the last zero byte, as far as it fits */
    unsigned frame_count;
    uint64_t boots, writes, torn_writes, memory_writes, frames, cuts[CUT_KINDS];
    uint32_t wear[CHIP_EEPROM]; /* writes of each cell since the process started */
};

/* flash: CHIP_FLASH bytes and CHIP_GUARD of CHIP_GUARD_BYTE; eeprom: CHIP_EEPROM bytes.
 * boot_start: where the chip starts and the lock begins, or 0. */
bool board_init(
    struct board *board, uint8_t *flash, uint8_t *eeprom, uint32_t boot_start, uint64_t seed);

/* Put a memory of MEMORY_SIZE bytes on its I2C bus. */
void board_add_memory(struct board *board, uint8_t *bytes, bool fram);

/* Put a DS18B20 at pin 2. */
void board_add_thermometer(struct board *board, int16_t sixteenths);

/* Put a DHT22 at pin 3, in place of that. In tenths of a degree and of a percent. */
void board_add_dht22(struct board *board, int16_t temperature, uint16_t humidity);

/* Put an SX1276 on its SPI bus. */
void board_add_radio(struct board *board);

/* Let the board live until board time `until` (in cycles), through resets and cuts. */
void board_run(struct board *board, uint64_t until);

void board_power(struct board *board, bool on);
/* External reset (the button, or DTR) or brown-out. Nothing happens without power. */
void board_reset(struct board *board, enum reset_cause cause);
/* The crystal stops until the next reset. Only the watchdog goes on, since it has its own
 * oscillator. Without power this does nothing. */
void board_hang(struct board *board);
/* Cut the power `count` cycles, TX bytes, writes to the EEPROM or to the memory from now (from the
 * next power-on if it is off). torn: in the middle of the last write. Replaces an earlier cut.
 */
void board_arm_cut(struct board *board, enum cut kind, uint64_t count, bool torn);

/* Most bytes of stack in use since power-on: all above the longest stretch of RAM that was never
 * written. */
unsigned board_stack(const struct board *board);

const char *board_cause_name(uint8_t cause);
const char *board_cut_name(enum cut kind);

#endif
