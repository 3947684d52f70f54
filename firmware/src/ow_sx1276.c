/*
 * The radio of ow_radio.h: a Semtech SX1276 (RFM95) over SPI, in LoRa mode at 125 kHz and 4/5, with
 * explicit header and CRC. Sections are those of its data sheet (SX1276/77/78/79, revision 7).
 *
 * Its state is in the chip, and a chip can lose it: so each frame begins with all settings, and a
 * frame that does not end in time resets the chip. Beside that reset (8 ms) nothing waits longer
 * than its oscillator takes to start.
 */
#include "ow_config.h"

#if OW_SX1276

#include "ow_airtime.h"
#include "ow_hal.h"
#include "ow_radio.h"

/* 6.4, and table 41 for what a reset leaves in those that are not named: 125 kHz, 4/5, explicit
 * header, preamble of 8 symbols, synchronisation word 0x12; in the FIFO what is heard from 0 on, what
 * is sent from 0x80 on. */
enum {
    FIFO = 0x00,
    OP_MODE = 0x01,
    FREQUENCY = 0x06, /* three bytes */
    PA_CONFIG = 0x09,
    LNA = 0x0C,
    FIFO_AT = 0x0D,
    FIFO_RX_AT = 0x10,
    IRQ_FLAGS = 0x12,
    RX_BYTES = 0x13,
    MODEM_CONFIG_2 = 0x1E,
    PAYLOAD_LENGTH = 0x22,
    MODEM_CONFIG_3 = 0x26,
    IF_FREQUENCY_2 = 0x2F,
    IF_FREQUENCY_1 = 0x30,
    DETECT_OPTIMIZE = 0x31,
    VERSION = 0x42,
    WRITE = 0x80 /* with the address (4.3) */
};
enum { LORA = 0x80, SLEEP = LORA, STANDBY = LORA | 1, TRANSMIT = LORA | 3, RECEIVE = LORA | 5 };
enum { TX_DONE = 0x08, CRC_ERROR = 0x20, RX_DONE = 0x40, ALL = 0xFF };
enum { PA_BOOST = 0x80, LEAST_DBM = 2, CRC_ON = 0x04, AGC = 0x04, SLOW_SYMBOLS = 0x08 };
enum { GAIN_1 = 0x20, BOOST = 0x03, FOR_SF7_TO_12 = 0x43 };
enum { SX1276 = 0x12, SLOW_FROM = 11, LATE_MS = 250, FIFO_TX = 0x80 };

static struct {
    struct ow_radio_plan plan;
    uint16_t began; /* when the frame was given to it */
    uint16_t most;  /* ms that it may take */
    bool awake;
} radio;

static uint8_t move(uint8_t address, uint8_t value)
{
    ow_hal_radio_select(true);
    ow_hal_radio_exchange(address);
    value = ow_hal_radio_exchange(value);
    ow_hal_radio_select(false);
    return value;
}

static uint8_t get(uint8_t address)
{
    return move(address, 0);
}

static void put(uint8_t address, uint8_t value)
{
    move(address | WRITE, value);
}

/* Puts the chip to sleep, with all settings. False: its version is not that of an SX1276.
 *
 * Semtech's errata note for the SX1276/77/78, 2.3 "Receiver Spurious Reception of a LoRa Signal":
 * AutomaticIFOn, bit 7 of RegDetectOptimize, is set after a reset, and then the receiver takes strong
 * signals of other channels for its own. It must be cleared at bandwidths up to 250 kHz. The
 * intermediate frequency is set by hand then: 0x40 and 0x00 at 62.5, 125 and 250 kHz; below that,
 * other values, and a channel that is moved. At 500 kHz the bit stays set, and 2.1 wants more. This
 * driver has 125 kHz only. */
static bool set_up(void)
{
    put(OP_MODE, SLEEP); /* only asleep it becomes a LoRa modem (6.4): with the second one */
    put(OP_MODE, SLEEP);
    put(FREQUENCY, (uint8_t)(radio.plan.channel >> 16));
    put(FREQUENCY + 1, (uint8_t)(radio.plan.channel >> 8));
    put(FREQUENCY + 2, (uint8_t)radio.plan.channel);
    put(PA_CONFIG, (uint8_t)(PA_BOOST | (radio.plan.power - LEAST_DBM))); /* 5.4.2 */
    put(MODEM_CONFIG_2, (uint8_t)(radio.plan.factor << 4 | CRC_ON));
    put(MODEM_CONFIG_3, radio.plan.factor < SLOW_FROM ? AGC : AGC | SLOW_SYMBOLS);
    put(LNA, GAIN_1 | BOOST); /* LnaBoostHf: above 862 MHz, what the sensitivity was measured with */
    put(DETECT_OPTIMIZE, FOR_SF7_TO_12);
    put(IF_FREQUENCY_2, 0x40);
    put(IF_FREQUENCY_1, 0);
    return get(VERSION) == SX1276;
}

static bool restart(void)
{
    ow_hal_radio_reset();
    radio.awake = false;
    return set_up();
}

bool ow_radio_begin(const struct ow_radio_plan *plan)
{
    radio.plan = *plan;
    return restart();
}

void ow_radio_send(const uint8_t *frame, uint8_t length)
{
    radio.began = ow_hal_millis();
    radio.most = ow_airtime_ms(radio.plan.factor, length) + LATE_MS;
    if (!set_up()) {
        return; /* the chip is reset when the time is over */
    }
    radio.awake = true;
    put(OP_MODE, STANDBY);
    ow_hal_radio_settle(); /* the FIFO cannot be reached asleep (4.1.2.3) */
    put(IRQ_FLAGS, ALL);
    put(FIFO_AT, FIFO_TX);
    put(PAYLOAD_LENGTH, length);
    while (length--) {
        put(FIFO, *frame++);
    }
    put(OP_MODE, TRANSMIT);
}

bool ow_radio_sent(void)
{
    if (get(IRQ_FLAGS) == TX_DONE) { /* exactly this value: without a chip all bits are equal */
        return true;
    }
    if ((uint16_t)(ow_hal_millis() - radio.began) < radio.most) {
        return false;
    }
    restart();
    return true;
}

void ow_radio_listen(void)
{
    radio.awake = true;
    put(IRQ_FLAGS, ALL);
    put(OP_MODE, RECEIVE);
}

uint8_t ow_radio_receive(uint8_t *frame, uint8_t size)
{
    uint8_t flags = get(IRQ_FLAGS);
    if (!(flags & RX_DONE)) {
        return 0;
    }
    put(IRQ_FLAGS, ALL);
    uint8_t length = get(RX_BYTES);
    if (flags & CRC_ERROR || length > size) {
        return 0;
    }
    put(FIFO_AT, get(FIFO_RX_AT));
    for (uint8_t i = 0; i < length; i++) {
        frame[i] = get(FIFO);
    }
    return length;
}

void ow_radio_sleep(void)
{
    if (radio.awake) {
        radio.awake = false;
        put(OP_MODE, SLEEP);
    }
}

#endif
