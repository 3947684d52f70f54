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

/* Takes `tail` off the end of a text; false if it does not end so. */
static bool take_off(const uint8_t *text, uint8_t *length, const char *tail)
{
    uint8_t size = (uint8_t)strlen(tail);
    if (*length < size || memcmp(text + *length - size, tail, size) != 0) {
        return false;
    }
    *length = (uint8_t)(*length - size);
    return true;
}

enum command command_read(const uint8_t *text, uint8_t length, struct interval *interval)
{
    static const char word[] = "interval ";
    enum { HEAD = sizeof word - 1 };
    if (length > HEAD && memcmp(text, word, HEAD) == 0) {
        text += HEAD;
        length = (uint8_t)(length - HEAD);
        bool forced = take_off(text, &length, " force");
        interval->unit = take_off(text, &length, " s")     ? SECONDS
                         : take_off(text, &length, " min") ? MINUTES
                                                           : MILLISECONDS;
        if (!read_number(text, length, &interval->number)) {
            return COMMAND_RANGE;
        }
        return forced ? COMMAND_INTERVAL_FORCED : COMMAND_INTERVAL;
    }
    if (is(text, length, "identify")) {
        return COMMAND_IDENTIFY;
    }
    if (is(text, length, "interval")) {
        return COMMAND_ASK_INTERVAL;
    }
    return is(text, length, "reboot") ? COMMAND_REBOOT : COMMAND_UNKNOWN;
}
