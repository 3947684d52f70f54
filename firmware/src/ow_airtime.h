/* Airtime of a LoRa frame: Semtech AN1200.13, section 4, for 125 kHz, 4/5, a preamble
 * of 8 symbols, explicit header and CRC. */
#ifndef OW_AIRTIME_H
#define OW_AIRTIME_H

#include <stdint.h>

/* Milliseconds, rounded up. factor: spreading factor, 7…12. length: bytes of the frame. */
uint16_t ow_airtime_ms(uint8_t factor, uint8_t length);

#endif
