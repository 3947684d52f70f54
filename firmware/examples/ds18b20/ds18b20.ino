/*
 * A thermometer: a DS18B20 at pin 2, -55 to 125 degrees Celsius in sixteenths. Each minute one
 * reading at QoS 2 on `thermometers/NAME`, as SenML-CBOR, exactly once. While sixty wait for the
 * gateway no more are kept, and the next one has the count of `missed` ones (255: or more).
 *
 * A measurement that failed is tried again after two seconds. After four failures in a row the
 * sensor has no value. `thermometers/NAME/status` reports the fault as `temperature.fault`: no
 * answer, a short circuit to ground, damaged answers, another sensor (family code), more than one
 * sensor, no supply, a value out of range or without a second one near it. Not noticed: two sensors
 * with the same ROM code, as some clones have.
 */
#include <Onceway.h>

#include "onewire.h"

#ifndef EVERY_MS // the rig's build measures more often
#define EVERY_MS 60000UL
#endif

static const uint8_t PIN = 2;
static const uint32_t PAUSE_MS = 2000; // between two measurements
static const ow_sensor_limits LIMITS = {-55 * 16, 125 * 16, 5 * 16, 4}; // sixteenths of a degree
static const int16_t NO_VALUE = -2048; // marks a fault, which is stored in place of the value

struct Reading { // OW_JOURNAL_SOURCE bytes
    uint32_t time; // see ow_mqtt_time
    int32_t sixteenths : 12;
    uint32_t error : 12; // possible error of the time, in seconds
    uint32_t missed : 8; // readings missed before this one
};
static_assert(sizeof(Reading) == OW_JOURNAL_SOURCE, "a source has 8 bytes");

static ow_mqtt client;
static ow_clock timepiece;
static ow_application application;
static char topic[sizeof "thermometers//status" + OW_NAME_MAX]; // topic of a status
static uint8_t topic_length;                                // topic of a reading: without the last level
static uint32_t last = -EVERY_MS; // the first reading is due at once
static uint32_t begun = -PAUSE_MS; // when the last measurement began
static bool measuring;
static bool judged; // a due reading waits for the journal
static ow_sensor sensor;
static uint8_t missed; // since the last reading in the journal

static void recall_packet(void *, const ow_entry *entry, ow_message *message, uint8_t *scratch)
{
    Reading one;
    memcpy(&one, entry->source, sizeof one);
    bool is_status = one.sixteenths < NO_VALUE + OW_SENSOR_FAULTS;
    struct ow_senml_record record = {}; // `struct`: the function that writes it has the same name
    record.device = ow_mqtt_name(&client);
    record.base_time = ow_mqtt_utc(one.time, 0); // 0 if unknown; left out then
    record.time_error = record.base_time ? one.error : 0;
    record.name = is_status ? "temperature.fault" : "temperature";
    record.unit = is_status ? NULL : "Cel";
    record.value.number = is_status ? one.sixteenths - NO_VALUE : one.sixteenths;
    record.value.shift = is_status ? 0 : 4;
    const uint8_t *end = scratch + OW_SCRATCH;
    bool told = one.missed && !is_status; // count of missed readings
    uint8_t *at = ow_senml_record(ow_senml_pack(scratch, end, told ? 2 : 1), end, &record);
    if (told) {
        record = {};
        record.name = "missed";
        record.value.number = one.missed;
        at = ow_senml_record(at, end, &record);
    }
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

static void measure()
{
    int16_t sixteenths = 0;
    ow_sensor_fault fault;
    if (!measuring) {
        if (millis() - begun < PAUSE_MS) {
            return;
        }
        fault = ds18b20_convert();
        begun = millis(); // after it: it has begun with the last bit
        measuring = fault == OW_SENSOR_WELL;
        if (measuring) {
            return;
        }
    } else if (millis() - begun <= DS18B20_CONVERSION_MS) {
        return;
    } else {
        measuring = false;
        fault = ds18b20_read(&sixteenths);
    }
    judged = ow_sensor_judge(&sensor, &LIMITS, fault, sixteenths);
}

// value: NO_VALUE and a fault makes a status.
static ow_result put(int16_t value)
{
    uint32_t error = ow_clock_error(&timepiece, &client);
    Reading reading = {ow_mqtt_time(&client), value, error < 0xFFF ? error : 0xFFF, missed};
    return ow_mqtt_publish_source(&client, (const uint8_t *)&reading);
}

// A changed fault goes first, and the value, if there is one, in a later call.
static void keep()
{
    ow_sensor_news due = ow_sensor_due(&sensor);
    if (due != OW_SENSOR_NOTHING) {
        ow_result result = put(due == OW_SENSOR_VALUE ? sensor.value : NO_VALUE + sensor.fault);
        if (result == OW_BUSY) {
            return; // try again in the next call
        }
        if (result == OW_ACCEPTED && due == OW_SENSOR_STATUS) {
            ow_sensor_told(&sensor);
            return;
        }
        if (result == OW_ACCEPTED) {
            missed = 0;
        } else if (sensor.fault == OW_SENSOR_WELL && missed < 0xFF) { // OW_FULL
            missed++;
        }
    }
    judged = false;
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
    strcpy(topic, "thermometers/");
    strcat(topic, ow_mqtt_name(&client));
    topic_length = strlen(topic);
    strcat(topic, "/status");
    onewire_begin(PIN);
}

void loop()
{
    ow_mqtt_poll(&client);
    ow_clock_poll(&timepiece, &client);
    if (judged) {
        keep();
    } else if (millis() - last >= EVERY_MS) {
        measure();
    }
    ow_hal_idle();
}
