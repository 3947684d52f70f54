/*
 * A board with a radio: a reading each LORA_EVERY_MS, at QoS 2 on `sensors/NAME/adc0`, as
 * SenML-CBOR. Commands come on `commands/NAME`; the last one's first byte goes with each reading.
 */
#include <string.h>

#include "ow_bytes.h"
#include "ow_hal.h"
#include "Onceway.h"
#include "ow_sketch.h"

#ifndef LORA_EVERY_MS
#define LORA_EVERY_MS 2000u
#endif

static struct ow_mqtt client;
static char topic[sizeof "sensors//adc0" + OW_NAME_MAX];
static uint16_t last;
static uint8_t command;

/* source: time:u32 value:u16 command:u8 */
static void recall_packet(
    void *user, const struct ow_entry *entry, struct ow_message *message, uint8_t *scratch)
{
    (void)user;
    const uint8_t *end = scratch + OW_SCRATCH;
    struct ow_senml_record record = {
        .base_time = ow_mqtt_utc(ow_get_u32(entry->source), 0),
        .value = {.number = ow_get_u16(entry->source + 4)},
    };
    struct ow_senml_record told = {.name = "c", .value = {.number = entry->source[6]}};
    uint8_t *at = ow_senml_record(ow_senml_pack(scratch, end, 2), end, &record);
    at = ow_senml_record(at, end, &told);
    message->topic = topic;
    message->topic_length = (uint16_t)strlen(topic);
    message->alias = 1;
    message->qos = 2;
    message->payload = scratch;
    message->size = (uint16_t)(at - scratch);
}

static void connected(void *user, bool session_present)
{
    char filter[sizeof "commands/" + OW_NAME_MAX] = "commands/";
    (void)user;
    (void)session_present;
    strcat(filter, client.name);
    ow_mqtt_subscribe(&client, filter, 2 | OW_NO_RETAINED);
}

static void message_received(void *user, const struct ow_message *message)
{
    (void)user;
    if (message->size) {
        command = message->payload[0];
    }
}

static const struct ow_application application = {
    .recall_packet = recall_packet,
    .connected = connected,
    .message_received = message_received,
};

void setup(void)
{
    ow_mqtt_begin(&client, &application, NULL);
    strcpy(topic, "sensors/");
    strcat(topic, client.name);
    strcat(topic, "/adc0");
    last = ow_hal_millis();
}

void loop(void)
{
    uint8_t source[OW_JOURNAL_SOURCE] = {0};
    ow_mqtt_poll(&client);
    if ((uint16_t)(ow_hal_millis() - last) >= LORA_EVERY_MS) {
        ow_put_u32(source, ow_mqtt_time(&client));
        ow_put_u16(source + 4, ow_hal_adc_read(0));
        source[6] = command;
        if (ow_mqtt_publish_source(&client, source) == OW_ACCEPTED) {
            last = (uint16_t)(last + LORA_EVERY_MS);
        }
    }
    ow_hal_idle();
}
