/* simboard: an Arduino Uno as a process. In: options, a serial port, a control socket. Out:
 * whatever the program in its flash does.
 *
 * The main loop lets board time follow real time (or runs ahead, or waits for `run`), moves bytes
 * between the port and the line, and serves the control socket. README.md has the options and
 * commands. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"
#include "images.h"
#include "simulator.h"

#define SLICE_BUSY (CHIP_HZ / 1000) /* while bytes flow */
#define MOST_SIXTEENTHS (125 * 16)
#define MOST_TENTHS 1250
#define MOST_DRIFT 100000                /* millionths: no oscillator is worse than a tenth */
#define LINGER (CHIP_HZ / 20)            /* how long the line counts as busy after a byte */

struct options {
    const char *eeprom, *fram, *i2c_eeprom, *flash, *bootloader, *port, *control, *eeprom_log;
    const char *tx_log, *adc_log, *record, *replay, *air, *name, *place;
    uint64_t seed;
    int adc_from; /* -1: no schedule */
    long drift;
    long ds18b20; /* sixteenths of a degree, LONG_MIN: none */
    int temperature, humidity; /* of a DHT22, in tenths; humidity -1: there is none */
    enum speed speed;
    bool off, radio;
};

static const char usage[] =
    "simboard: a simulated Arduino Uno. It starts switched on; see firmware/sim/README.md.\n"
    "  --control PATH      control socket (Unix)\n"
    "  --pty-link PATH     its serial port, a link to a pseudo-terminal\n"
    "  --bootloader HEX    boot loader; without it the chip starts at address 0\n"
    "  --flash FILE        image of the flash, 32 KiB, made if missing\n"
    "  --eeprom FILE       image of the EEPROM, 1 KiB, made if missing\n"
    "  --fram FILE         image of a FRAM on the I2C bus (MB85RC256), 32 KiB\n"
    "  --i2c-eeprom FILE   image of an EEPROM on the I2C bus (24LC256), 32 KiB\n"
    "  --ds18b20 NUMBER    a DS18B20 at pin 2, at so many sixteenths of a degree Celsius\n"
    "  --dht22 NUMBER,NUMBER\n"
    "                      a DHT22 at pin 3: tenths of a degree Celsius, tenths of a percent\n"
    "  --radio             an SX1276 (RFM95) on the SPI bus, select at pin 10, reset at pin 9\n"
    "  --air SOCKET        the radio is in this ether (hil/air)\n"
    "  --name NAME         name of the radio in the ether\n"
    "  --at X,Y            place of the radio, in metres\n"
    "  --eeprom-log FILE   one line per EEPROM write and start, appended\n"
    "  --tx-log FILE       one line per byte the board has sent: CYCLE VALUE\n"
    "  --adc-log FILE      one line per conversion: CYCLE NS CHANNEL MICROVOLTS, and per start\n"
    "  --adc-from STEP     another voltage at A0 for each conversion, from this step of 1024 on\n"
    "  --speed SPEED       real (default), max, or step: time passes only by the command `run`\n"
    "  --drift PPM         at speed real, its clock is fast by so many millionths; negative: slow\n"
    "  --seed N            seed of what is random on a real board: torn cells, RAM after\n"
    "                      power-on (default 1)\n"
    "  --off               start switched off\n"
    "  --with-parent       end when the process that started this one ends\n"
    "  --record FILE       write all inputs with their time\n"
    "  --replay FILE       read a recording instead of port and socket, and exit at its end\n";

static volatile sig_atomic_t terminated;

static void on_signal(int number)
{
    (void)number;
    terminated = 1;
}

