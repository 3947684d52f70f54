#include "sx1276.h"

#include <string.h>

#include <avr_ioport.h>

/* Registers (6.4). */
enum {
    FIFO = 0x00,
    OP_MODE = 0x01,
    FREQUENCY = 0x06,
    PA_CONFIG = 0x09,
    LNA = 0x0C,
    FIFO_AT = 0x0D,
    FIFO_TX_BASE = 0x0E,
    FIFO_RX_BASE = 0x0F,
    FIFO_RX_AT = 0x10,
    IRQ_MASK = 0x11,
    IRQ_FLAGS = 0x12,
    RX_BYTES = 0x13,
    PACKET_SNR = 0x19,
    PACKET_RSSI = 0x1A,
    HOP_CHANNEL = 0x1C,
    MODEM_CONFIG_1 = 0x1D,
    MODEM_CONFIG_2 = 0x1E,
    PREAMBLE = 0x20,
    PAYLOAD_LENGTH = 0x22,
    FIFO_RX_NEXT = 0x25,
    MODEM_CONFIG_3 = 0x26,
    LAST_OF_MODEM = 0x3F,
    SYNC_WORD = 0x39,
    DIO_MAPPING_1 = 0x40,
    VERSION = 0x42,
    PA_DAC = 0x4D
};
enum { LORA = 0x80, MODE = 0x07, SLEEP = 0, STANDBY = 1, TRANSMIT = 3, RECEIVE = 5 };
enum { TX_DONE = 0x08, VALID_HEADER = 0x10, CRC_ERROR = 0x20, RX_DONE = 0x40 };
enum { PA_BOOST = 0x80, HIGH_POWER = 0x87, IMPLICIT = 0x01, CRC_ON = 0x04, SLOW_SYMBOLS = 0x08 };
enum { CRC_ON_PAYLOAD = 0x40, WRITE = 0x80, FLOATING = 0xFF, RSSI_OFFSET = 157, PRIVATE = 0x12 };
enum { NSS = 1 << 2, NRESET = 1 << 1, DIO0 = 2 };

#define US (CHIP_HZ / 1000000)
#define POWER_ON (10000 * US)      /* 7.2.1 */
#define AFTER_RESET (5000 * US)    /* 7.2.2 */
#define OSCILLATOR (250 * US)      /* TS_OSC, table 7 */
#define TO_TRANSMIT (60 * US + 120 * US) /* TS_FS, and the ramp of the power amplifier */

/* After a reset (table 41), where that is not 0. */
static const struct {
    uint8_t address, value;
} defaults[] = {{OP_MODE, 0x09}, {FREQUENCY, 0x6C}, {FREQUENCY + 1, 0x80}, {PA_CONFIG, 0x4F},
    {0x0A, 0x09}, {0x0B, 0x2B}, {LNA, 0x20}, {FIFO_TX_BASE, 0x80}, {MODEM_CONFIG_1, 0x72},
    {MODEM_CONFIG_2, 0x70}, {0x1F, 0x64}, {PREAMBLE + 1, 8}, {PAYLOAD_LENGTH, 1}, {0x23, 0xFF},
    {0x31, 0xC3}, {0x33, 0x27}, {0x37, 0x0A}, {SYNC_WORD, 0x12}, {VERSION, 0x12}, {0x4B, 0x09},
    {PA_DAC, 0x84}};

static bool is_lora(const struct sx1276 *radio) { return radio->registers[OP_MODE] & LORA; }

static bool answers(const struct sx1276 *radio)
{
    return radio->powered && !radio->held && chip_now(radio->chip) >= radio->ready;
}

static uint8_t *cell(struct sx1276 *radio, uint8_t address)
{
    bool of_modem = address > OP_MODE && address <= LAST_OF_MODEM &&
                    (address < FREQUENCY || address > LNA);
    return of_modem && !is_lora(radio) ? &radio->fsk[address] : &radio->registers[address];
}

