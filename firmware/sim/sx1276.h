/* A Semtech SX1276 in an RFM95 module on the SPI bus: NSS at pin 10 (PB2), NRESET at pin 9 (PB1),
 * DIO0 at pin 2 (PD2). Sections are those of its data sheet (SX1276/77/78/79, revision 7).
 *
 * In: bytes of the bus, the two pins, frames that are in the air where it listens. Out: its bytes
 * and DIO0; what it sends, and where it listens. It keeps board time: a frame takes as long as on
 * the real chip, and its modes come up as late.
 *
 * Simulated is the LoRa modem: registers, FIFO, sleep, standby, transmission, continuous reception.
 * In FSK mode it takes registers and does nothing. */
#ifndef SIM_SX1276_H
#define SIM_SX1276_H

#include "chip.h"

enum { SX1276_REGISTERS = 128, SX1276_FIFO = 256 };

/* How it sends or listens. */
struct sx1276_way {
    uint32_t frequency, bandwidth; /* Hz */
    uint8_t factor;                /* spreading factor */
    uint8_t coding;                /* 1 to 4, of 4/5 to 4/8 */
    uint16_t preamble;             /* symbols */
    int8_t power;                  /* dBm */
    bool usual; /* explicit header, CRC, synchronisation word 0x12: what the ether carries */
};

struct sx1276 {
    struct chip *chip;
    bool powered;
    bool held;       /* NRESET is low */
    uint64_t ready;  /* board time from which on it answers */
    uint64_t awake;  /* from which on its oscillator runs; NEVER: asleep */
    uint8_t registers[SX1276_REGISTERS];
    uint8_t fsk[SX1276_REGISTERS]; /* those that lie under the LoRa modem's in FSK mode */
    uint8_t fifo[SX1276_FIFO];
    uint8_t next;    /* where the next frame that is heard will lie */
    uint8_t mode;
    bool selected, addressed, writes;
    uint8_t address;
    avr_irq_t *dio0;
    void (*transmit)(
        void *context, const struct sx1276_way *way, const uint8_t *frame, unsigned length);
    /* NULL: it listens no more, and what it was sending is cut off */
    void (*listen)(void *context, const struct sx1276_way *way);
    /* a frame has been sent, or heard */
    void (*done)(void *context, bool heard);
    void *context;
};

/* Connects a radio, without power. */
void sx1276_init(struct sx1276 *radio, struct chip *chip);

void sx1276_power(struct sx1276 *radio, bool on);

/* The board's pins are inputs again: the radio is neither selected nor reset. */
void sx1276_release(struct sx1276 *radio);

/* Take one byte of the bus and give one; 0xFF where nobody drives the line. */
uint8_t sx1276_exchange(struct sx1276 *radio, uint8_t byte);

/* A frame has ended that it may have heard. rssi: dBm. snr: quarters of a dB. good: its CRC was
 * right. Nothing happens unless it listens. */
void sx1276_hear(struct sx1276 *radio, const uint8_t *frame, unsigned length, int rssi, int snr,
    bool good);

#endif