static bool parse(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {{"control", 1, 0, 'c'}, {"pty-link", 1, 0, 'p'},
        {"bootloader", 1, 0, 'b'}, {"flash", 1, 0, 'f'}, {"eeprom", 1, 0, 'e'},
        {"fram", 1, 0, 'm'}, {"i2c-eeprom", 1, 0, 'i'},
        {"ds18b20", 1, 0, '1'}, {"dht22", 1, 0, '2'},
        {"eeprom-log", 1, 0, 'l'}, {"tx-log", 1, 0, 't'},
        {"adc-log", 1, 0, 'a'}, {"adc-from", 1, 0, 'v'}, {"speed", 1, 0, 's'}, {"seed", 1, 0, 'n'},
        {"drift", 1, 0, 'd'}, {"radio", 0, 0, 'R'}, {"air", 1, 0, 'A'}, {"name", 1, 0, 'N'},
        {"at", 1, 0, 'P'},
        {"record", 1, 0, 'r'}, {"replay", 1, 0, 'y'}, {"off", 0, 0, 'o'},
        {"with-parent", 0, 0, 'w'}, {"help", 0, 0, 'h'}, {0, 0, 0, 0}};
    char *end;
    *options = (struct options){.seed = 1, .adc_from = -1, .ds18b20 = LONG_MIN, .humidity = -1,
        .name = "board", .place = "0,0"};
    for (int option; (option = getopt_long(argc, argv, "h", known, NULL)) != -1;) switch (option) {
        case 'c': options->control = optarg; break;
        case 'p': options->port = optarg; break;
        case 'b': options->bootloader = optarg; break;
        case 'f': options->flash = optarg; break;
        case 'e': options->eeprom = optarg; break;
        case 'm': options->fram = optarg; break;
        case 'i': options->i2c_eeprom = optarg; break;
        case '1':
            options->ds18b20 = strtol(optarg, &end, 10);
            if (end == optarg || *end || labs(options->ds18b20) > MOST_SIXTEENTHS) return false;
            break;
        case '2': {
            int used = 0;
            sscanf(optarg, "%d,%d%n", &options->temperature, &options->humidity, &used);
            if (!used || optarg[used] || abs(options->temperature) > MOST_TENTHS ||
                options->humidity < 0 || options->humidity > 1000)
                return false;
            break;
        }
        case 'l': options->eeprom_log = optarg; break;
        case 't': options->tx_log = optarg; break;
        case 'a': options->adc_log = optarg; break;
        case 'v':
            options->adc_from = (int)strtol(optarg, &end, 10);
            if (end == optarg || *end || options->adc_from < 0 || options->adc_from >= ADC_STEPS)
                return false;
            break;
        case 'd':
            options->drift = strtol(optarg, &end, 10);
            if (end == optarg || *end || labs(options->drift) > MOST_DRIFT) return false;
            break;
        case 'r': options->record = optarg; break;
        case 'y': options->replay = optarg; break;
        case 'n':
            options->seed = strtoull(optarg, &end, 0);
            if (end == optarg || *end) return false;
            break;
        case 'R': options->radio = true; break;
        case 'A': options->air = optarg; break;
        case 'N': options->name = optarg; break;
        case 'P': options->place = optarg; break;
        case 'o': options->off = true; break;
        case 'w': prctl(PR_SET_PDEATHSIG, SIGTERM); break;
        case 's':
            if (strcmp(optarg, "real") && strcmp(optarg, "max") && strcmp(optarg, "step"))
                return false;
            options->speed = optarg[0] == 'r'   ? SPEED_REAL
                             : optarg[0] == 'm' ? SPEED_MAX
                                                : SPEED_STEP;
            break;
        default: return false;
        }
    if (options->radio && options->ds18b20 != LONG_MIN) return false; /* both are at pin 2 */
    return optind == argc && (options->radio || !options->air);
}

static int open_log(const char *path)
{
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    if (path && fd < 0) {
        fprintf(stderr, "simboard: %s: %s\n", path, strerror(errno));
        exit(EXIT_FAILURE);
    }
    return fd;
}

static void on_event(void *context, const char *json)
{
    control_event(&((struct simulator *)context)->control, json);
}

static void on_struck(void *context) { strikes_carry_out(&((struct simulator *)context)->strikes); }

static bool on_due(void *context, char *command)
{
    char reply[CONTROL_REPLY];
    bool wants_events;
    return command_answer(context, command, reply, &wants_events);
}

static void on_line(void *context, char *line, char *reply, bool *wants_events)
{
    command_answer(context, line, reply, wants_events);
}

static void on_sends(
    void *context, const struct sx1276_way *way, const uint8_t *frame, unsigned length)
{
    air_transmit(&((struct simulator *)context)->air, way, frame, length);
}

