#include "line.h"

#include <string.h>

/* What a receiver with bit time `theirs` makes of a frame sent with bit time `ours`: it samples the
 * middle of each of its own bits, counted from the falling edge of the start bit. After the frame
 * the line is idle (high). */
static uint8_t sample(uint8_t byte, double ours, double theirs, bool *framing_error)
{
    unsigned frame = (unsigned)byte << 1 | 0x200; /* start bit 0, eight data bits, stop bit 1 */
    unsigned seen = 0;
    for (int i = 0; i < LINE_FRAME_BITS; i++) {
        double bit = (i + 0.5) * theirs / ours;
        if (bit >= LINE_FRAME_BITS || frame >> (unsigned)bit & 1) seen |= 1u << i;
    }
    *framing_error = !(seen & 0x200);
    return (uint8_t)(seen >> 1);
}

static double host_bit(const struct line *line) { return (double)CHIP_HZ / line->baud; }

static uint64_t byte_cycles(struct line *line)
{
    uint64_t total = (uint64_t)LINE_FRAME_BITS * CHIP_HZ + line->remainder;
    line->remainder = total % line->baud;
    return total / line->baud;
}

static void start_byte(struct line *line, uint64_t start)
{
    line->busy = true;
    line->byte_end = start + byte_cycles(line);
    uart_start_bit(line->uart);
    chip_alarm(line->chip, ALARM_LINE, line->byte_end);
}

static void on_byte(void *context)
{
    struct line *line = context;
    bool framing_error;
    uint8_t byte = sample(line->to_board[line->to_board_first], host_bit(line),
        uart_bit_cycles(line->uart), &framing_error);
    line->to_board_first = (line->to_board_first + 1) % LINE_QUEUE;
    line->to_board_count--;
    line->busy = false;
    line->received++;
    uart_receive(line->uart, byte, framing_error);
    if (line->to_board_count) start_byte(line, line->byte_end);
}

void line_init(struct line *line, struct chip *chip, struct uart *uart)
{
    memset(line, 0, sizeof *line);
    line->chip = chip;
    line->uart = uart;
    line->baud = 115200;
    chip_alarm_handler(chip, ALARM_LINE, on_byte, line);
}

unsigned line_room(const struct line *line) { return LINE_QUEUE - line->to_board_count; }

void line_to_board(struct line *line, const uint8_t *bytes, unsigned count)
{
    for (unsigned i = 0; i < count && line_room(line); i++)
        line->to_board[(line->to_board_first + line->to_board_count++) % LINE_QUEUE] = bytes[i];
    if (line->to_board_count && !line->busy) start_byte(line, chip_now(line->chip));
}

uint8_t line_host_sees(const struct line *line, uint8_t byte)
{
    bool framing_error;
    return sample(byte, uart_bit_cycles(line->uart), host_bit(line), &framing_error);
}

void line_from_board(struct line *line, uint8_t byte)
{
    line->sent++;
    if (line->to_host_count < LINE_QUEUE)
        line->to_host[line->to_host_count++] = line_host_sees(line, byte);
}

void line_clear(struct line *line)
{
    line->to_board_count = line->to_host_count = 0;
    line->busy = false;
    chip_alarm(line->chip, ALARM_LINE, NEVER);
}
