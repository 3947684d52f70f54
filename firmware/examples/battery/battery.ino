/*
 * A node on a battery: a voltage at A0 every ten minutes, as SenML-CBOR on `batteries/NAME`,
 * exactly once. In between it sleeps in power-down, timed by the watchdog, and tells the library for
 * how long. It is awake until its readings are delivered, or for five seconds if the gateway is away:
 * then they wait in the journal. While sixty wait no more are kept, and the next one has the count of
 * `missed` ones (63: or more). Commands come through while it is awake.
 *
 * A voltage of 5 V or more is beyond the converter; it is reported as `voltage.fault` on
 * `batteries/NAME/status`. Zero is a reading. A jump of more than 1 V counts when a second
 * measurement confirms it.
 *
 * An Uno draws most of its current outside of the chip: this is worth it on a bare ATmega328P.
 */
#include <Onceway.h>

extern "C" {
#include "power_down.h"
}

static const uint8_t SENSOR = A0;
static const uint32_t EVERY_S = 600;
static const uint16_t PATIENCE_MS = 5000;
static const uint16_t NO_VALUE = 1023; // in place of `raw`; `missed` then has the fault
static const ow_sensor_limits LIMITS = {0, NO_VALUE - 1, 1024 / 5, 4};

struct Reading { // OW_JOURNAL_SOURCE bytes
    uint32_t time; // see ow_mqtt_time
    uint16_t raw : 10;
    uint16_t missed : 6; // readings missed before this one
    uint16_t error;      // possible error of the time, in seconds
};
static_assert(sizeof(Reading) == OW_JOURNAL_SOURCE, "a source has 8 bytes");

static ow_mqtt client;
static ow_clock timepiece;
static ow_application application;
static char topic[sizeof "batteries//status" + OW_NAME_MAX]; // topic of a status
static uint8_t topic_length;                                // topic of a reading: without the last level
static ow_sensor sensor;
static uint32_t next;   // uptime at which a reading is due
static uint32_t asleep; // milliseconds, since the gateway told the time
static uint32_t told;   // uptime then
static uint32_t woke;   // milliseconds
static uint8_t missed;  // since the last reading in the journal

static void recall_packet(void *, const ow_entry *entry, ow_message *message, uint8_t *scratch)
{
    Reading one;
    memcpy(&one, entry->source, sizeof one);
    bool is_status = one.raw == NO_VALUE;
    struct ow_senml_record record = {}; // `struct`: the function that writes it has the same name
    record.device = ow_mqtt_name(&client);
    record.base_time = ow_mqtt_utc(one.time, 0); // 0 if unknown; left out then
    record.time_error = record.base_time ? one.error : 0;
    record.name = is_status ? "voltage.fault" : "voltage";
    record.unit = is_status ? NULL : "V";
    record.value.number = is_status ? (int32_t)one.missed : (int32_t)one.raw * 5;
    record.value.shift = is_status ? 0 : 10;
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

// By how much the time may be wrong: sleep is timed by the watchdog.
static uint16_t time_error()
{
    uint32_t error = ow_clock_error(&timepiece, &client) + asleep / 1000 / POWER_DOWN_PARTS;
    return error < 0xFFFF ? error : 0xFFFF;
}

static ow_result put(uint16_t raw, uint8_t detail)
{
    Reading reading = {ow_mqtt_time(&client), raw, detail, time_error()};
    return ow_mqtt_publish_source(&client, (const uint8_t *)&reading);
}

// A changed fault goes first, and the value, if there is one, in a later call.
static void sample()
{
    if (ow_mqtt_busy(&client) ||
        !ow_sensor_judge(&sensor, &LIMITS, OW_SENSOR_WELL, analogRead(SENSOR))) {
        return; // try again in the next call
    }
    ow_sensor_news due = ow_sensor_due(&sensor);
    ow_result result = OW_ACCEPTED;
    if (due == OW_SENSOR_STATUS) {
        result = put(NO_VALUE, sensor.fault);
    } else if (due == OW_SENSOR_VALUE) {
        result = put(sensor.value, missed);
    }
    if (result == OW_BUSY) {
        return;
    }
    if (due == OW_SENSOR_STATUS && result == OW_ACCEPTED) {
        ow_sensor_told(&sensor);
        return;
    }
    next += EVERY_S;
    if (sensor.fault != OW_SENSOR_WELL) {
        return;
    }
    if (result == OW_ACCEPTED) {
        missed = 0;
    } else if (missed < 63) { // OW_FULL
        missed++;
    }
}

static bool is_through()
{
    ow_health health;
    ow_mqtt_health(&client, &health);
    return ow_mqtt_state(&client) == OW_CONNECTED && health.pending == 0;
}

static void sleep()
{
    Serial.flush(); // what was sent is on the line
    while (ow_mqtt_uptime(&client) < next) {
        uint16_t milliseconds = power_down();
        ow_mqtt_slept(&client, milliseconds);
        asleep += milliseconds;
    }
    woke = millis();
}

void setup()
{
    application.recall_packet = recall_packet;
    application.connected = connected;
    application.message_received = message_received;
    ow_mqtt_begin(&client, &application, NULL);
    strcpy(topic, "batteries/");
    strcat(topic, ow_mqtt_name(&client));
    topic_length = strlen(topic);
    strcat(topic, "/status");
    woke = millis();
}

void loop()
{
    ow_mqtt_poll(&client);
    ow_clock_poll(&timepiece, &client);
    if (timepiece.told_at != told) {
        told = timepiece.told_at;
        asleep = 0;
    }
    bool patient = millis() - woke < PATIENCE_MS;
    if (ow_mqtt_uptime(&client) >= next) {
        if (ow_mqtt_state(&client) == OW_CONNECTED || !patient) { // the gateway tells the time first
            sample();
        }
    } else if (ow_mqtt_settled(&client) && (is_through() || !patient)) {
        sleep();
    }
    ow_hal_idle();
}
