/* The wire between the board's UART and the adapter at the host's end.
 *
 * In: bytes the host sends, bytes that leave the board. Out: the same bytes at the pace of the
 * wire: 10 bit times each (8N1) at the host's rate towards the board, and what the host's receiver
 * makes of the board's bit times in the other direction. Rates that do not fit give the garbage
 * they give on a real wire. */
#ifndef SIM_LINE_H
#define SIM_LINE_H

#include "chip.h"
#include "uart.h"

enum { LINE_QUEUE = 4096, LINE_FRAME_BITS = 10 };

struct line {
    struct chip *chip;
    struct uart *uart;
    uint32_t baud; /* the host's */
    uint8_t to_board[LINE_QUEUE], to_host[LINE_QUEUE];
    unsigned to_board_count, to_board_first, to_host_count;
    bool busy;               /* a byte is on its way to the board */
    uint64_t byte_end;       /* board time when it will have arrived */
    /* of the division of cycles by baud, so that the pace does not drift */
    uint64_t remainder;
    uint64_t received, sent; /* bytes that completed on the RX and TX pins */
};

void line_init(struct line *line, struct chip *chip, struct uart *uart);
unsigned line_room(const struct line *line);
/* Send bytes to the board; at most line_room(). */
void line_to_board(struct line *line, const uint8_t *bytes, unsigned count);
/* A byte has left the board. When nobody takes bytes away, the newest are dropped. */
void line_from_board(struct line *line, uint8_t byte);
/* What the host would read for a byte that the board sends now. */
uint8_t line_host_sees(const struct line *line, uint8_t byte);
/* The host unplugs or stops: bytes on their way are gone. */
void line_clear(struct line *line);

#endif
