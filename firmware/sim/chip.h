/* The ATmega328P as libsimavr runs it, with a clock and alarms of our own.
 *
 * In: how long to run. Out: instructions executed, and alarms rung on time.
 *
 * Board time counts cycles of the 16 MHz crystal since the process started and never stops. The
 * CPU's own cycle counter stands still while the CPU clock does: in the deep sleep modes, during
 * the start-up delay after a reset, and without power. libsimavr knows only the second, so whatever
 * must go on while the CPU clock stands (watchdog, EEPROM, the far end of the line, a power cut to
 * come) is an alarm in board time here, and what stops with it (timers, ADC, transmitter) is a
 * cycle timer of libsimavr. */
#ifndef SIM_CHIP_H
#define SIM_CHIP_H

#include <stdbool.h>
#include <stdint.h>

#include <sim_avr.h>

#define CHIP_HZ 16000000u
#define CHIP_FLASH 32768u
#define CHIP_EEPROM 1024u
#define CHIP_PAGE 128u
#define CHIP_DATA 0x900u /* registers and RAM */
#define CHIP_ADDRESSES 0x10001u /* of data that an instruction can name, and the next one */
/* After the flash, up to where a jump with 22 bits leads: an instruction that has libsimavr go on
 * at 0, as the counter of a chip with less flash wraps. Both its bytes are this value. */
#define CHIP_GUARD ((8u << 20) + CHIP_PAGE - CHIP_FLASH)
#define CHIP_GUARD_BYTE 0xF1
#define NEVER UINT64_MAX

/* Addresses in data space (ATmega328P data sheet, register summary). */
enum {
    REG_EECR = 0x3F,
    REG_EEDR = 0x40,
    REG_EEARL = 0x41,
    REG_EEARH = 0x42,
    REG_SPCR = 0x4C,
    REG_SPSR = 0x4D,
    REG_SPDR = 0x4E,
    REG_SMCR = 0x53,
    REG_MCUSR = 0x54,
    REG_SPMCSR = 0x57,
    REG_WDTCSR = 0x60,
    REG_TWBR = 0xB8,
    REG_TWSR = 0xB9,
    REG_TWDR = 0xBB,
    REG_TWCR = 0xBC,
    REG_UCSR0A = 0xC0,
    REG_UCSR0B = 0xC1,
    REG_UCSR0C = 0xC2,
    REG_UBRR0L = 0xC4,
    REG_UBRR0H = 0xC5,
    REG_UDR0 = 0xC6,
};

/* Interrupt vector numbers (data sheet, table of reset and interrupt vectors, counted from 0). */
enum {
    VECTOR_WATCHDOG = 6,
    VECTOR_USART_RX = 18,
    VECTOR_USART_UDRE = 19,
    VECTOR_USART_TX = 20,
    VECTOR_EEPROM = 22,
    VECTOR_SPM = 25
};

/* Reset causes: bits of MCUSR. */
enum reset_cause {
    RESET_POWER_ON = 1,
    RESET_EXTERNAL = 2,
    RESET_BROWN_OUT = 4,
    RESET_WATCHDOG = 8
};

enum alarm {
    ALARM_STOP,
    ALARM_CUT,
    ALARM_LINE,
    ALARM_WATCHDOG,
    ALARM_EEPROM,
    ALARM_FLASH,
    ALARM_TWI,
    ALARM_MEMORY,
    ALARM_ONEWIRE,
    ALARM_DHT22,
    ALARM_SPI,
    ALARM_RADIO,
    ALARM_COUNT
};

typedef void (*alarm_handler)(void *context);

struct chip {
    avr_t *avr;
    uint64_t stopped; /* cycles that passed while the CPU clock stood still */
    bool powered;
    bool attention; /* the run loop must return: a reset or a power cut is due */
    /* state of the random generator, for torn cells and RAM after power-on */
    uint64_t noise;
    struct {
        uint64_t due;
        alarm_handler ring;
        void *context;
    } alarms[ALARM_COUNT];
    uint8_t pull_ups; /* pins of port D */
    uint8_t grounded; /* those of them that are pulled to ground */
};

/* Make the chip with empty memories, without power. flash: CHIP_FLASH bytes,
 * followed by CHIP_GUARD of CHIP_GUARD_BYTE. */
bool chip_init(struct chip *chip, uint8_t *flash, uint64_t seed);

/* Board time in cycles. */
uint64_t chip_now(const struct chip *chip);

/* Whether timers and UART run: with power, and not in a deep sleep mode. */
bool chip_io_clock_runs(const struct chip *chip);

/* Let board time pass with the CPU clock stopped, until it is over or `attention` is raised. */
void chip_wait(struct chip *chip, uint64_t cycles);

/* Halt the CPU while its peripherals run on; called by the handler of a register access. */
void chip_halt_cpu(struct chip *chip, uint64_t cycles);

/* Run until board time `until`, or until `attention` is raised. */
void chip_run(struct chip *chip, uint64_t until);

/* Reset CPU, registers and peripherals; RAM keeps its content. Board time goes on. */
void chip_reset(struct chip *chip);

/* Fill RAM and registers as after power-on: with noise. */
void chip_scramble_ram(struct chip *chip);

/* A pull-up outside of the chip at a pin of port D. Returns the pin, to be pulled down. */
avr_irq_t *chip_pull_up(struct chip *chip, unsigned pin);

/* Such a pin lies on the ground from now on, or no more: when the chip lets go of it, it is low. */
void chip_ground(struct chip *chip, unsigned pin, bool grounded);

void chip_alarm_handler(struct chip *chip, enum alarm alarm, alarm_handler ring, void *context);
void chip_alarm(struct chip *chip, enum alarm alarm, uint64_t due);

/* Take over a register from libsimavr's own peripheral. A null handler means plain memory. */
void chip_take_register(
    struct chip *chip, uint16_t address, avr_io_read_t read, avr_io_write_t write, void *context);
avr_int_vector_t *chip_vector(struct chip *chip, int number);

/* A level-triggered interrupt: pending while `on`, and again after its handler returns. */
void chip_interrupt_level(struct chip *chip, avr_int_vector_t *vector, bool on);

uint64_t chip_noise(struct chip *chip);

/* A bit pattern in which each bit is 1 with probability part / whole. */
uint8_t chip_some_bits(struct chip *chip, uint64_t part, uint64_t whole);

static inline uint8_t chip_get(const struct chip *chip, uint16_t address)
{
    return chip->avr->data[address];
}
static inline void chip_put(struct chip *chip, uint16_t address, uint8_t value)
{
    chip->avr->data[address] = value;
}

#endif
