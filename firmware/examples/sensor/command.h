/*
 * Commands, as text, one per message:
 *
 *     interval N         milliseconds between samples, 1…65535; 65535: none
 *     interval N s       seconds, 1…65535
 *     interval N min     minutes, 1…65535
 *     interval … force   the same, also if the EEPROM lives less than a year then
 *     interval           asks for the interval, in milliseconds; 0: none
 *     identify           blink the LED for ten seconds
 *     reboot
 */
#ifndef COMMAND_H
#define COMMAND_H

#include <stdint.h>

enum command {
    COMMAND_UNKNOWN,
    COMMAND_RANGE, /* no samples */
    COMMAND_ASK_INTERVAL,
    COMMAND_INTERVAL,
    COMMAND_INTERVAL_FORCED,
    COMMAND_IDENTIFY,
    COMMAND_REBOOT
};

enum unit { MILLISECONDS, SECONDS, MINUTES, UNITS };

struct interval {
    uint16_t number;
    enum unit unit;
};

/* Reads a command; `*interval` is set for COMMAND_INTERVAL and COMMAND_INTERVAL_FORCED. */
enum command command_read(const uint8_t *text, uint8_t length, struct interval *interval);

#endif
