/* A program that polls once a second, as sketches with `delay(1000)` do. It publishes each five
 * seconds at QoS 2. */
#include <stddef.h>

#include "ow_hal.h"
#include "Onceway.h"
#include "ow_sketch.h"

enum { DELAY_MS = 1000, EVERY = 5 };

static struct ow_mqtt client;
static uint8_t source[OW_JOURNAL_SOURCE]; /* its first byte counts */

static void recall_packet(
    void *user, const struct ow_entry *entry, struct ow_message *message, uint8_t *scratch)
{
    (void)user;
    message->topic = "drowsy";
    message->topic_length = 6;
    message->qos = 2;
    message->payload = scratch;
    message->size = 1;
    scratch[0] = entry->source[0];
}

static void connected(void *user, bool session_present)
{
    (void)user;
    (void)session_present;
}

static void message_received(void *user, const struct ow_message *message)
{
    (void)user;
    (void)message;
}

static const struct ow_application application = {
    .recall_packet = recall_packet,
    .connected = connected,
    .message_received = message_received,
};

void setup(void)
{
    ow_mqtt_begin(&client, &application, NULL);
}

void loop(void)
{
    static uint8_t polls;
    ow_mqtt_poll(&client);
    if (++polls >= EVERY && ow_mqtt_publish_source(&client, source) == OW_ACCEPTED) {
        source[0]++;
        polls = 0;
    }
    uint16_t start = ow_hal_millis();
    while ((uint16_t)(ow_hal_millis() - start) < DELAY_MS) {
    }
}
