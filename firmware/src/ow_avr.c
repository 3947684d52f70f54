#include "ow_avr.h"

#ifdef __AVR__ /* else: a host build, with a board of its own */

#include <avr/interrupt.h>
#include <avr/io.h>
#include <avr/pgmspace.h>
#include <avr/wdt.h>
#include <util/atomic.h>
#include <util/delay.h>

#include "ow_config.h"
#include "ow_crc.h"
#include "ow_hal.h"

#define RAM_MAGIC 0x4F57A55Aul
#define ADC_PRESCALER_128 (_BV(ADPS2) | _BV(ADPS1) | _BV(ADPS0))

static enum ow_reset_cause reset_cause;

/* Boot loaders clear MCUSR before the program can read it, but leave RAM alone: the mark is gone
 * only after a power cut. */
static uint32_t ram_mark __attribute__((section(".noinit")));
static uint8_t reset_flags __attribute__((section(".noinit")));

/* Before anything else: after a watchdog reset the watchdog runs on at 16 ms. */
void stop_watchdog(void) __attribute__((naked, used, section(".init3")));
void stop_watchdog(void)
{
    reset_flags = MCUSR;
    MCUSR = 0;
    wdt_disable();
}

static void find_reset_cause(void)
{
    bool powered = ram_mark == RAM_MAGIC;
    ram_mark = RAM_MAGIC;
    if (reset_flags & _BV(WDRF)) {
        reset_cause = OW_RESET_WATCHDOG;
    } else if (reset_flags & _BV(EXTRF) || (reset_flags == 0 && powered)) {
        reset_cause = OW_RESET_EXTERNAL;
    } else if (reset_flags & _BV(BORF) && powered) {
        reset_cause = OW_RESET_BROWN_OUT; /* a brown-out that cleared the RAM counts as power-on */
    } else {
        reset_cause = OW_RESET_POWER_ON;
    }
}

#if OW_KEYS

#define SAMPLES 16

static uint32_t entropy;

/* The watchdog's own oscillator jitters against the chip's clock: each of 16 periods of 16 ms,
 * counted in cycles, gives at least a bit. */
static void gather_entropy(void)
{
    ATOMIC_BLOCK(ATOMIC_RESTORESTATE)
    {
        WDTCSR = _BV(WDCE) | _BV(WDE);
        WDTCSR = _BV(WDIE) | _BV(WDIF); /* interrupt only, no reset */
        for (uint8_t i = 0; i < SAMPLES; i++) {
            uint8_t cycles = 0;
            while (!(WDTCSR & _BV(WDIF))) {
                cycles++;
            }
            WDTCSR |= _BV(WDIF);
            entropy = ow_crc32_byte(entropy, cycles);
        }
        wdt_disable();
    }
}

uint32_t ow_hal_entropy(void)
{
    return entropy;
}

#endif

void ow_avr_start(void)
{
    find_reset_cause();
#if OW_KEYS
    gather_entropy();
#endif
}

void ow_hal_watch(void)
{
#if OW_WATCHDOG
    wdt_enable(WDTO_2S);
#endif
}

enum ow_reset_cause ow_hal_reset_cause(void)
{
    return reset_cause;
}

void ow_hal_reboot(void)
{
    cli();
#if OW_WATCHDOG
    wdt_enable(WDTO_15MS);
    for (;;) {
    }
#else
    __asm__ volatile("jmp 0");
    __builtin_unreachable();
#endif
}

#if OW_DEBUG

/* Interrupts are off in an interrupt handler and between cli and sei; the line would lose bytes. */
bool ow_hal_may_call(void)
{
    return SREG & _BV(SREG_I);
}

void ow_hal_wrong_call(void)
{
    cli();
    for (bool on = true;; on = !on) {
        ow_hal_led(on);
        wdt_reset();
        _delay_ms(100);
    }
}

#endif

bool ow_hal_eeprom_busy(void)
{
    return EECR & _BV(EEPE);
}

uint8_t ow_hal_eeprom_read(uint16_t address)
{
    while (ow_hal_eeprom_busy()) {
    }
    EEAR = address;
    EECR |= _BV(EERE);
    return EEDR;
}

void ow_hal_eeprom_write(uint16_t address, uint8_t value)
{
    EEAR = address;
    EEDR = value;
    ATOMIC_BLOCK(ATOMIC_RESTORESTATE) /* EEPE counts only within four cycles of EEMPE */
    {
        EECR |= _BV(EEMPE);
        EECR |= _BV(EEPE);
    }
}

void ow_hal_identity_read(uint8_t *bytes, uint8_t length)
{
#ifdef RAMPZ /* more flash than a 16-bit address reaches */
    memcpy_PF(bytes, OW_IDENTITY_PAGE, length);
#else
    memcpy_P(bytes, (const void *)OW_IDENTITY_PAGE, length);
#endif
}

uint16_t ow_hal_adc_read(uint8_t channel)
{
    ADMUX = _BV(REFS0) | channel;
    ADCSRA = _BV(ADEN) | _BV(ADSC) | ADC_PRESCALER_128;
    while (ADCSRA & _BV(ADSC)) {
    }
    return ADC;
}

#if OW_SX1276

#ifdef __AVR_ATmega2560__
#error "The radio's pins are those of an Uno; see firmware/README.md"
#endif
#define RADIO_RESET _BV(PB1)
#define RADIO_SELECT _BV(PB2) /* an output, or the bus would become a slave */
#define RADIO_MOSI _BV(PB3)
#define RADIO_SCK _BV(PB5)

void ow_hal_radio_settle(void)
{
    _delay_ms(1);
}

/* Low for 100 us, then left alone, and ready 5 ms later (SX1276 data sheet, 7.2.2). */
void ow_hal_radio_reset(void)
{
    PORTB = (PORTB | RADIO_SELECT) & (uint8_t)~RADIO_RESET;
    DDRB |= RADIO_SELECT | RADIO_MOSI | RADIO_SCK | RADIO_RESET;
    SPCR = _BV(SPE) | _BV(MSTR); /* a quarter of the clock */
    ow_hal_radio_settle();
    DDRB &= (uint8_t)~RADIO_RESET;
    _delay_ms(7);
}

void ow_hal_radio_select(bool selected)
{
    if (selected) {
        PORTB &= (uint8_t)~RADIO_SELECT;
    } else {
        PORTB |= RADIO_SELECT;
    }
}

uint8_t ow_hal_radio_exchange(uint8_t byte)
{
    SPDR = byte;
    while (!(SPSR & _BV(SPIF))) { /* 8 bits: 2 us */
    }
    return SPDR;
}

#endif

#endif
