#include "command.h"

#include <stdbool.h>
#include <string.h>

/* 1…65535, digits only. */
static bool read_number(const uint8_t *text, uint8_t length, uint16_t *number)
{
    uint32_t value = 0;
    if (length == 0 || length > 5) {
        return false;
    }
    while (length--) {
        uint8_t digit = (uint8_t)(*text++ - '0');
        if (digit > 9) {
            return false;
        }
        value = value * 10 + digit;
    }
    *number = (uint16_t)value;
    return value > 0 && value <= 0xFFFF;
}

static bool is(const uint8_t *text, uint8_t length, const char *word)
{
    return length == strlen(word) && memcmp(text, word, length) == 0;
}

enum command command_read(const uint8_t *text, uint8_t length, uint16_t *number)
{
    static const char interval[] = "interval ", force[] = " force";
    enum { HEAD = sizeof interval - 1, TAIL = sizeof force - 1 };
    if (length > HEAD && memcmp(text, interval, HEAD) == 0) {
        bool forced =
            length > HEAD + TAIL && memcmp(text + length - TAIL, force, TAIL) == 0;
        if (!read_number(text + HEAD, (uint8_t)(length - HEAD - (forced ? TAIL : 0)), number)) {
            return COMMAND_UNKNOWN;
        }
        return forced ? COMMAND_INTERVAL_FORCED : COMMAND_INTERVAL;
    }
    if (is(text, length, "identify")) {
        return COMMAND_IDENTIFY;
    }
    return is(text, length, "reboot") ? COMMAND_REBOOT : COMMAND_UNKNOWN;
}