/* DIO0 shows RxDone or TxDone, as mapped (table 18). */
static void show(struct sx1276 *radio)
{
    static const uint8_t mapped[] = {RX_DONE, TX_DONE, 0, 0};
    uint8_t flag = mapped[radio->registers[DIO_MAPPING_1] >> 6];
    avr_raise_irq(radio->dio0, is_lora(radio) && radio->registers[IRQ_FLAGS] & flag ? 1 : 0);
}

static void raise(struct sx1276 *radio, uint8_t flags)
{
    radio->registers[IRQ_FLAGS] |= flags & (uint8_t)~radio->registers[IRQ_MASK];
    show(radio);
}

/* --- the way it sends --- */

static uint32_t bandwidth(const struct sx1276 *radio)
{
    static const uint32_t known[] = {
        7800, 10400, 15600, 20800, 31250, 41700, 62500, 125000, 250000, 500000};
    unsigned code = radio->registers[MODEM_CONFIG_1] >> 4;
    return code < sizeof known / sizeof known[0] ? known[code] : known[7];
}

/* 5.4.2 and 5.4.3. At RFM95 modules the other output leads nowhere. */
static int8_t power(const struct sx1276 *radio)
{
    uint8_t config = radio->registers[PA_CONFIG], output = config & 15;
    if (!(config & PA_BOOST)) return -30;
    return (int8_t)(2 + output + (radio->registers[PA_DAC] == HIGH_POWER ? 3 : 0));
}

static struct sx1276_way way(const struct sx1276 *radio)
{
    const uint8_t *of = radio->registers;
    uint64_t steps = (uint64_t)of[FREQUENCY] << 16 | of[FREQUENCY + 1] << 8 | of[FREQUENCY + 2];
    return (struct sx1276_way){
        .frequency = (uint32_t)((steps * 32000000 + (1 << 18)) >> 19), /* 4.1.4 */
        .bandwidth = bandwidth(radio),
        .factor = of[MODEM_CONFIG_2] >> 4,
        .coding = of[MODEM_CONFIG_1] >> 1 & 7,
        .preamble = (uint16_t)(of[PREAMBLE] << 8 | of[PREAMBLE + 1]),
        .power = power(radio),
        .usual = !(of[MODEM_CONFIG_1] & IMPLICIT) && of[MODEM_CONFIG_2] & CRC_ON &&
                 of[SYNC_WORD] == PRIVATE,
    };
}

/* Cycles of a frame (4.1.1.7). */
static uint64_t airtime(const struct sx1276 *radio, const struct sx1276_way *how, unsigned length)
{
    bool slow = radio->registers[MODEM_CONFIG_3] & SLOW_SYMBOLS;
    bool crc = radio->registers[MODEM_CONFIG_2] & CRC_ON;
    bool implicit = radio->registers[MODEM_CONFIG_1] & IMPLICIT;
    int bits = 8 * (int)length - 4 * how->factor + 28 + (crc ? 16 : 0) - (implicit ? 20 : 0);
    int block = 4 * (how->factor - (slow ? 2 : 0));
    unsigned blocks = bits > 0 ? (unsigned)((bits + block - 1) / block) : 0;
    uint64_t quarters = 4ull * (how->preamble + 8 + blocks * (how->coding + 4u)) + 17;
    return quarters * CHIP_HZ / 4 * (1ull << how->factor) / how->bandwidth;
}

/* --- modes --- */

static void be_quiet(struct sx1276 *radio)
{
    if (radio->mode != TRANSMIT && radio->mode != RECEIVE) return;
    chip_alarm(radio->chip, ALARM_RADIO, NEVER);
    radio->listen(radio->context, NULL);
}

