#include "board.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The Uno's fuses: 16384 cycles for the crystal and 65 ms more before the first instruction after
 * any reset. */
#define START_UP (16384 + CHIP_HZ / 1000 * 65)

const char *board_cause_name(uint8_t cause)
{
    return cause & RESET_POWER_ON    ? "power-on"
           : cause & RESET_BROWN_OUT ? "brown-out"
           : cause & RESET_WATCHDOG  ? "watchdog"
                                     : "external";
}

const char *board_cut_name(enum cut kind)
{
    static const char *const names[CUT_KINDS] = {
        "none", "cycles", "tx", "sends", "sent", "listens", "heard", "eeprom", "memory"};
    return names[kind];
}

__attribute__((format(printf, 3, 4))) static void tell(
    struct board *board, const char *name, const char *format, ...)
{
    char json[768]; /* the longest has a frame of 255 bytes in hexadecimal */
    int length = snprintf(
        json, sizeof json, "{\"event\":\"%s\",\"cycle\":%" PRIu64, name, chip_now(&board->chip));
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(json + length, sizeof json - (size_t)length, format, arguments);
    va_end(arguments);
    snprintf(json + length, sizeof json - (size_t)length, "}");
    board->event(board->context, json);
}

static void log_line(int fd, const char *line, int length)
{
    if (fd >= 0 && write(fd, line, (size_t)length) != length) perror("simboard: log");
}

static void stop_for(struct board *board) { board->chip.attention = true; }

/* --- cuts --- */

static void cut_power(struct board *board)
{
    board->power_fails = true;
    stop_for(board);
}

static void on_cut(void *context) { cut_power(context); }

static void count_down(struct board *board, enum cut kind)
{
    if (board->cut.kind == kind && board->cut.left && --board->cut.left == 0) cut_power(board);
}

void board_arm_cut(struct board *board, enum cut kind, uint64_t count, bool torn)
{
    board->cut.kind = kind;
    board->cut.left = count;
    board->cut.torn = torn;
    board->cut.tx = board->line.sent;
    board->cut.writes = board->writes;
    bool counting = kind == CUT_CYCLES && board->chip.powered;
    chip_alarm(&board->chip, ALARM_CUT, counting ? chip_now(&board->chip) + count : NEVER);
}

/* --- reports of the peripherals --- */

static void tear(struct board *board, enum cut kind, uint64_t ends)
{
    if (board->cut.kind != kind || !board->cut.torn || board->cut.left != 1) return;
    uint64_t start = chip_now(&board->chip);
    chip_alarm(&board->chip, ALARM_CUT, start + 1 + chip_noise(&board->chip) % (ends - start - 1));
}

static void on_write_begun(void *context, uint64_t ends) { tear(context, CUT_EEPROM, ends); }

static void on_memory_begun(void *context, uint64_t ends) { tear(context, CUT_MEMORY, ends); }

static void on_memory_written(void *context, bool torn)
{
    struct board *board = context;
    board->memory_writes++;
    if (!torn) count_down(board, CUT_MEMORY);
}

static void on_written(void *context, const struct eeprom_write *write)
{
    struct board *board = context;
    char line[64];
    int length = snprintf(line, sizeof line, "%" PRIu64 " %03x %02x %d\n", write->cycle,
        write->address, write->value, write->torn);
    log_line(board->eeprom_log, line, length);
    board->writes++;
    board->torn_writes += write->torn;
    board->wear[write->address]++;
    if (!write->torn) count_down(board, CUT_EEPROM);
}

static void on_sent(void *context, uint8_t byte)
{
    struct board *board = context;
    char line[64];
    log_line(board->tx_log, line,
        snprintf(line, sizeof line, "%" PRIu64 " %02x\n", chip_now(&board->chip), byte));
    line_from_board(&board->line, byte);
    if (byte == 0)
        board->frame_count = 0;
    else if (board->frame_count < FRAME)
        board->frame[board->frame_count++] = byte;
    count_down(board, CUT_TX);
}

static void on_sample(void *context)
{
    struct board *board = context;
    if (++board->samples >= board->strike_at) stop_for(board);
}

