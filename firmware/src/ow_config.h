/*
 * The options of the library: sizes and parts, chosen for 2 KiB of RAM. Set other values
 * in the build flags, as -DOW_KEYS=0, or in this file. A #define in a sketch reaches the sketch
 * alone, never the library's own files: the build then ends with an error that names the option
 * (ow_options.h).
 */
#ifndef OW_CONFIG_H
#define OW_CONFIG_H

#include <stdint.h>

#if defined(__AVR_ATmega32U4__)
#error "Leonardo and Micro are not supported: their serial port is USB, which the link cannot drive"
#endif

/* the last page below the boot loader's section; `provisioning/boards.toml` has the same */
#ifndef OW_IDENTITY_PAGE
#if defined(__AVR__) && !defined(__AVR_ATmega328P__) && !defined(__AVR_ATmega328__) && \
    !defined(__AVR_ATmega2560__)
#error "Where is this chip's identity page? Build with OW_IDENTITY_PAGE, see firmware/README.md"
#endif
#if defined(ARDUINO_AVR_NANO) || defined(ARDUINO_AVR_PRO)
#define OW_IDENTITY_PAGE 0x7780u
#elif defined(__AVR_ATmega2560__)
#define OW_IDENTITY_PAGE 0x3DF00ul
#else
#define OW_IDENTITY_PAGE 0x7D80u
#endif
#endif

#ifndef OW_KEYS
/* 1: board and gateway prove their key to one another, and frames have a CRC-32. 0: as in version 1
 * of the link, which gateways accept at ports with `open = true` only */
#define OW_KEYS 1
#endif

#ifndef OW_WATCHDOG
/* 0 for a board whose old boot loader leaves the watchdog on: it would reset the board in a loop */
#if defined(ARDUINO_AVR_NANO) || defined(ARDUINO_AVR_PRO)
#define OW_WATCHDOG 0
#else
#define OW_WATCHDOG 1
#endif
#endif

#ifndef OW_LORA
#define OW_LORA 0 /* 1: the carrier is the turn link over a radio, not the serial line */
#endif

#ifndef OW_SX1276
/* 1: the radio is an SX1276 (RFM95) on the SPI bus; 0: the program implements ow_radio.h */
#ifdef __AVR__
#define OW_SX1276 OW_LORA
#else
#define OW_SX1276 0
#endif
#endif

#ifndef OW_TURN_MTU
#define OW_TURN_MTU 96 /* longest content of a radio's frame, both ways */
#endif

#ifndef OW_TURN_QUEUE
#define OW_TURN_QUEUE 128 /* bytes put and not yet answered; a packet has OW_TURN_MTU - 1 at most */
#endif

#if defined(ARDUINO) && !defined(OW_LINK_RX_MTU)
/* the receive ring of the Arduino core has 64 bytes */
#define OW_LINK_RX_MTU (OW_KEYS ? 24 : 26)
#endif

#ifndef OW_LINK_RX_MTU
/* longest payload of a frame from the gateway; a full window of such frames fits the UART's receive
 * ring */
#define OW_LINK_RX_MTU 56
#endif

#ifndef OW_LINK_WINDOW
#define OW_LINK_WINDOW 2 /* frames in flight, each way */
#endif

#ifndef OW_LINK_TX_SIZE
/* bytes written and not yet acknowledged; also the longest packet that can be sent. A power of
 * two */
#define OW_LINK_TX_SIZE 128
#endif

/* For small functions with many callers, which the compiler would inline at each. */
#define OW_ONE_COPY __attribute__((noinline))

#if OW_LORA
#define OW_SEND_SIZE (OW_TURN_MTU - 1) /* longest packet that can be sent; one byte asks the time */
#else
#define OW_SEND_SIZE OW_LINK_TX_SIZE
#endif

#ifndef OW_MQTT_PACKET_SIZE
/* longest packet that the client accepts, at most 129; an answer has 8 bytes more */
#define OW_MQTT_PACKET_SIZE (OW_LORA ? OW_TURN_MTU - 8 : 96)
#endif