static void on_listens(void *context, const struct sx1276_way *way)
{
    air_listen(&((struct simulator *)context)->air, way);
}

static void on_heard(void *context, char *command) { on_due(context, command); }

/* How long the loop may wait for input. */
static struct timespec patience(const struct simulator *simulator, bool flowing)
{
    uint64_t ns = simulator->speed == SPEED_MAX
                      ? 0
                      : (uint64_t)(flowing ? SLICE_BUSY : SLICE_IDLE) * (NS_PER_S / CHIP_HZ);
    return (struct timespec){.tv_nsec = (long)ns};
}

/* --- port --- */

static void set_baud(struct simulator *simulator)
{
    uint32_t baud = port_baud(&simulator->port);
    if (baud == 0 || baud == simulator->board.line.baud) return;
    char command[32];
    snprintf(command, sizeof command, "baud %" PRIu32, baud);
    simulator_record(simulator, chip_now(&simulator->board.chip), command);
    simulator->board.line.baud = baud;
}

/* Also what a program wrote just before it closed the port: a wire would have carried it by then,
 * and the next one's boot loader would stumble over it. */
static bool take_from_host(struct simulator *simulator)
{
    struct line *line = &simulator->board.line;
    uint8_t bytes[512];
    unsigned room = line_room(line);
    size_t count = port_read(&simulator->port, bytes, room < sizeof bytes ? room : sizeof bytes);
    if (count == 0) return false;
    char command[8 + 2 * sizeof bytes] = "rx ";
    for (size_t i = 0; i < count; i++) sprintf(command + 3 + 2 * i, "%02x", bytes[i]);
    simulator_record(simulator, chip_now(&simulator->board.chip), command);
    line_to_board(line, bytes, (unsigned)count);
    return true;
}

static bool serve_port(struct simulator *simulator)
{
    struct line *line = &simulator->board.line;
    bool was_open = simulator->port.open;
    if (port_check(&simulator->port)) {
        was_open = false;
        if (simulator->board.chip.powered) {
            simulator_record(simulator, chip_now(&simulator->board.chip), "reset");
            board_reset(&simulator->board, RESET_EXTERNAL);
        }
    }
    if (!was_open) line->to_host_count = 0; /* bytes for a closed port are lost */
    if (simulator->port.open) set_baud(simulator);
    bool taken = take_from_host(simulator);
    if (!simulator->port.open) return taken;
    size_t given = port_write(&simulator->port, line->to_host, line->to_host_count);
    line->to_host_count -= (unsigned)given;
    memmove(line->to_host, line->to_host + given, line->to_host_count);
    return taken || given || line->to_board_count;
}

static void live(struct simulator *simulator)
{
    uint64_t last_byte = 0;
    while (!simulator->quit && !terminated) {
        struct pollfd set[4 + CONTROL_CLIENTS];
        unsigned count = control_poll_set(&simulator->control, set);
        if (simulator->port.master >= 0)
            set[count++] = (struct pollfd){.fd = simulator->port.watcher, .events = POLLIN};
        if (simulator->port.open && line_room(&simulator->board.line))
            set[count++] = (struct pollfd){.fd = simulator->port.master, .events = POLLIN};
        if (simulator->air.fd >= 0)
            set[count++] = (struct pollfd){.fd = simulator->air.fd, .events = POLLIN};
        uint64_t now = chip_now(&simulator->board.chip);
        struct timespec timeout = patience(simulator, now - last_byte < LINGER);
        int ready = ppoll(set, count, &timeout, NULL);
        simulator_pass_time(simulator);
        if (simulator->port_link && serve_port(simulator))
            last_byte = chip_now(&simulator->board.chip);
        air_serve(&simulator->air);
        if (ready > 0) control_serve(&simulator->control);
    }
}

/* --- replay --- */

