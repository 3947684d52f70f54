/* In: one line. Out: one JSON object. */
#include "commands.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COUNT (UINT64_C(1) << 48)
#define MAX_RUN ((uint64_t)CHIP_HZ * 3600)
enum { MAX_WORDS = 8, MAX_BYTES = 1024, MAX_FRAME = 255, MAX_MILLIVOLTS = 5000 };

struct call {
    struct simulator *simulator;
    struct board *board;
    char *words[MAX_WORDS];
    int count;
    char *reply;
    size_t length;
    bool refused;
    bool *wants_events;
};

__attribute__((format(printf, 2, 3))) static void put(struct call *call, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length =
        vsnprintf(call->reply + call->length, CONTROL_REPLY - call->length, format, arguments);
    va_end(arguments);
    call->length += (size_t)length < CONTROL_REPLY - call->length
                        ? (size_t)length
                        : CONTROL_REPLY - call->length - 1;
}

static void put_hex(struct call *call, const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) put(call, "%02x", bytes[i]);
}

static void refuse(struct call *call, const char *why)
{
    call->refused = true;
    call->length = 0;
    put(call, "{\"ok\":false,\"error\":\"%s\"", why);
}

static bool number(const char *word, uint64_t most, uint64_t *value)
{
    char *end;
    *value = strtoull(word, &end, 0);
    return word[0] >= '0' && word[0] <= '9' && *end == '\0' && *value <= most;
}

static bool is(const struct call *call, int word, const char *text)
{
    return call->count > word && !strcmp(call->words[word], text);
}

static void do_power(struct call *call)
{
    if (!is(call, 1, "on") && !is(call, 1, "off")) {
        refuse(call, "power on or power off");
        return;
    }
    board_power(call->board, is(call, 1, "on"));
}

static void do_reset(struct call *call)
{
    if (call->board->chip.powered)
        board_reset(call->board, is(call, 0, "reset") ? RESET_EXTERNAL : RESET_BROWN_OUT);
    else
        refuse(call, "the power is off");
}

static void do_hang(struct call *call)
{
    if (call->board->chip.powered)
        board_hang(call->board);
    else
        refuse(call, "the power is off");
}

static void do_stick(struct call *call)
{
    uint64_t address, bits, value;
    if (call->count != 4 || !number(call->words[1], CHIP_EEPROM - 1, &address) ||
        !number(call->words[2], 255, &bits) || !number(call->words[3], 255, &value))
        refuse(call, "stick ADDRESS BITS VALUE, address 0 to 1023, bits and value 0 to 255");
    else
        eeprom_stick(&call->board->eeprom, (uint16_t)address, (uint8_t)bits, (uint8_t)value);
}

static void do_cut(struct call *call)
{
    enum cut kind = CUT_NONE;
    for (int i = CUT_CYCLES; i < CUT_KINDS; i++)
        if (is(call, 1, board_cut_name((enum cut)i))) kind = (enum cut)i;
    bool torn = is(call, 3, "torn");
    uint64_t count;
    if (kind == CUT_NONE || call->count < 3 || !number(call->words[2], MAX_COUNT, &count) ||
        count == 0 || (call->count == 4 && !(torn && kind >= CUT_EEPROM)))
        refuse(call, "cut cycles|tx|sends|sent|listens|heard|eeprom|memory N, N at least 1; cut eeprom|memory N"
                     " torn");
    else
        board_arm_cut(call->board, kind, count, torn);
}

/* Commands that an event can carry unchanged, and that can be ordered ahead. */
static bool can_wait(const struct call *call)
{
    static const char *const names[] = {"cut", "reset", "brownout", "hang", "power"};
    if (strpbrk(call->words[2], "\"\\")) return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (is(call, 3, names[i])) return true;
    return false;
}