static void transmit(struct sx1276 *radio)
{
    struct sx1276_way how = way(radio);
    uint8_t frame[SX1276_FIFO];
    unsigned length = radio->registers[PAYLOAD_LENGTH];
    for (unsigned i = 0; i < length; i++)
        frame[i] = radio->fifo[(uint8_t)(radio->registers[FIFO_TX_BASE] + i)];
    uint64_t now = chip_now(radio->chip), from = radio->awake > now ? radio->awake : now;
    chip_alarm(radio->chip, ALARM_RADIO, from + TO_TRANSMIT + airtime(radio, &how, length));
    radio->transmit(radio->context, &how, frame, length);
}

static void enter(struct sx1276 *radio, uint8_t mode)
{
    uint64_t now = chip_now(radio->chip);
    if (mode == radio->mode) return;
    be_quiet(radio);
    if (mode == SLEEP)
        radio->awake = NEVER;
    else if (radio->awake == NEVER)
        radio->awake = now + OSCILLATOR;
    radio->mode = mode;
    if (!is_lora(radio)) return;
    if (mode == TRANSMIT) transmit(radio);
    if (mode == RECEIVE) {
        struct sx1276_way how = way(radio);
        radio->next = radio->registers[FIFO_RX_BASE];
        radio->listen(radio->context, &how);
    }
}

static void on_transmitted(void *context)
{
    struct sx1276 *radio = context;
    radio->mode = STANDBY; /* by itself (4.1.6) */
    radio->registers[OP_MODE] = (uint8_t)((radio->registers[OP_MODE] & ~MODE) | STANDBY);
    raise(radio, TX_DONE);
    radio->done(radio->context, false);
}

void sx1276_hear(struct sx1276 *radio, const uint8_t *frame, unsigned length, int rssi, int snr,
    bool good)
{
    uint8_t *of = radio->registers;
    bool listens = answers(radio) && radio->mode == RECEIVE && is_lora(radio);
    if (!listens || !way(radio).usual || length == 0 || length > 255) return;
    of[FIFO_RX_AT] = radio->next;
    for (unsigned i = 0; i < length; i++) radio->fifo[radio->next++] = frame[i];
    of[FIFO_RX_NEXT] = radio->next;
    of[RX_BYTES] = (uint8_t)length;
    of[HOP_CHANNEL] |= CRC_ON_PAYLOAD;
    snr = snr < -128 ? -128 : snr > 127 ? 127 : snr; /* more the register cannot tell */
    of[PACKET_SNR] = (uint8_t)snr;
    of[PACKET_RSSI] = (uint8_t)(rssi + RSSI_OFFSET - (snr < 0 ? snr / 4 : 0)); /* 5.5.5 */
    raise(radio, (uint8_t)(VALID_HEADER | RX_DONE | (good ? 0 : CRC_ERROR)));
    radio->done(radio->context, true);
}

/* --- the bus --- */

static void set_mode(struct sx1276 *radio, uint8_t value)
{
    uint8_t *mode = &radio->registers[OP_MODE];
    bool was_asleep = (*mode & MODE) == SLEEP; /* only then it takes the change to LoRa (6.4) */
    *mode = was_asleep ? value : (uint8_t)((*mode & LORA) | (value & ~LORA));
    enter(radio, *mode & MODE);
    show(radio);
}

static bool fifo_open(const struct sx1276 *radio) /* 4.1.2.3 */
{
    return is_lora(radio) && chip_now(radio->chip) >= radio->awake;
}

static void write_cell(struct sx1276 *radio, uint8_t address, uint8_t value)
{
    if (address == FIFO) {
        if (fifo_open(radio)) radio->fifo[radio->registers[FIFO_AT]++] = value;
    } else if (address == OP_MODE) {
        set_mode(radio, value);
    } else if (address == IRQ_FLAGS && is_lora(radio)) {
        radio->registers[IRQ_FLAGS] &= (uint8_t)~value;
        show(radio);
    } else if (address != VERSION) {
        *cell(radio, address) = value;
        show(radio);
    }
}

