#include "ow_hal.h"

#if OW_SEVERAL_BOARDS

_Static_assert(OW_PERSISTENCE && !OW_JOURNAL_MEMORY && !OW_LORA,
    "of several boards each has its EEPROM and its serial line alone");

static _Thread_local const struct ow_hal *hal;

const struct ow_hal *ow_hal_use(const struct ow_hal *next)
{
    const struct ow_hal *before = hal;
    hal = next;
    return before;
}

struct ow_starts *ow_hal_starts(void)
{
    return hal->starts;
}

uint16_t ow_hal_millis(void)
{
    return hal->millis(hal->context);
}

enum ow_reset_cause ow_hal_reset_cause(void)
{
    return hal->reset_cause(hal->context);
}

void ow_hal_reboot(void)
{
    hal->reboot(hal->context);
}

uint32_t ow_hal_entropy(void)
{
    return hal->entropy(hal->context);
}

int16_t ow_hal_uart_read(void)
{
    return hal->uart_read(hal->context);
}

bool ow_hal_uart_writable(void)
{
    return hal->uart_writable(hal->context);
}

void ow_hal_uart_write(uint8_t byte)
{
    hal->uart_write(hal->context, byte);
}

uint8_t ow_hal_eeprom_read(uint16_t address)
{
    return hal->eeprom_read(hal->context, address);
}

bool ow_hal_eeprom_busy(void)
{
    return hal->eeprom_busy(hal->context);
}

void ow_hal_eeprom_write(uint16_t address, uint8_t value)
{
    hal->eeprom_write(hal->context, address, value);
}

void ow_hal_identity_read(uint8_t *bytes, uint8_t length)
{
    hal->identity_read(hal->context, bytes, length);
}

uint16_t ow_hal_adc_read(uint8_t channel)
{
    return hal->adc_read(hal->context, channel);
}

void ow_hal_led(bool on)
{
    hal->led(hal->context, on);
}

void ow_hal_watch(void)
{
    if (hal->watch) {
        hal->watch(hal->context);
    }
}

void ow_hal_idle(void)
{
    hal->idle(hal->context);
}

#endif