static void do_at(struct call *call)
{
    uint64_t sample;
    char command[STRIKE_COMMAND] = "";
    if (call->count < 4 || !number(call->words[1], MAX_COUNT, &sample) || !can_wait(call) ||
        strlen(call->words[2]) >= STRIKE_ID) {
        refuse(call, "at SAMPLE ID cut ...|reset|brownout|hang|power ...");
        return;
    }
    for (int i = 3; i < call->count; i++) {
        size_t used = strlen(command);
        int length = snprintf(
            command + used, sizeof command - used, used ? " %s" : "%s", call->words[i]);
        if ((size_t)length >= sizeof command - used) {
            refuse(call, "the command is too long");
            return;
        }
    }
    if (!strikes_order(&call->simulator->strikes, sample, call->words[2], command))
        refuse(call, "this sample has been taken already, or too many commands wait");
}

static void do_cancel(struct call *call) { board_arm_cut(call->board, CUT_NONE, 0, false); }

static void do_adc(struct call *call)
{
    uint64_t channel, millivolts;
    if (call->count != 3 || !number(call->words[1], ADC_CHANNELS - 1, &channel) ||
        !number(call->words[2], MAX_MILLIVOLTS, &millivolts))
        refuse(call, "adc CHANNEL MILLIVOLTS, channel 0 to 7, 0 to 5000 mV");
    else
        adc_set(&call->board->adc, (unsigned)channel, (uint16_t)millivolts);
}

/* Index of the name; -1: unknown. */
static int index_of(const char *name, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(name, names[i])) return i;
    return -1;
}

/* Puts a faulty sensor, or a sensor of another kind, at its pin. */
static void do_sensor(struct call *call)
{
    struct board *board = call->board;
    int fault = -1;
    if (call->count == 3 && is(call, 1, "ds18b20") && board->onewire.chip) {
        fault = index_of(call->words[2], onewire_faults, ONEWIRE_FAULTS);
        if (fault >= 0) onewire_set(&board->onewire, (enum onewire_fault)fault);
    } else if (call->count == 3 && is(call, 1, "dht22") && board->dht22.chip) {
        fault = index_of(call->words[2], dht22_faults, DHT22_FAULTS);
        if (fault >= 0) dht22_set(&board->dht22, (enum dht22_fault)fault);
    }
    if (fault < 0) refuse(call, "sensor ds18b20|dht22 FAULT, of a board with that sensor");
}

static void do_baud(struct call *call)
{
    uint64_t baud;
    if (call->count != 2 || !number(call->words[1], 2000000, &baud) || baud < 300)
        refuse(call, "baud RATE, 300 to 2000000");
    else
        call->board->line.baud = (uint32_t)baud;
}

