/*
 * A memory on the I2C bus for the journal's slots (OW_JOURNAL_MEMORY): FRAM as MB85RC256, or
 * EEPROM as 24LC256, 32 KiB with 16-bit addresses, at device address 0x50. Bytes in, bytes out.
 *
 * Nothing here waits longer than a few milliseconds. If the chip stops answering later, the
 * watchdog resets the board, and the next start reports the memory as missing.
 */
#ifndef OW_MEMORY_H
#define OW_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#define OW_MEMORY_SIZE 32768u

/* True: the memory answers at the address. */
bool ow_memory_begin(void);

/* True while an EEPROM is programming the last write (5 ms at most); never for a FRAM. */
bool ow_memory_busy(void);

void ow_memory_read(uint8_t *to, uint16_t address, uint8_t length);
void ow_memory_write(uint16_t address, uint8_t value); /* only when not busy */

#endif