static void on_transmission(
    void *context, const struct sx1276_way *way, const uint8_t *frame, unsigned length)
{
    struct board *board = context;
    char hex[2 * SX1276_FIFO] = "";
    board->frames++;
    for (unsigned i = 0; i < length; i++) sprintf(hex + 2 * i, "%02x", frame[i]);
    tell(board, "radio",
        ",\"frame\":\"%s\",\"frequency\":%" PRIu32 ",\"bandwidth\":%" PRIu32 ",\"factor\":%u"
        ",\"coding\":%u,\"preamble\":%u,\"power\":%d,\"usual\":%s",
        hex, way->frequency, way->bandwidth, way->factor, way->coding, way->preamble, way->power,
        way->usual ? "true" : "false");
    if (board->sends) board->sends(board->context, way, frame, length);
    count_down(board, CUT_SENDS);
}

static void on_listening(void *context, const struct sx1276_way *way)
{
    struct board *board = context;
    if (board->listens) board->listens(board->context, way);
    if (way) count_down(board, CUT_LISTENS);
}

static void on_done(void *context, bool heard)
{
    count_down(context, heard ? CUT_HEARD : CUT_SENT);
}

static void on_watchdog(void *context)
{
    struct board *board = context;
    board->reset_due |= RESET_WATCHDOG;
    stop_for(board);
}

/* --- power and reset --- */

static void start(struct board *board, uint8_t cause)
{
    uint8_t mcusr = cause & RESET_POWER_ON ? cause : chip_get(&board->chip, REG_MCUSR) | cause;
    char line[64];
    board->reset_due = 0;
    board->hangs = false;
    chip_reset(&board->chip);
    uart_reset(&board->uart);
    eeprom_reset(&board->eeprom);
    twi_reset(&board->twi);
    spi_reset(&board->spi);
    if (board->radio.chip) sx1276_release(&board->radio);
    flash_reset(&board->flash);
    watchdog_reset(&board->watchdog, false);
    chip_wait(&board->chip, START_UP);
    if (board->power_fails) return;
    chip_put(&board->chip, REG_MCUSR, mcusr);
    watchdog_reset(&board->watchdog, cause & RESET_WATCHDOG);
    adc_start(&board->adc, board_cause_name(cause));
    board->cause = cause;
    board->boots++;
    int length = snprintf(line, sizeof line, "%" PRIu64 " start %s\n", chip_now(&board->chip),
        board_cause_name(cause));
    log_line(board->eeprom_log, line, length);
    tell(board, "boot", ",\"cause\":\"%s\",\"boots\":%" PRIu64, board_cause_name(cause),
        board->boots);
}

void board_reset(struct board *board, enum reset_cause cause)
{
    if (!board->chip.powered) return;
    tell(board, "reset", ",\"cause\":\"%s\"", board_cause_name(cause));
    if (cause == RESET_BROWN_OUT) eeprom_power_fails(&board->eeprom);
    start(board, cause);
}

void board_hang(struct board *board) { board->hangs = board->chip.powered; }

void board_power(struct board *board, bool on)
{
    if (board->chip.powered == on) return;
    if (!on) {
        eeprom_power_fails(&board->eeprom);
        flash_power_fails(&board->flash);
        twi_reset(&board->twi);
        if (board->radio.chip) sx1276_power(&board->radio, false);
        if (board->twi.memory) memory_power_fails(&board->memory);
        chip_alarm(&board->chip, ALARM_WATCHDOG, NEVER);
        chip_alarm(&board->chip, ALARM_CUT, NEVER);
    }
    board->chip.powered = on;
    board->frame_count = 0;
    board->hangs = false;
    board->chip.attention = board->power_fails = false;
    board->reset_due = 0;
    tell(board, "power", ",\"on\":%s", on ? "true" : "false");
    if (!on) return;
    if (board->cut.kind == CUT_CYCLES) board_arm_cut(board, CUT_CYCLES, board->cut.left, false);
    chip_scramble_ram(&board->chip);
    if (board->onewire.chip) onewire_power_on(&board->onewire);
    if (board->dht22.chip) dht22_power_on(&board->dht22);
    if (board->radio.chip) sx1276_power(&board->radio, true);
    memcpy(board->ram_at_power_on, board->chip.avr->data, sizeof board->ram_at_power_on);
    start(board, RESET_POWER_ON);
}

