/* A program whose setup takes longer than the watchdog waits, as that of a GSM modem does. It
 * publishes its source at QoS 2. */
#include <stddef.h>

#include "ow_hal.h"
#include "Onceway.h"
#include "ow_sketch.h"

enum { SETUP_MS = 2500 };

static struct ow_mqtt client;

static void recall_packet(
    void *user, const struct ow_entry *entry, struct ow_message *message, uint8_t *scratch)
{
    (void)user;
    (void)entry;
    message->topic = "slow";
    message->topic_length = 4;
    message->qos = 2;
    message->payload = scratch;
    message->size = 1;
    scratch[0] = ow_hal_reset_cause();
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
    uint16_t start = ow_hal_millis();
    ow_mqtt_begin(&client, &application, NULL);
    while ((uint16_t)(ow_hal_millis() - start) < SETUP_MS) {
    }
}

void loop(void)
{
    static const uint8_t source[OW_JOURNAL_SOURCE];
    ow_mqtt_poll(&client);
    if (client.journal.next == 1) {
        ow_mqtt_publish_source(&client, source);
    }
    if (ow_hal_millis() > 6000) { /* a program that hangs is reset */
        for (;;) {
        }
    }
    ow_hal_idle();
}
