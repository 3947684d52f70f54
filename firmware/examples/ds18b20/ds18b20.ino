/*
 * A thermometer: a DS18B20 at pin 2, -55 to 125 degrees Celsius in sixteenths. Each minute one
 * reading at QoS 2 on `thermometers/NAME`, as SenML-CBOR, exactly once. A measurement that failed
 * is tried again, and counts as no reading. While sixty wait for the gateway none is kept, and the
 * next one says how many were `missed` (255: or more).
 */
#include <Onceway.h>

#include "onewire.h"

static const uint8_t PIN = 2;
static const uint32_t EVERY_MS = 60000;
static const int16_t POWER_WAS_AWAY = 85 * 16;

struct Reading { // OW_JOURNAL_SOURCE bytes
    uint32_t time; // see ow_mqtt_time
    int32_t sixteenths : 12;
    uint32_t error : 12; // seconds by which the time may be wrong
    uint32_t missed : 8; // readings that were left out before this one
};
static_assert(sizeof(Reading) == OW_JOURNAL_SOURCE, "a source has 8 bytes");

static ow_mqtt client;
static ow_clock timepiece;
static ow_application application;
static char topic[sizeof "thermometers/" + OW_NAME_MAX];
static uint32_t last = -EVERY_MS; // the first one at once
static uint32_t begun;            // when the sensor began to measure
static bool measuring;
static bool measured; // `reading` waits for the journal
static Reading reading;
static uint8_t missed; // since the last one that the journal took

static void recall_packet(void *, const ow_entry *entry, ow_message *message, uint8_t *scratch)
{
    Reading one;
    memcpy(&one, entry->source, sizeof one);
    struct ow_senml_record record = {}; // `struct`: the function that writes it has the same name
    record.device = ow_mqtt_name(&client);
    record.base_time = ow_mqtt_utc(one.time, 0); // 0, and so left out, if it was not known
    record.time_error = record.base_time ? one.error : 0;
    record.name = "temperature";
    record.unit = "Cel";
    record.value.number = one.sixteenths;
    record.value.shift = 4;
    const uint8_t *end = scratch + OW_SCRATCH;
    uint8_t *at = ow_senml_record(ow_senml_pack(scratch, end, one.missed ? 2 : 1), end, &record);
    if (one.missed) {
        record = {};
        record.name = "missed";
        record.value.number = one.missed;
        at = ow_senml_record(at, end, &record);
    }
    message->topic = topic;
    message->topic_length = strlen(topic);
    message->qos = 2;
    message->payload = scratch;
    message->size = at - scratch; // it fits: no part of it is long
}

static void connected(void *, bool)
{
}

static void message_received(void *, const ow_message *)
{
}

static void measure()
{
    int16_t sixteenths;
    if (!measuring) {
        begun = millis();
        measuring = ds18b20_convert();
    } else if (millis() - begun >= DS18B20_CONVERSION_MS) {
        measuring = false;
        if (ds18b20_read(&sixteenths) && sixteenths != POWER_WAS_AWAY) {
            uint32_t error = ow_clock_error(&timepiece, &client);
            reading = {ow_mqtt_time(&client), sixteenths, error < 0xFFF ? error : 0xFFF, 0};
            measured = true;
        }
    }
}

static void keep()
{
    reading.missed = missed;
    ow_result result = ow_mqtt_publish_source(&client, (const uint8_t *)&reading);
    if (result == OW_BUSY) {
        return; // again in the next turn
    }
    if (result == OW_ACCEPTED) {
        missed = 0;
    } else if (missed < 0xFF) { // OW_FULL
        missed++;
    }
    measured = false;
    while (millis() - last >= EVERY_MS) { // what was not measured is not made up for
        last += EVERY_MS;
    }
}

void setup()
{
    application.recall_packet = recall_packet;
    application.connected = connected;
    application.message_received = message_received;
    ow_mqtt_begin(&client, &application, NULL);
    strcpy(topic, "thermometers/");
    strcat(topic, ow_mqtt_name(&client));
    onewire_begin(PIN);
}

void loop()
{
    ow_mqtt_poll(&client);
    ow_clock_poll(&timepiece, &client);
    if (measured) {
        keep();
    } else if (millis() - last >= EVERY_MS) {
        measure();
    }
    ow_hal_idle();
}
