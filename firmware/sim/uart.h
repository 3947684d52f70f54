/* USART0 as the data sheet describes it (chapter "USART0"), instead of libsimavr's, which has 11
 * bits in a byte and a 64-byte FIFO.
 *
 * In: bytes as they complete on the RX pin, register accesses of the program. Out: bytes as they
 * complete on the TX pin. Transmitter: one data register and one shift register. Receiver: two-byte
 * FIFO and one shift register; a byte that finds all three full when the next start bit comes is
 * lost and reported by DOR. */
#ifndef SIM_UART_H
#define SIM_UART_H

#include "chip.h"

struct uart_entry {
    uint8_t byte;
    uint8_t flags; /* FE and DOR as they stand in UCSR0A */
};

struct uart {
    struct chip *chip;
    avr_int_vector_t *rx_complete, *data_empty, *tx_complete;
    void (*sent)(void *context, uint8_t byte); /* the stop bit of `byte` has left */
    void *context;
    struct uart_entry fifo[2], shift_in;
    unsigned waiting;
    bool shift_in_full, overrun;
    uint8_t data_out, shift_out;
    bool data_out_full, sending;
    uint64_t overruns; /* bytes lost since start */
};

void uart_init(
    struct uart *uart, struct chip *chip, void (*sent)(void *context, uint8_t byte), void *context);
void uart_reset(struct uart *uart);

/* Cycles per bit and per frame as the program has set them; idle lines keep the reset values (bit
 * time of the fastest rate, 8N1). */
uint32_t uart_bit_cycles(const struct uart *uart);
uint32_t uart_frame_bits(const struct uart *uart);

/* A start bit begins on the RX pin: the moment of overrun. */
void uart_start_bit(struct uart *uart);
/* A byte has completed on the RX pin. */
void uart_receive(struct uart *uart, uint8_t byte, bool framing_error);

#endif