static void do_rx(struct call *call)
{
    uint8_t bytes[MAX_BYTES];
    size_t digits = call->count == 2 ? strlen(call->words[1]) : 0, count = digits / 2;
    bool fits = digits && digits % 2 == 0 && count <= MAX_BYTES &&
                strspn(call->words[1], "0123456789abcdefABCDEF") == digits;
    if (!fits || count > line_room(&call->board->line)) {
        refuse(call, fits ? "the line is full" : "rx HEX, at most 1024 bytes");
        return;
    }
    for (size_t i = 0; i < count; i++) {
        char pair[3] = {call->words[1][2 * i], call->words[1][2 * i + 1], '\0'};
        bytes[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    line_to_board(&call->board->line, bytes, (unsigned)count);
}

/* A line of the ether: a frame was in the air at the radio's place. */
static void do_heard(struct call *call)
{
    uint8_t frame[MAX_FRAME];
    char *end, *rest;
    size_t digits = call->count >= 4 ? strlen(call->words[3]) : 0, length = digits / 2;
    bool damaged = is(call, 4, "damaged");
    double rssi = digits ? strtod(call->words[1], &end) : 0;
    double snr = digits ? strtod(call->words[2], &rest) : 0;
    if (!call->board->radio.chip) {
        refuse(call, "there is no radio; start with --radio");
        return;
    }
    if (digits == 0 || digits % 2 || length > MAX_FRAME || *end || *rest || rssi < -150 ||
        rssi > 20 || snr < -100 || snr > 200 || (call->count == 5 && !damaged) ||
        strspn(call->words[3], "0123456789abcdefABCDEF") != digits) {
        refuse(call, "heard RSSI SNR HEX [damaged], at most 255 bytes");
        return;
    }
    for (size_t i = 0; i < length; i++) {
        char pair[3] = {call->words[3][2 * i], call->words[3][2 * i + 1], '\0'};
        frame[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    sx1276_hear(&call->board->radio, frame, (unsigned)length, (int)rssi, (int)(snr * 4), !damaged);
}

/* The radio's own supply. */
static void do_radio(struct call *call)
{
    if (!call->board->radio.chip || (!is(call, 1, "on") && !is(call, 1, "off")))
        refuse(call, "radio on or radio off, of a board with --radio");
    else
        sx1276_power(&call->board->radio, is(call, 1, "on"));
}

/* Run until the board has sent something and then stayed silent for two byte times, so that the
 * caller can answer as a host would. */
static void run_burst(struct board *board, uint64_t until)
{
    const uint64_t slice = CHIP_HZ / 115200 * 2 * LINE_FRAME_BITS;
    uint64_t sent;
    do {
        uint64_t left = until - chip_now(&board->chip);
        sent = board->line.sent;
        board_run(board, chip_now(&board->chip) + (left < slice ? left : slice));
    } while (chip_now(&board->chip) < until && board->chip.powered &&
             (board->line.sent != sent || board->line.to_host_count == 0));
}

static void do_run(struct call *call)
{
    uint64_t cycles;
    struct board *board = call->board;
    struct line *line = &board->line;
    bool burst = is(call, 2, "burst");
    if (call->simulator->speed != SPEED_STEP || call->count < 2 || (call->count > 2 && !burst) ||
        !number(call->words[1], MAX_RUN, &cycles)) {
        refuse(call, call->simulator->speed == SPEED_STEP
                         ? "run CYCLES or run CYCLES burst, at most an hour"
                         : "run needs --speed step");
        return;
    }
    uint64_t until = chip_now(&board->chip) + cycles;
    if (burst)
        run_burst(board, until);
    else
        board_run(board, until);
    put(call, ",\"cycle\":%" PRIu64 ",\"power\":%s,\"tx\":\"", chip_now(&board->chip),
        board->chip.powered ? "true" : "false");
    put_hex(call, line->to_host, line->to_host_count);
    put(call, "\"");
    line->to_host_count = 0;
}

static void do_speed(struct call *call)
{
    static const char *const names[] = {"real", "max", "step"};
    for (int i = 0; i < 3; i++)
        if (is(call, 1, names[i])) {
            simulator_set_speed(call->simulator, (enum speed)i);
            return;
        }
    refuse(call, "speed real, speed max or speed step");
}

static void do_plug(struct call *call)
{
    struct simulator *simulator = call->simulator;
    if (!simulator->port_link)
        refuse(call, "there is no port; start with --pty-link");
    else if (is(call, 0, "unplug"))
        port_unplug(&simulator->port);
    else if (simulator->port.master < 0 && !port_plug(&simulator->port, simulator->port_link))
        refuse(call, "no pseudo-terminal; see standard error");
}

static void do_stats(struct call *call)
{
    const struct board *board = call->board;
    put(call,
        ",\"cycle\":%" PRIu64 ",\"power\":%s,\"asleep\":%s,\"cause\":\"%s\",\"boots\":%" PRIu64,
        chip_now(&board->chip), board->chip.powered ? "true" : "false",
        board->chip.avr->state == cpu_Sleeping ? "true" : "false", board_cause_name(board->cause),
        board->boots);
    put(call, ",\"tx\":%" PRIu64 ",\"rx\":%" PRIu64 ",\"overruns\":%" PRIu64, board->line.sent,
        board->line.received, board->uart.overruns);
    put(call, ",\"samples\":%" PRIu64, board->samples);
    put(call, ",\"writes\":%" PRIu64 ",\"torn_writes\":%" PRIu64, board->writes,
        board->torn_writes);
    put(call, ",\"stuck_writes\":%" PRIu64, board->eeprom.stuck_writes);
    put(call, ",\"memory_writes\":%" PRIu64, board->memory_writes);
    put(call, ",\"frames\":%" PRIu64, board->frames);
    put(call, ",\"armed\":\"%s\",\"left\":%" PRIu64, board_cut_name(board->cut.kind),
        board->cut.left);
    put(call, ",\"cuts\":{\"cycles\":%" PRIu64 ",\"tx\":%" PRIu64 ",\"eeprom\":%" PRIu64
        ",\"memory\":%" PRIu64 "}",
        board->cuts[CUT_CYCLES], board->cuts[CUT_TX], board->cuts[CUT_EEPROM],
        board->cuts[CUT_MEMORY]);
    put(call, ",\"stack\":%u,\"open\":%s,\"slipped\":%" PRIu64, board_stack(board),
        call->simulator->port.open ? "true" : "false", call->simulator->slipped);
}

static void do_eeprom(struct call *call)
{
    put(call, ",\"eeprom\":\"");
    put_hex(call, call->board->eeprom.cells, CHIP_EEPROM);
    put(call, "\"");
}

static void do_wear(struct call *call)
{
    put(call, ",\"wear\":[");
    for (unsigned i = 0; i < CHIP_EEPROM; i++)
        put(call, "%s%" PRIu32, i ? "," : "", call->board->wear[i]);
    put(call, "]");
}

/* Of the LoRa modem, and those of both. */
static void do_registers(struct call *call)
{
    if (!call->board->radio.chip) {
        refuse(call, "there is no radio; start with --radio");
        return;
    }
    put(call, ",\"registers\":\"");
    for (unsigned i = 0; i < SX1276_REGISTERS; i++)
        put(call, "%02x", call->board->radio.registers[i]);
    put(call, "\"");
}

static void do_events(struct call *call) { *call->wants_events = true; }

static void do_quit(struct call *call) { call->simulator->quit = true; }

static const struct {
    const char *name;
    void (*run)(struct call *call);
    int words;     /* at most, its name included */
    bool is_input; /* belongs into a recording */
} commands[] = {
    {"hang", do_hang, 1, true},
    {"stick", do_stick, 4, true},
    {"power", do_power, 2, true},
    {"reset", do_reset, 1, true},
    {"brownout", do_reset, 1, true},
    {"cut", do_cut, 4, true},
    {"at", do_at, MAX_WORDS, false},
    {"cancel", do_cancel, 1, true},
    {"adc", do_adc, 3, true},
    {"sensor", do_sensor, 3, true},
    {"baud", do_baud, 2, true},
    {"rx", do_rx, 2, true},
    {"heard", do_heard, 5, true},
    {"radio", do_radio, 2, true},
    {"run", do_run, 3, false},
    {"speed", do_speed, 2, false},
    {"plug", do_plug, 1, false},
    {"unplug", do_plug, 1, false},
    {"stats", do_stats, 1, false},
    {"eeprom", do_eeprom, 1, false},
    {"wear", do_wear, 1, false},
    {"registers", do_registers, 1, false},
    {"events", do_events, 1, false},
    {"quit", do_quit, 1, false},
};

bool command_answer(struct simulator *simulator, char *line, char *reply, bool *wants_events)
{
    struct call call = {.simulator = simulator,
        .board = &simulator->board,
        .reply = reply,
        .wants_events = wants_events};
    char whole[CONTROL_LINE];
    snprintf(whole, sizeof whole, "%s", line);
    for (char *rest = line, *word;
        call.count < MAX_WORDS && (word = strtok_r(rest, " \t\r", &rest));)
        call.words[call.count++] = word;
    put(&call, "{\"ok\":true");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (!is(&call, 0, commands[i].name)) continue;
        uint64_t then = chip_now(&simulator->board.chip);
        if (call.count > commands[i].words)
            refuse(&call, "too many words");
        else
            commands[i].run(&call);
        if (commands[i].is_input && !call.refused) simulator_record(simulator, then, whole);
        put(&call, "}");
        return !call.refused;
    }
    refuse(&call, "unknown command; see firmware/sim/README.md");
    put(&call, "}");
    return false;
}
