#include "uart.h"

#include <string.h>

#include <sim_cycle_timers.h>

/* UCSR0A */
enum { RXC = 0x80, TXC = 0x40, UDRE = 0x20, FE = 0x10, DOR = 0x08, U2X = 0x02, MPCM = 0x01 };
/* UCSR0B */
enum { RXEN = 0x10, TXEN = 0x08, UCSZ2 = 0x04 };
/* 8N1 */
enum { RESET_UCSR0C = 0x06 };

static bool enabled(const struct uart *uart, uint8_t bit)
{
    return chip_get(uart->chip, REG_UCSR0B) & bit;
}

static void show_status(struct uart *uart)
{
    uint8_t status = chip_get(uart->chip, REG_UCSR0A) & (TXC | U2X | MPCM);
    if (uart->waiting) status |= RXC | uart->fifo[0].flags;
    if (!uart->data_out_full) status |= UDRE;
    chip_interrupt_level(uart->chip, uart->rx_complete, uart->waiting);
    chip_interrupt_level(uart->chip, uart->data_empty, !uart->data_out_full);
    chip_put(uart->chip, REG_UCSR0A, status);
}

uint32_t uart_bit_cycles(const struct uart *uart)
{
    uint32_t divisor =
        (chip_get(uart->chip, REG_UBRR0L) | (chip_get(uart->chip, REG_UBRR0H) & 0x0F) << 8) + 1u;
    return divisor * (chip_get(uart->chip, REG_UCSR0A) & U2X ? 8 : 16);
}

uint32_t uart_frame_bits(const struct uart *uart)
{
    uint8_t c = chip_get(uart->chip, REG_UCSR0C),
            size = (c >> 1 & 3) | (enabled(uart, UCSZ2) ? 4 : 0);
    uint32_t data = size == 7 ? 9 : size < 4 ? 5u + size : 8;
    return 1 + data + (c & 0x20 ? 1 : 0) + (c & 0x08 ? 2 : 1);
}

/* --- transmitter --- */

static avr_cycle_count_t on_shifted_out(avr_t *avr, avr_cycle_count_t when, void *context)
{
    (void)avr;
    struct uart *uart = context;
    uint8_t byte = uart->shift_out;
    uart->sending = uart->data_out_full;
    if (uart->sending) {
        uart->shift_out = uart->data_out;
        uart->data_out_full = false;
        show_status(uart);
    } else
        avr_raise_interrupt(uart->chip->avr, uart->tx_complete);
    uart->sent(uart->context, byte);
    return uart->sending ? when + uart_bit_cycles(uart) * uart_frame_bits(uart) : 0;
}

static void write_data(avr_t *avr, avr_io_addr_t address, uint8_t value, void *context)
{
    (void)address;
    struct uart *uart = context;
    if (!enabled(uart, TXEN) || uart->data_out_full) return;
    if (uart->sending) {
        uart->data_out = value;
        uart->data_out_full = true;
    } else {
        uart->shift_out = value;
        uart->sending = true;
        avr_cycle_timer_register(
            avr, uart_bit_cycles(uart) * uart_frame_bits(uart), on_shifted_out, uart);
    }
    show_status(uart);
}

/* --- receiver --- */

static void push(struct uart *uart, struct uart_entry entry)
{
    if (uart->overrun) entry.flags |= DOR;
    uart->overrun = false;
    uart->fifo[uart->waiting++] = entry;
}

static uint8_t read_data(avr_t *avr, avr_io_addr_t address, void *context)
{
    (void)avr, (void)address;
    struct uart *uart = context;
    uint8_t byte = uart->fifo[0].byte;
    if (!enabled(uart, RXEN) || !uart->waiting) return byte;
    uart->fifo[0] = uart->fifo[1];
    uart->waiting--;
    if (uart->shift_in_full) {
        uart->shift_in_full = false;
        push(uart, uart->shift_in);
    }
    show_status(uart);
    return byte;
}

void uart_start_bit(struct uart *uart)
{
    if (!uart->shift_in_full) return;
    uart->shift_in_full = false;
    uart->overrun = true;
    uart->overruns++;
}

void uart_receive(struct uart *uart, uint8_t byte, bool framing_error)
{
    if (!chip_io_clock_runs(uart->chip) || !enabled(uart, RXEN)) return;
    struct uart_entry entry = {.byte = byte, .flags = framing_error ? FE : 0};
    if (uart->waiting < 2)
        push(uart, entry);
    else {
        uart->shift_in = entry;
        uart->shift_in_full = true;
    }
    show_status(uart);
}

/* --- control registers --- */

static void write_status(avr_t *avr, avr_io_addr_t address, uint8_t value, void *context)
{
    struct uart *uart = context;
    uint8_t now = chip_get(uart->chip, address);
    if (value & TXC) {
        avr_clear_interrupt(avr, uart->tx_complete);
        now &= (uint8_t)~TXC;
    }
    chip_put(uart->chip, address, (now & (uint8_t)~(U2X | MPCM)) | (value & (U2X | MPCM)));
}

static void write_control(avr_t *avr, avr_io_addr_t address, uint8_t value, void *context)
{
    (void)avr;
    struct uart *uart = context;
    chip_put(uart->chip, address, value);
    if (!(value & RXEN)) {
        uart->waiting = 0;
        uart->shift_in_full = uart->overrun = false;
    }
    show_status(uart);
}

/* After a handler has returned: a level that is still there raises the interrupt again. */
static void on_handler(struct avr_irq_t *irq, uint32_t running, void *context)
{
    (void)irq;
    if (!running) show_status(context);
}

void uart_init(
    struct uart *uart, struct chip *chip, void (*sent)(void *context, uint8_t byte), void *context)
{
    memset(uart, 0, sizeof *uart);
    uart->chip = chip;
    uart->sent = sent;
    uart->context = context;
    uart->rx_complete = chip_vector(chip, VECTOR_USART_RX);
    uart->data_empty = chip_vector(chip, VECTOR_USART_UDRE);
    uart->tx_complete = chip_vector(chip, VECTOR_USART_TX);
    chip_take_register(chip, REG_UDR0, read_data, write_data, uart);
    chip_take_register(chip, REG_UCSR0A, NULL, write_status, uart);
    chip_take_register(chip, REG_UCSR0B, NULL, write_control, uart);
    chip_take_register(chip, REG_UCSR0C, NULL, NULL, NULL);
    chip_take_register(chip, REG_UBRR0L, NULL, NULL, NULL);
    chip_take_register(chip, REG_UBRR0H, NULL, NULL, NULL);
    avr_irq_register_notify(uart->rx_complete->irq + AVR_INT_IRQ_RUNNING, on_handler, uart);
    avr_irq_register_notify(uart->data_empty->irq + AVR_INT_IRQ_RUNNING, on_handler, uart);
}

void uart_reset(struct uart *uart)
{
    uart->waiting = 0;
    uart->shift_in_full = uart->overrun = uart->data_out_full = uart->sending = false;
    chip_put(uart->chip, REG_UCSR0A, 0);
    chip_put(uart->chip, REG_UCSR0B, 0);
    chip_put(uart->chip, REG_UCSR0C, RESET_UCSR0C);
    show_status(uart);
}
