/*
 * Temperature and humidity: a DHT22 at pin 3. Each minute one reading with both at QoS 2 on
 * `climate/NAME`, as SenML-CBOR, exactly once. A measurement that failed is tried again, and counts
 * as no reading. While sixty wait for the gateway none is kept: the times show the gap. (There is
 * no room to say how many; examples/ds18b20 does.)
 */
#include <Onceway.h>

#include "dht22.h"

static const uint8_t PIN = 3;
static const uint32_t EVERY_MS = 60000;

struct Reading { // OW_JOURNAL_SOURCE bytes
    uint32_t time; // see ow_mqtt_time
    int16_t temperature;    // tenths of a degree
    uint16_t humidity : 10; // tenths of a percent
    uint16_t error : 6;     // seconds by which the time may be wrong; 0: 64 or more
};
static_assert(sizeof(Reading) == OW_JOURNAL_SOURCE, "a source has 8 bytes");

static ow_mqtt client;
static ow_clock timepiece;
static ow_application application;
static char topic[sizeof "climate/" + OW_NAME_MAX];
static uint32_t last = DHT22_PAUSE_MS - EVERY_MS; // the first one as soon as the sensor is awake
static uint32_t since;                            // when the step under way began
static enum { IDLE, CALLS, LISTENS, PAUSES, MEASURED } step;
static Reading reading;

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
    record.value.number = one.temperature;
    record.value.exponent = -1;
    const uint8_t *end = scratch + OW_SCRATCH;
    uint8_t *at = ow_senml_record(ow_senml_pack(scratch, end, 2), end, &record);
    record = {}; // name and time of the first record hold for the second
    record.name = "humidity";
    record.unit = "%RH";
    record.value.number = one.humidity;
    record.value.exponent = -1;
    at = ow_senml_record(at, end, &record);
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

static void measure(uint32_t now)
{
    if (step == IDLE) {
        dht22_call();
        step = CALLS;
    } else if (step == CALLS && now - since >= DHT22_CALL_MS) {
        dht22_listen();
        step = LISTENS;
    } else if (step == LISTENS && now - since >= DHT22_ANSWER_MS) {
        uint16_t humidity;
        bool whole = dht22_read(&reading.temperature, &humidity);
        uint32_t error = ow_clock_error(&timepiece, &client);
        reading.humidity = humidity;
        reading.time = ow_mqtt_time(&client);
        reading.error = error < 64 ? error : 0;
        step = whole ? MEASURED : PAUSES;
    } else if (step == PAUSES && now - since >= DHT22_PAUSE_MS) {
        step = IDLE;
    } else {
        return;
    }
    since = now;
}

void setup()
{
    application.recall_packet = recall_packet;
    application.connected = connected;
    application.message_received = message_received;
    ow_mqtt_begin(&client, &application, NULL);
    strcpy(topic, "climate/");
    strcat(topic, ow_mqtt_name(&client));
    dht22_begin(PIN);
}

void loop()
{
    ow_mqtt_poll(&client);
    ow_clock_poll(&timepiece, &client);
    if (step == MEASURED) {
        // OW_BUSY: again in the next turn. OW_FULL: this one is left out
        if (ow_mqtt_publish_source(&client, (const uint8_t *)&reading) != OW_BUSY) {
            step = IDLE;
            while (millis() - last >= EVERY_MS) { // what was not measured is not made up for
                last += EVERY_MS;
            }
        }
    } else if (millis() - last >= EVERY_MS) {
        measure(millis());
    }
    ow_hal_idle();
}
