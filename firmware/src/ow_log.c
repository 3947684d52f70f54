#include "ow_log.h"

#include <string.h>

#include "ow_bytes.h"
#include "ow_flow.h"

#if OW_LOG_SIZE

_Static_assert(OW_LOG_SIZE >= 64 && OW_LOG_SIZE <= 32768 && !(OW_LOG_SIZE & (OW_LOG_SIZE - 1)),
    "OW_LOG_SIZE must be 0 or a power of two from 64 to 32768");

enum { HEAD = 5, LONGEST_NUMBER = 10 }; /* bytes before the text; digits of 32 bits */

/* Returns how many digits there are. */
static uint8_t put_digits(char *out, uint32_t number)
{
    char digits[LONGEST_NUMBER];
    uint8_t count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    for (uint8_t i = 0; i < count; i++) {
        out[i] = digits[count - 1 - i];
    }
    return count;
}

/* --- the ring --- */

static void put(struct ow_log *log, const void *bytes, uint8_t length)
{
    for (const uint8_t *at = bytes; length--; at++) {
        log->ring[log->head++ % OW_LOG_SIZE] = *at;
    }
}

static uint8_t length_at(const struct ow_log *log, uint16_t place)
{
    return HEAD + log->ring[place % OW_LOG_SIZE];
}

static void give_up_oldest(struct ow_log *log)
{
    uint8_t length = length_at(log, log->tail);
    if (log->sent == log->tail) {
        log->sent = (uint16_t)(log->sent + length);
    }
    log->tail = (uint16_t)(log->tail + length);
    log->lost += log->lost != 0xFFFF;
}

static void append(struct ow_mqtt *client, const char *text, uint8_t length)
{
    struct ow_log *log = &client->log;
    uint8_t head[HEAD] = {length};
    ow_put_u32(head + 1, ow_mqtt_time(client));
    while ((uint16_t)(log->head - log->tail) > (uint16_t)(OW_LOG_SIZE - HEAD - length)) {
        give_up_oldest(log);
    }
    put(log, head, HEAD);
    put(log, text, length);
}

static uint8_t at_most(const char *text, uint8_t limit)
{
    size_t length = strlen(text);
    return length < limit ? (uint8_t)length : limit;
}

void ow_log(struct ow_mqtt *client, const char *text)
{
    OW_CHECK_CALL();
    append(client, text, at_most(text, OW_LOG_LINE));
}

__attribute__((noinline)) void ow_log_number(struct ow_mqtt *client, const char *text, int32_t number)
{
    OW_CHECK_CALL();
    char line[OW_LOG_LINE];
    uint8_t length = at_most(text, OW_LOG_LINE - LONGEST_NUMBER - 2);
    memcpy(line, text, length);
    line[length++] = ' ';
    if (number < 0) {
        line[length++] = '-';
    }
    length += put_digits(line + length, number < 0 ? 0 - (uint32_t)number : (uint32_t)number);
    append(client, line, length);
}

/* --- to the gateway --- */

bool ow_log_asked(struct ow_mqtt *client, const struct ow_message *message)
{
    OW_CHECK_CALL();
    if (message->size != 3 || memcmp(message->payload, "log", 3) != 0) {
        return false;
    }
    client->log.asked = true;
    client->log.sent = client->log.tail;
    return true;
}

void ow_log_connect(struct ow_mqtt *client)
{
    client->log.asked = false;
}

/* Writes the line at `sent` as it is published; returns its length. */
static uint8_t make_line(const struct ow_mqtt *client, char *out)
{
    const struct ow_log *log = &client->log;
    uint16_t place = log->sent, end = (uint16_t)(place + length_at(log, place));
    uint8_t bytes[4], length = 0;
    place++;
    for (uint8_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = log->ring[place++ % OW_LOG_SIZE];
    }
    uint32_t time = ow_get_u32(bytes), utc = ow_mqtt_utc(time, client->utc_at_start);
    if (!utc) {
        out[length++] = '+';
    }
    length += put_digits(out + length, utc ? utc : time & ~OW_UPTIME_BIT);
    out[length++] = ' ';
    while (place != end) {
        out[length++] = (char)log->ring[place++ % OW_LOG_SIZE];
    }
    return length;
}

/* Not inlined: its stack would be that of ow_mqtt_poll. */
static __attribute__((noinline)) void send_line(struct ow_mqtt *client)
{
    struct ow_log *log = &client->log;
    char line[1 + LONGEST_NUMBER + 1 + OW_LOG_LINE];
    bool last = log->sent == log->head;
    uint8_t length = last ? put_digits(line, log->lost) : make_line(client, line);
    struct ow_message message = {.topic = client->logs,
        .topic_length = (uint16_t)(sizeof client->logs + strlen(client->name)),
        .payload = (const uint8_t *)line,
        .size = length};
    if (ow_flow_send(client, &message, 0) == OW_BUSY) {
        return;
    }
    if (last) {
        log->asked = false;
    } else {
        log->sent = (uint16_t)(log->sent + length_at(log, log->sent));
    }
}

void ow_log_advance(struct ow_mqtt *client)
{
    if (client->log.asked) {
        send_line(client);
    }
}

#endif
