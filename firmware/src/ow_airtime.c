#include "ow_airtime.h"

enum { SLOW_FROM = 11 }; /* longer symbols lose two bits each (low data rate optimisation) */
enum { HEADER_AND_CRC_BITS = 44, PREAMBLE_AND_FIRST = 8 + 8, SYNC_QUARTERS = 17 };
enum { SYMBOLS_OF_A_BLOCK = 5 };

uint16_t ow_airtime_ms(uint8_t factor, uint8_t length)
{
    int16_t bits = (int16_t)(8 * length - 4 * factor + HEADER_AND_CRC_BITS);
    uint8_t block = (uint8_t)(4 * (factor < SLOW_FROM ? factor : factor - 2));
    uint16_t quarters = 4 * PREAMBLE_AND_FIRST + SYNC_QUARTERS;
    for (; bits > 0; bits -= block) { /* a division would cost flash */
        quarters += 4 * SYMBOLS_OF_A_BLOCK;
    }
    /* a symbol takes 2^factor * 8 microseconds */
    int32_t microseconds = (int32_t)quarters << (factor + 1);
    uint16_t ms = 0;
    for (; microseconds > 0; microseconds -= 1000) {
        ms++;
    }
    return ms;
}
