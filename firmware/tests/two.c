/*
 * Two boards in one program (OW_SEVERAL_BOARDS), each with a client, an EEPROM and a line of its
 * own: a test of struct ow_hal against a gateway.
 *
 *     two IDENTITY UART EEPROM IDENTITY UART EEPROM      UART: a file descriptor; the others: files
 *
 * Each publishes READINGS times its name on `two/NAME`, and takes messages on `commands/NAME`; for
 * each it makes the other board publish what came, from inside its callback.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "ow_hal.h"
#include "Onceway.h"

enum { READINGS = 5 };

struct two {
    char topic[OW_NAME_MAX + 5];
    int uart, eeprom_file;
    uint8_t identity[OW_IDENTITY_SIZE];
    uint8_t eeprom[OW_EEPROM_SIZE];
    struct ow_starts starts;
    struct ow_hal hal;
    struct ow_mqtt client;
    struct two *other;
    unsigned published;
    uint8_t reply[OW_JOURNAL_SOURCE]; /* to be published */
    bool replies;
};

static struct two boards[2];

/* --- the board --- */

static uint16_t millis(void *context)
{
    (void)context;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint16_t)(now.tv_sec * 1000 + now.tv_nsec / 1000000);
}

static enum ow_reset_cause reset_cause(void *context)
{
    (void)context;
    return OW_RESET_POWER_ON;
}

static uint32_t entropy(void *context)
{
    (void)context;
    uint32_t random;
    return getrandom(&random, sizeof random, 0) == sizeof random ? random : 0;
}

static int16_t uart_read(void *context)
{
    uint8_t byte;
    return read(((struct two *)context)->uart, &byte, 1) == 1 ? byte : -1;
}

static bool uart_writable(void *context)
{
    struct pollfd line = {.fd = ((struct two *)context)->uart, .events = POLLOUT};
    return poll(&line, 1, 0) == 1 && line.revents & POLLOUT;
}

static void uart_write(void *context, uint8_t byte)
{
    if (write(((struct two *)context)->uart, &byte, 1) != 1) {
        perror("uart");
    }
}

static uint8_t eeprom_read(void *context, uint16_t address)
{
    return ((struct two *)context)->eeprom[address];
}

static bool eeprom_busy(void *context)
{
    (void)context;
    return false;
}

static void eeprom_write(void *context, uint16_t address, uint8_t value)
{
    struct two *two = context;
    two->eeprom[address] = value;
    if (pwrite(two->eeprom_file, &value, 1, address) != 1) {
        perror("EEPROM");
    }
}

static void identity_read(void *context, uint8_t *bytes, uint8_t length)
{
    memcpy(bytes, ((struct two *)context)->identity, length);
}

/* --- the application: `user` is the board that it runs on --- */

static void recall_packet(
    void *user, const struct ow_entry *entry, struct ow_message *message, uint8_t *scratch)
{
    struct two *two = user;
    memcpy(scratch, entry->source, OW_JOURNAL_SOURCE);
    message->topic = two->topic;
    message->topic_length = (uint8_t)strlen(two->topic);
    message->qos = 2;
    message->payload = scratch;
    message->size = OW_JOURNAL_SOURCE;
}

static void connected(void *user, bool session_present)
{
    struct two *two = user;
    char filter[OW_NAME_MAX + 10];
    snprintf(filter, sizeof filter, "commands/%s", two->client.name);
    if (!session_present) {
        ow_mqtt_subscribe(&two->client, filter, 2);
    }
}

/* Whether the library's board is this one, as before a call for another client. */
static void check(const struct ow_hal *hal)
{
    if (ow_hal_use(hal) != hal) {
        fprintf(stderr, "the board is another one than before\n");
        exit(1);
    }
}

static void message_received(void *user, const struct ow_message *message)
{
    struct two *other = ((struct two *)user)->other;
    memset(other->reply, '-', sizeof other->reply);
    memcpy(other->reply, message->payload, message->size < 8 ? message->size : 8);
    other->replies = ow_mqtt_publish_source(&other->client, other->reply) != OW_ACCEPTED;
    check(&other->other->hal);
}

static const struct ow_application application = {
    .recall_packet = recall_packet,
    .connected = connected,
    .message_received = message_received,
};

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void start(struct two *two, char **files)
{
    int identity = open(files[0], O_RDONLY | O_CLOEXEC);
    if (read(identity, two->identity, sizeof two->identity) != sizeof two->identity) {
        fail(files[0]);
    }
    two->uart = atoi(files[1]);
    fcntl(two->uart, F_SETFL, fcntl(two->uart, F_GETFL) | O_NONBLOCK);
    two->eeprom_file = open(files[2], O_RDWR | O_CLOEXEC);
    if (read(two->eeprom_file, two->eeprom, sizeof two->eeprom) != sizeof two->eeprom) {
        fail(files[2]);
    }
    two->hal = (struct ow_hal){
        .context = two,
        .starts = &two->starts,
        .millis = millis,
        .reset_cause = reset_cause,
        .entropy = entropy,
        .uart_read = uart_read,
        .uart_writable = uart_writable,
        .uart_write = uart_write,
        .eeprom_read = eeprom_read,
        .eeprom_busy = eeprom_busy,
        .eeprom_write = eeprom_write,
        .identity_read = identity_read,
    };
    ow_hal_use(&two->hal);
    ow_mqtt_begin(&two->client, &application, two);
    strcpy(two->topic, "two/");
    strcat(two->topic, two->client.name);
}

static void turn(struct two *two)
{
    uint8_t source[OW_JOURNAL_SOURCE] = "........";
    ow_hal_use(NULL);
    ow_mqtt_poll(&two->client);
    check(NULL);
    if (two->replies) {
        two->replies = ow_mqtt_publish_source(&two->client, two->reply) != OW_ACCEPTED;
    } else if (two->published < READINGS) {
        memcpy(source, two->client.name, strlen(two->client.name) < 7 ? strlen(two->client.name) : 7);
        source[7] = (uint8_t)('1' + two->published);
        two->published += ow_mqtt_publish_source(&two->client, source) == OW_ACCEPTED;
    }
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: %s IDENTITY UART EEPROM IDENTITY UART EEPROM\n", argv[0]);
        return 2;
    }
    for (int i = 0; i < 2; i++) {
        boards[i].other = &boards[1 - i];
        start(&boards[i], argv + 1 + 3 * i);
    }
    for (;;) {
        for (int i = 0; i < 2; i++) {
            turn(&boards[i]);
        }
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
}
