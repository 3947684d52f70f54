/*
 * The functions of a board for the library, and by Onceway.h for programs. Three
 * implementations: boards/uno and ow_arduino.cpp, both over ow_avr.c, and boards/host.
 *
 * No function waits longer than an ADC conversion, except ow_hal_eeprom_read during a write, which
 * waits for its end (3.4 ms).
 */
#ifndef OW_HAL_H
#define OW_HAL_H

#include <stdbool.h>
#include <stdint.h>

#include "ow_config.h"

#ifdef __AVR__
#include <avr/io.h>
#define OW_EEPROM_SIZE (E2END + 1u)
#else
#define OW_EEPROM_SIZE 1024u
#endif
#define OW_IDENTITY_SIZE 128u

/* State in RAM that survives a reset (ow_journal.c). */
struct ow_starts {
    uint16_t number; /* of the last start */
    uint8_t left;    /* numbers after it that are reserved */
    uint8_t block;   /* how many are reserved next time */
};

/* Only a power-on may have cleared the RAM. */
enum ow_reset_cause { OW_RESET_POWER_ON, OW_RESET_BROWN_OUT, OW_RESET_EXTERNAL, OW_RESET_WATCHDOG };

/** @return milliseconds since any moment, modulo 2^16 */
uint16_t ow_hal_millis(void);

/** @return why the board started; the same at each call */
enum ow_reset_cause ow_hal_reset_cause(void);

/** Starts the board again, as its reset button does; it does not return. Best called when
 * ow_mqtt_settled is true. */
void ow_hal_reboot(void);

/** @return 32 bits that differ from start to start, without any stored state. Only with
 *          OW_KEYS */
uint32_t ow_hal_entropy(void);

/** @return the next byte received on the line, or -1. The client reads all bytes. */
int16_t ow_hal_uart_read(void);

/** @return a byte can be written without waiting */
bool ow_hal_uart_writable(void);

/** Sends a byte; only when writable. The line belongs to the client. */
void ow_hal_uart_write(uint8_t byte);

/** @return a byte of the EEPROM. May be called at any time; during a write it waits for its end. */
uint8_t ow_hal_eeprom_read(uint16_t address);

/** @return a write is under way */
bool ow_hal_eeprom_busy(void);

/** Starts a write; only when not busy. Programs call ow_journal_application. */
void ow_hal_eeprom_write(uint16_t address, uint8_t value);

/** Copies bytes from the start of the identity page. */
void ow_hal_identity_read(uint8_t *bytes, uint8_t length);

/** @return the ADC's reading of a channel, 0…1023; takes 0.1 ms */
uint16_t ow_hal_adc_read(uint8_t channel);

/** Switches the board's LED on or off. */
void ow_hal_led(bool on);

#if OW_SX1276
/* The radio's bus: SPI in mode 0, at most 10 MHz (SX1276 data sheet, 4.3). */

/** Resets radio, bus and pins; waits until it is ready, 8 ms. */
void ow_hal_radio_reset(void);

/** Waits a millisecond for the radio's oscillator. */
void ow_hal_radio_settle(void);

/** Selects or deselects the radio. */
void ow_hal_radio_select(bool selected);

/** @return the byte received while this one was sent */
uint8_t ow_hal_radio_exchange(uint8_t byte);
#endif

/** Starts the watchdog, and feeds it: the board is reset unless this is called again within 2 s.
 * ow_mqtt_poll calls it first, so the program's setup may take any time. */
void ow_hal_watch(void);

/** Sleeps until something may have happened, at most a millisecond or so; feeds the watchdog. Best
 * called at the end of the program's loop. */
void ow_hal_idle(void);

#if OW_DEBUG
/** @return whether the library may be called here: not in an interrupt, and in the program's own
 *          thread */
bool ow_hal_may_call(void);

/** Reports a call of the library in a forbidden place. Does not return. */
void ow_hal_wrong_call(void) __attribute__((noreturn));

/* First statement of each public function that reads or changes a client. */
#define OW_CHECK_CALL() (ow_hal_may_call() ? (void)0 : ow_hal_wrong_call())
#else
#define OW_CHECK_CALL() (void)0
#endif

#if OW_SEVERAL_BOARDS
/* A board among several in one program: the functions above, each with the context first. Those
 * that the program does not call may be NULL: reboot, adc_read, led, idle; watch too. */
struct ow_hal {
    void *context;
    struct ow_starts *starts; /* zeros at a power-on */
    uint16_t (*millis)(void *context);
    enum ow_reset_cause (*reset_cause)(void *context);
    void (*reboot)(void *context);
    uint32_t (*entropy)(void *context);
    int16_t (*uart_read)(void *context);
    bool (*uart_writable)(void *context);
    void (*uart_write)(void *context, uint8_t byte);
    uint8_t (*eeprom_read)(void *context, uint16_t address);
    bool (*eeprom_busy)(void *context);
    void (*eeprom_write)(void *context, uint16_t address, uint8_t value);
    void (*identity_read)(void *context, uint8_t *bytes, uint8_t length);
    uint16_t (*adc_read)(void *context, uint8_t channel);
    void (*led)(void *context, bool on);
    void (*watch)(void *context);
    void (*idle)(void *context);
};

/**
 * The functions above are this board's from now on, in this thread. ow_mqtt_begin keeps it with the
 * client; each call of the library for that client, and each function that it calls, has it.
 *
 * @return the previous board
 */
const struct ow_hal *ow_hal_use(const struct ow_hal *hal);

/** @return the state in RAM that survives a reset, of the board in use */
struct ow_starts *ow_hal_starts(void);

/** Until the end of the block, the client's board; then the previous board, as in a callback of
 * another client. */
static inline void ow_board_back(const struct ow_hal **before)
{
    ow_hal_use(*before);
}
#define OW_ON_BOARD_OF(client)                                                                     \
    const struct ow_hal *ow_before __attribute__((cleanup(ow_board_back))) =                         \
        ow_hal_use((client)->hal)
#else
#define OW_ON_BOARD_OF(client) (void)0
#endif

#endif
