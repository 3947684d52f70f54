/*
 * The program whose size is budgeted (`make size`): UART driver, tick, link, client and EEPROM
 * journal; it connects, publishes 20 bytes at QoS 2 and subscribes at QoS 2. The switches of
 * ow_config.h take parts away.
 */
#include <string.h>

#include "ow_hal.h"
#include "Onceway.h"
#include "ow_sketch.h"

enum { PAYLOAD = 20, EVERY_MS = 250 };

#ifndef SIZE_SENSOR
#define SIZE_SENSOR 0 /* 1: what it publishes is judged first (ow_sensor.h) */
#endif

static struct ow_mqtt client;
static volatile uint8_t taken; /* so that the message is looked at */
static uint16_t last;

static void fill(struct ow_message *message, uint8_t *payload)
{
    memset(payload, 'x', PAYLOAD);
    message->topic = "size/t";
    message->topic_length = 6;
    message->alias = 1;
    message->payload = payload;
    message->size = PAYLOAD;
}

static void recall_packet(
    void *user, const struct ow_entry *entry, struct ow_message *message, uint8_t *scratch)
{
    (void)user;
    fill(message, scratch);
    memcpy(scratch, entry->source, OW_JOURNAL_SOURCE);
    message->qos = 2;
}

static void connected(void *user, bool session_present)
{
    (void)user;
    (void)session_present;
    if (OW_SUBSCRIPTIONS) {
        ow_mqtt_subscribe(&client, "size/c", 2);
    }
}

static void message_received(void *user, const struct ow_message *message)
{
    (void)user;
    taken = message->payload[0];
    ow_mqtt_answer(&client, message, taken ? OW_ANSWER_VALUE : OW_ANSWER_REFUSED, taken);
}

static const struct ow_application application = {
    .recall_packet = OW_PUBLICATIONS ? recall_packet : 0,
    .connected = connected,
    .message_received = OW_SUBSCRIPTIONS ? message_received : 0,
};

static bool counts(void)
{
    static const struct ow_sensor_limits limits = {1, 1022, 50, 4};
    static struct ow_sensor sensor;
    if (!ow_sensor_judge(&sensor, &limits, OW_SENSOR_WELL, taken)) {
        return false;
    }
    enum ow_sensor_news due = ow_sensor_due(&sensor);
    if (due == OW_SENSOR_STATUS) {
        ow_sensor_told(&sensor);
    }
    return due == OW_SENSOR_VALUE;
}

static void publish(void)
{
    static const uint8_t source[OW_JOURNAL_SOURCE] = "reading";
    if (OW_PUBLICATIONS) {
        ow_mqtt_publish_source(&client, source);
    } else {
        uint8_t payload[PAYLOAD];
        struct ow_message message = {0};
        fill(&message, payload);
        ow_mqtt_publish(&client, &message);
    }
}

void setup(void)
{
    ow_mqtt_begin(&client, &application, NULL);
}

void loop(void)
{
    ow_mqtt_poll(&client);
    if ((uint16_t)(ow_hal_millis() - last) >= EVERY_MS) {
        last = ow_hal_millis();
        if (!SIZE_SENSOR || counts()) {
            publish();
        }
    }
    ow_hal_idle();
}
