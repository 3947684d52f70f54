/* The device side of the link as it runs on boards, for Python: what firmware/src/ow_link.h offers,
 * in calls that take many bytes at once. */
#include <stddef.h>
#include <string.h>

#include "ow_link.h"

size_t twin_size(void) { return sizeof(struct ow_link); }

void twin_greet(struct ow_link *link, const char *name, uint16_t boot, uint32_t incarnation,
    uint32_t next_sequence, const uint8_t *key, uint32_t entropy)
{
    struct ow_greeting greeting = {name, boot, incarnation, next_sequence, false,
#if OW_KEYS
        entropy
#endif
    };
#if OW_KEYS
    memcpy(link->key, key, OW_KEY_SIZE);
#else
    (void)key;
    (void)entropy;
#endif
    ow_link_greet(link, &greeting);
}

/* Takes bytes up to the first event; returns the event and counts the bytes taken. */
int twin_receive(struct ow_link *link, const uint8_t *bytes, int length, uint16_t now, int *taken)
{
    enum ow_link_event event = OW_LINK_NOTHING;
    *taken = 0;
    while (event == OW_LINK_NOTHING && *taken < length) {
        event = ow_link_receive(link, bytes[(*taken)++], now);
    }
    return event;
}

const uint8_t *twin_payload(const struct ow_link *link, uint8_t *length)
{
    return ow_link_payload(link, length);
}

int twin_tick(struct ow_link *link, uint16_t now)
{
    return ow_link_tick(link, now);
}

int twin_transmit(struct ow_link *link, uint8_t *bytes, int room, uint16_t now)
{
    int length = 0;
    int16_t byte;
    while (length < room && (byte = ow_link_transmit(link, now)) >= 0) {
        bytes[length++] = (uint8_t)byte;
    }
    return length;
}

int twin_put(struct ow_link *link, const uint8_t *bytes, int length)
{
    int room = ow_link_room(link);
    int put = length < room ? length : room;
    for (int i = 0; i < put; i++) {
        ow_link_put(link, bytes[i]);
    }
    return put;
}

bool twin_open(const struct ow_link *link) { return link->state == OW_LINK_OPEN; }
bool twin_refused(const struct ow_link *link) { return link->cause == OW_LINK_REFUSED; }
uint8_t twin_attempt(const struct ow_link *link) { return link->attempt; }
uint32_t twin_incarnation(const struct ow_link *link) { return link->incarnation; }
ow_check twin_seed(const struct ow_link *link) { return link->seed; }
uint16_t twin_repeats(const struct ow_link *link) { return link->counts.repeats; }

/* Milliseconds until a timer runs out, or -1. */
int twin_wait(const struct ow_link *link, uint16_t now)
{
    if (!link->timer_on) {
        return -1;
    }
    uint16_t passed = (uint16_t)(now - link->timer_start);
    return passed >= link->timeout ? 0 : link->timeout - passed;
}