static bool replay(struct simulator *simulator, const char *path)
{
    FILE *file = fopen(path, "r");
    char line[CONTROL_LINE], reply[CONTROL_REPLY];
    bool wants_events;
    if (!file) {
        fprintf(stderr, "simboard: %s: %s\n", path, strerror(errno));
        return false;
    }
    bool fits = true;
    for (unsigned number = 1; fits && fgets(line, sizeof line, file); number++) {
        char *command;
        uint64_t cycle = strtoull(line, &command, 10);
        line[strcspn(line, "\n")] = '\0';
        if (cycle > chip_now(&simulator->board.chip)) board_run(&simulator->board, cycle);
        fits = command > line && (!strcmp(command, " end") ||
                                     command_answer(simulator, command, reply, &wants_events));
        if (!fits)
            fprintf(stderr, "simboard: %s: line %u is no input of a recording\n", path, number);
    }
    fclose(file);
    return fits;
}

int main(int argc, char **argv)
{
    static struct simulator simulator;
    struct options options;
    if (!parse(argc, argv, &options) || (!options.control && !options.replay)) {
        fputs(usage, stderr);
        return 2;
    }
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);

    uint8_t *flash = image_map(options.flash, CHIP_FLASH, CHIP_GUARD, CHIP_GUARD_BYTE),
            *eeprom = image_map(options.eeprom, CHIP_EEPROM, 0, 0);
    if (!flash || !eeprom) return EXIT_FAILURE;
    long boot_start =
        options.bootloader ? image_load_hex(flash, CHIP_FLASH, options.bootloader) : 0;
    if (boot_start < 0) return EXIT_FAILURE;
    if (!board_init(&simulator.board, flash, eeprom, (uint32_t)boot_start, options.seed)) {
        fputs("simboard: this libsimavr does not know the atmega328p\n", stderr);
        return EXIT_FAILURE;
    }
    simulator.strikes.board = &simulator.board;
    simulator.strikes.obey = on_due;
    simulator.strikes.context = &simulator;
    const char *memory = options.fram ? options.fram : options.i2c_eeprom;
    if (memory) {
        uint8_t *bytes = image_map(memory, MEMORY_SIZE, 0, 0);
        if (!bytes) return EXIT_FAILURE;
        board_add_memory(&simulator.board, bytes, options.fram);
    }
    if (options.ds18b20 != LONG_MIN)
        board_add_thermometer(&simulator.board, (int16_t)options.ds18b20);
    if (options.humidity >= 0)
        board_add_dht22(&simulator.board, (int16_t)options.temperature, (uint16_t)options.humidity);
    if (options.radio) board_add_radio(&simulator.board);
    simulator.board.eeprom_log = open_log(options.eeprom_log);
    simulator.board.tx_log = open_log(options.tx_log);
    simulator.board.adc.log = open_log(options.adc_log);
    if (options.adc_from >= 0) adc_schedule(&simulator.board.adc, (uint16_t)options.adc_from);
    simulator.port.master = simulator.port.watcher = simulator.air.fd = -1;
    if (options.replay) {
        if (!options.off) board_power(&simulator.board, true);
        return replay(&simulator, options.replay) ? EXIT_SUCCESS : EXIT_FAILURE;
    }

    simulator.control.answer = on_line;
    simulator.control.context = &simulator;
    if (options.record && !(simulator.recording = fopen(options.record, "we"))) {
        perror(options.record);
        return EXIT_FAILURE;
    }
    if (!control_open(&simulator.control, options.control)) return EXIT_FAILURE;
    simulator.port_link = options.port;
    if (options.port && !port_plug(&simulator.port, options.port)) return EXIT_FAILURE;
    if (options.air) {
        if (!air_open(&simulator.air, options.air, options.name, options.place))
            return EXIT_FAILURE;
        simulator.air.heard = on_heard;
        simulator.air.context = &simulator;
        simulator.board.sends = on_sends;
        simulator.board.listens = on_listens;
    }
    simulator.board.event = on_event;
    simulator.board.struck = on_struck;
    simulator.board.context = &simulator;
    if (!options.off) board_power(&simulator.board, true);
    if (!control_listen(&simulator.control)) return EXIT_FAILURE;
    simulator.drift = options.drift;
    simulator_set_speed(&simulator, options.speed);
    live(&simulator);
    simulator_record(&simulator, chip_now(&simulator.board.chip), "end");
    port_unplug(&simulator.port);
    control_close(&simulator.control);
    return EXIT_SUCCESS;
}
