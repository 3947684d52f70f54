/*
 * Temperature and humidity: a DHT22 at pin 3. Each minute one reading with both at QoS 2 on
 * `climate/NAME`, as SenML-CBOR, exactly once. While sixty wait for the gateway no more are kept:
 * the times show the gap. (There is no room for a count; examples/ds18b20 has one.)
 *
 * A measurement that failed is tried again after two seconds. After four failures in a row the
 * sensor has no values. The fault is reported on `climate/NAME/status` as `temperature.fault` and
 * `humidity.fault`: no answer, a short circuit to ground, damaged answers or all zeros, a
 * DHT11 in its place, a value out of range or without a second one near it.
 */
#include <Onceway.h>

#include "dht22.h"

#ifndef EVERY_MS // the rig's build measures more often
#define EVERY_MS 60000UL
#endif

static const uint8_t PIN = 3;
static const ow_sensor_limits CELSIUS = {-400, 800, 50, 4}; // tenths, as in the AM2302 data sheet
static const ow_sensor_limits PERCENT = {0, 1000, 100, 4};
static const int16_t NO_VALUE = INT16_MIN; // marks a fault, which is stored in place of the temperature

struct Reading { // OW_JOURNAL_SOURCE bytes
    uint32_t time; // see ow_mqtt_time
    int16_t temperature;    // tenths of a degree
    uint16_t humidity : 10; // tenths of a percent
    uint16_t error : 6;     // possible error of the time, in seconds; 0: 64 or more
};
static_assert(sizeof(Reading) == OW_JOURNAL_SOURCE, "a source has 8 bytes");

static ow_mqtt client;
static ow_clock timepiece;
static ow_application application;
static char topic[sizeof "climate//status" + OW_NAME_MAX]; // topic of a status
static uint8_t topic_length;                                // topic of a reading: without the last level
static uint32_t last = DHT22_PAUSE_MS - EVERY_MS; // the first one as soon as the sensor is awake
static uint32_t since;                            // when the step under way began
static enum { IDLE, CALLS, LISTENS, PAUSES, JUDGED } step;
static ow_sensor warmth, humidity;
static ow_sensor sensor; // both: a fault of either is one of both

static void recall_packet(void *, const ow_entry *entry, ow_message *message, uint8_t *scratch)
{
    Reading one;
    memcpy(&one, entry->source, sizeof one);
    bool is_status = one.temperature < NO_VALUE + OW_SENSOR_FAULTS;
    struct ow_senml_record record = {}; // `struct`: the function that writes it has the same name
    record.device = ow_mqtt_name(&client);
    record.base_time = ow_mqtt_utc(one.time, 0); // 0 if unknown; left out then
    record.time_error = record.base_time ? one.error : 0;
    record.name = is_status ? "temperature.fault" : "temperature";
    record.unit = is_status ? NULL : "Cel";
    record.value.number = is_status ? one.temperature - NO_VALUE : one.temperature;
    record.value.exponent = is_status ? 0 : -1;
    const uint8_t *end = scratch + OW_SCRATCH;
    uint8_t *at = ow_senml_record(ow_senml_pack(scratch, end, 2), end, &record);
    record.device = NULL; // name and time of the first record hold for the second
    record.base_time = 0;
    record.time_error = 0;
    record.name = is_status ? "humidity.fault" : "humidity";
    record.unit = is_status ? NULL : "%RH";
    if (!is_status) {
        record.value.number = one.humidity;
    }
    at = ow_senml_record(at, end, &record);
    message->topic = topic;
    message->topic_length = is_status ? strlen(topic) : topic_length;
    message->qos = 2;
    message->payload = scratch;
    message->size = at - scratch; // always fits: every part is short
}

static void connected(void *, bool)
{
}

static void message_received(void *, const ow_message *)
{
}

// Both values or none. Returns whether the judgement stands: it does when one of them is at fault.
static bool judge()
{
    int16_t degrees = 0;
    uint16_t percent = 0;
    ow_sensor_fault fault = dht22_read(&degrees, &percent);
    bool first = ow_sensor_judge(&warmth, &CELSIUS, fault, degrees);
    bool second = ow_sensor_judge(&humidity, &PERCENT, fault, percent);
    if (first && warmth.fault != OW_SENSOR_WELL) {
        sensor.fault = warmth.fault;
        return true;
    }
    if (second) {
        sensor.fault = humidity.fault;
        return first || sensor.fault != OW_SENSOR_WELL;
    }
    return false;
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
        step = judge() ? JUDGED : PAUSES;
    } else if (step == PAUSES && now - since >= DHT22_PAUSE_MS) {
        step = IDLE;
    } else {
        return;
    }
    since = now;
}

static ow_result put(bool is_status)
{
    uint32_t error = ow_clock_error(&timepiece, &client);
    Reading reading;
    reading.time = ow_mqtt_time(&client);
    reading.temperature = is_status ? NO_VALUE + sensor.fault : warmth.value;
    reading.humidity = humidity.value;
    reading.error = error < 64 ? error : 0;
    return ow_mqtt_publish_source(&client, (const uint8_t *)&reading);
}

// A changed fault goes first, and the values, if there are any, in a later call.
static void keep()
{
    ow_sensor_news due = ow_sensor_due(&sensor);
    if (due != OW_SENSOR_NOTHING) {
        ow_result result = put(due == OW_SENSOR_STATUS);
        if (result == OW_BUSY) {
            return; // try again in the next call
        }
        if (result == OW_ACCEPTED && due == OW_SENSOR_STATUS) {
            ow_sensor_told(&sensor);
            return;
        }
    }
    step = IDLE;
    while (millis() - last >= EVERY_MS) { // skipped measurements are not repeated
        last += EVERY_MS;
    }
}

void setup()
{
    application.recall_packet = recall_packet;
    application.connected = connected;
    application.message_received = message_received;
    ow_mqtt_begin(&client, &application, NULL);
    strcpy(topic, "climate/");
    strcat(topic, ow_mqtt_name(&client));
    topic_length = strlen(topic);
    strcat(topic, "/status");
    dht22_begin(PIN);
}

void loop()
{
    ow_mqtt_poll(&client);
    ow_clock_poll(&timepiece, &client);
    if (step == JUDGED) {
        keep();
    } else if (millis() - last >= EVERY_MS) {
        measure(millis());
    }
    ow_hal_idle();
}