#ifndef OW_FLIGHTS
/* publications in flight. By radio two: the PUBREL of one goes with the PUBLISH of the next */
#define OW_FLIGHTS (OW_LORA ? 2 : 1)
#endif

#ifndef OW_KEEP_ALIVE_S
/* By radio, half of it is the longest time without a turn. A command may wait for so long, and an
 * idle board notices after that time that its gateway is gone. */
#define OW_KEEP_ALIVE_S (OW_LORA ? 7200 : 60)
#endif

#ifndef OW_CLOCK_PARTS
/* the clock's largest error is one part in this many: 200 for a resonator, as on Uno and Nano, with
 * temperature and age; 10000 for a crystal */
#define OW_CLOCK_PARTS 200
#endif

#ifndef OW_SESSION_EXPIRY_S
#define OW_SESSION_EXPIRY_S 0xFFFFFFFFul /* never */
#endif

/* Parts that a program may leave out: 0 takes the code away. */
#ifndef OW_PERSISTENCE
/* 0: publications live in RAM; a power cut loses them, and each start takes a new incarnation */
#define OW_PERSISTENCE 1
#endif

#ifndef OW_PUBLICATIONS
#define OW_PUBLICATIONS 1 /* publications at QoS 1 and 2, through the journal */
#endif

#ifndef OW_SUBSCRIPTIONS
#define OW_SUBSCRIPTIONS 1 /* messages from the gateway */
#endif

#ifndef OW_JOURNAL_MEMORY
#define OW_JOURNAL_MEMORY 0 /* 1: publications wait in a memory on the I2C bus, see ow_memory.h */
#endif

#ifndef OW_SLOT_CHECK
/* 1: a publication that is damaged in its memory is repaired or reported, and no sequence is used
 * again; 0: it is left out without a report */
#define OW_SLOT_CHECK (OW_PERSISTENCE && OW_PUBLICATIONS)
#endif

#ifndef OW_ANSWERS
/* 1: a command that names `logs/NAME` as its Response Topic can be answered: ow_mqtt_answer */
#define OW_ANSWERS 0
#endif

#ifndef OW_LOG_SIZE
#define OW_LOG_SIZE 0 /* bytes of RAM for a log that the gateway can read, a power of two: ow_log.h */
#endif

#ifndef OW_DEBUG
/* 1: a call that the library forbids, from an interrupt or another thread, stops the program
 * visibly: the LED blinks five times a second. 0: it has undefined results; no checks */
#define OW_DEBUG 0
#endif

#ifndef OW_SEVERAL_BOARDS
/* 1: a program has several clients, each with a board of its own (struct ow_hal); 0: one board, the
 * functions of ow_hal.h, without extra cost */
#define OW_SEVERAL_BOARDS 0
#endif
#if OW_SEVERAL_BOARDS && defined(ARDUINO)
#error "OW_SEVERAL_BOARDS must be 0 in a sketch: the Arduino core has one board"
#endif

#ifndef OW_JOURNAL_SLOTS
/* publications that can wait; 60 fill the EEPROM of an ATmega328P */
#define OW_JOURNAL_SLOTS (!OW_PERSISTENCE ? 4 : OW_JOURNAL_MEMORY ? 2000 : 60)
#endif

/* Counts slots of the journal. */
#if OW_JOURNAL_MEMORY
typedef uint16_t ow_slot;
#define OW_JOURNAL_SLOTS_MAX 2048
#else
typedef uint8_t ow_slot;
#define OW_JOURNAL_SLOTS_MAX 255
#endif

/* Counts bytes of packets: 8 bits are enough while no packet is longer than the ring. */
#if OW_LINK_TX_SIZE <= 128
typedef uint8_t ow_size;
#else
typedef uint16_t ow_size;
#endif

#include "ow_options.h"

#endif