static uint8_t read_cell(struct sx1276 *radio, uint8_t address)
{
    if (address == FIFO) return fifo_open(radio) ? radio->fifo[radio->registers[FIFO_AT]++] : 0;
    return *cell(radio, address);
}

uint8_t sx1276_exchange(struct sx1276 *radio, uint8_t byte)
{
    if (!radio->selected || !answers(radio)) return FLOATING;
    if (!radio->addressed) {
        radio->addressed = true;
        radio->writes = byte & WRITE;
        radio->address = byte & (uint8_t)~WRITE;
        return 0;
    }
    uint8_t address = radio->address, answer = 0;
    if (radio->writes)
        write_cell(radio, address, byte);
    else
        answer = read_cell(radio, address);
    if (address != FIFO) radio->address = (address + 1) % SX1276_REGISTERS;
    return answer;
}

/* --- pins and power --- */

static void reset(struct sx1276 *radio, uint64_t ready)
{
    be_quiet(radio);
    memset(radio->registers, 0, sizeof radio->registers);
    memset(radio->fsk, 0, sizeof radio->fsk);
    for (unsigned i = 0; i < sizeof defaults / sizeof defaults[0]; i++)
        radio->registers[defaults[i].address] = defaults[i].value;
    radio->mode = STANDBY;
    radio->awake = radio->ready = chip_now(radio->chip) + ready;
    radio->addressed = false;
    show(radio);
}

static void look_at_pins(struct sx1276 *radio, uint8_t direction)
{
    avr_ioport_state_t state;
    avr_ioctl(radio->chip->avr, AVR_IOCTL_IOPORT_GETSTATE('B'), &state);
    bool selected = direction & NSS && !(state.port & NSS);
    bool held = direction & NRESET && !(state.port & NRESET);
    if (selected != radio->selected) radio->addressed = false;
    radio->selected = selected;
    if (radio->held != held) reset(radio, AFTER_RESET);
    radio->held = held;
}

static void on_direction(avr_irq_t *irq, uint32_t value, void *context)
{
    (void)irq;
    look_at_pins(context, (uint8_t)value);
}

static void on_port(avr_irq_t *irq, uint32_t value, void *context)
{
    struct sx1276 *radio = context;
    avr_ioport_state_t state;
    (void)irq, (void)value;
    avr_ioctl(radio->chip->avr, AVR_IOCTL_IOPORT_GETSTATE('B'), &state);
    look_at_pins(radio, state.ddr);
}

void sx1276_release(struct sx1276 *radio) { look_at_pins(radio, 0); }

void sx1276_power(struct sx1276 *radio, bool on)
{
    if (radio->powered == on) return;
    reset(radio, POWER_ON);
    radio->powered = on;
}

static void no_transmission(
    void *context, const struct sx1276_way *how, const uint8_t *frame, unsigned length)
{
    (void)context, (void)how, (void)frame, (void)length;
}

static void no_listening(void *context, const struct sx1276_way *how) { (void)context, (void)how; }

static void nothing_done(void *context, bool heard) { (void)context, (void)heard; }

void sx1276_init(struct sx1276 *radio, struct chip *chip)
{
    avr_irq_t *port = avr_io_getirq(chip->avr, AVR_IOCTL_IOPORT_GETIRQ('B'), 0);
    memset(radio, 0, sizeof *radio);
    radio->chip = chip;
    radio->transmit = no_transmission;
    radio->listen = no_listening;
    radio->done = nothing_done;
    radio->dio0 = avr_io_getirq(chip->avr, AVR_IOCTL_IOPORT_GETIRQ('D'), DIO0);
    avr_irq_register_notify(port + IOPORT_IRQ_DIRECTION_ALL, on_direction, radio);
    avr_irq_register_notify(port + IOPORT_IRQ_REG_PORT, on_port, radio);
    chip_alarm_handler(chip, ALARM_RADIO, on_transmitted, radio);
    reset(radio, 0);
}