static void fire_cut(struct board *board)
{
    enum cut kind = board->cut.kind;
    board->cuts[kind]++;
    board->cut.kind = CUT_NONE;
    board->cut.left = 0;
    char torn[64] = "null", frame[2 * FRAME + 1] = "";
    for (unsigned i = 0; i < board->frame_count; i++)
        sprintf(frame + 2 * i, "%02x", board->frame[i]);
    if (board->eeprom.busy)
        snprintf(torn, sizeof torn, "{\"address\":%u,\"value\":%u}", board->eeprom.address,
            board->eeprom.value);
    tell(board, "cut",
        ",\"armed\":\"%s\",\"pc\":%u,\"tx\":%" PRIu64 ",\"writes\":%" PRIu64 ",\"writing\":%s"
        ",\"since\":{\"tx\":%" PRIu64 ",\"writes\":%" PRIu64 "},\"frame\":\"%s\"",
        board_cut_name(kind), board->chip.avr->pc, board->line.sent, board->writes, torn,
        board->line.sent - board->cut.tx, board->writes - board->cut.writes, frame);
    board_power(board, false);
}

void board_run(struct board *board, uint64_t until)
{
    while (chip_now(&board->chip) < until) {
        if (board->hangs)
            chip_wait(&board->chip, until - chip_now(&board->chip));
        else
            chip_run(&board->chip, until);
        if (!board->chip.attention) continue;
        board->chip.attention = false;
        if (board->samples >= board->strike_at) board->struck(board->context);
        if (board->power_fails)
            fire_cut(board);
        else if (board->reset_due)
            board_reset(board, (enum reset_cause)board->reset_due);
    }
}

void board_add_memory(struct board *board, uint8_t *bytes, bool fram)
{
    memory_init(&board->memory, &board->chip, bytes, fram);
    board->memory.begun = on_memory_begun;
    board->memory.written = on_memory_written;
    board->memory.context = board;
    board->twi.memory = &board->memory;
}

void board_add_thermometer(struct board *board, int16_t sixteenths)
{
    onewire_init(&board->onewire, &board->chip, sixteenths);
}

void board_add_dht22(struct board *board, int16_t temperature, uint16_t humidity)
{
    dht22_init(&board->dht22, &board->chip, temperature, humidity);
}

void board_add_radio(struct board *board)
{
    sx1276_init(&board->radio, &board->chip);
    board->radio.transmit = on_transmission;
    board->radio.listen = on_listening;
    board->radio.done = on_done;
    board->radio.context = board;
    board->spi.radio = &board->radio;
}

unsigned board_stack(const struct board *board)
{
    unsigned run = 0, longest = 0, above = board->chip.avr->ramend + 1u;
    for (unsigned i = board->chip.avr->ioend + 1u; i <= board->chip.avr->ramend; i++) {
        run = board->chip.avr->data[i] == board->ram_at_power_on[i] ? run + 1 : 0;
        if (run > longest) longest = run, above = i + 1;
    }
    return board->chip.avr->ramend + 1u - above;
}

static void no_event(void *context, const char *json) { (void)context, (void)json; }

static void no_strike(void *context) { (void)context; }

bool board_init(
    struct board *board, uint8_t *flash, uint8_t *eeprom, uint32_t boot_start, uint64_t seed)
{
    memset(board, 0, sizeof *board);
    if (!chip_init(&board->chip, flash, seed)) return false;
    board->chip.avr->reset_pc = boot_start;
    board->eeprom_log = board->tx_log = -1;
    board->event = no_event;
    board->struck = no_strike;
    board->strike_at = NEVER;
    chip_alarm_handler(&board->chip, ALARM_CUT, on_cut, board);
    adc_init(&board->adc, &board->chip);
    board->adc.sampled = on_sample;
    board->adc.context = board;
    uart_init(&board->uart, &board->chip, on_sent, board);
    line_init(&board->line, &board->chip, &board->uart);
    eeprom_init(&board->eeprom, &board->chip, eeprom);
    board->eeprom.begun = on_write_begun;
    board->eeprom.written = on_written;
    board->eeprom.context = board;
    watchdog_init(&board->watchdog, &board->chip, on_watchdog, board);
    twi_init(&board->twi, &board->chip);
    spi_init(&board->spi, &board->chip);
    flash_init(&board->flash, &board->chip, boot_start ? boot_start : CHIP_FLASH);
    return true;
}
