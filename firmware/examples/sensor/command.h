/*
 * Commands, as text, one per message:
 *
 *     interval N         milliseconds between samples, 1…65535; 65535: none
 *     interval N force   the same, also if the EEPROM lives less than a year then
 *     identify           blink the LED for ten seconds
 *     reboot
 */
#ifndef COMMAND_H
#define COMMAND_H

#include <stdint.h>

enum command {
    COMMAND_UNKNOWN,
    COMMAND_INTERVAL,
    COMMAND_INTERVAL_FORCED,
    COMMAND_IDENTIFY,
    COMMAND_REBOOT
};

/* Reads a command; `*number` is set for COMMAND_INTERVAL and COMMAND_INTERVAL_FORCED. */
enum command command_read(const uint8_t *text, uint8_t length, uint16_t *number);

#endif
