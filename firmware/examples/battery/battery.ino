/*
 * A node on a battery: a voltage at A0 every ten minutes, as SenML-CBOR on `batteries/NAME`,
 * exactly once. Between, it sleeps in power-down, by the watchdog, and tells the library how long. It is
 * awake until its readings are through, or for five seconds if the gateway is away: they wait in
 * the journal then. While sixty wait none is kept, and the next one says how many were `missed`
 * (63: or more). Commands come through while it is awake.
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

struct Reading { // OW_JOURNAL_SOURCE bytes
    uint32_t time; // see ow_mqtt_time
    uint16_t raw : 10;
    uint16_t missed : 6; // readings that were left out before this one
    uint16_t error;      // seconds by which the time may be wrong
};
static_assert(sizeof(Reading) == OW_JOURNAL_SOURCE, "a source has 8 bytes");

static ow_mqtt client;
static ow_clock timepiece;
static ow_application application;
static char topic[sizeof "batteries/" + OW_NAME_MAX];
static uint32_t next;   // uptime at which a reading is due
static uint32_t asleep; // milliseconds, since the gateway told the time
static uint32_t told;   // uptime then
static uint32_t woke;   // milliseconds
static uint8_t missed;  // since the last one that the journal took

static void recall_packet(void *, const ow_entry *entry, ow_message *message, uint8_t *scratch)
{
    Reading one;
    memcpy(&one, entry->source, sizeof one);
    struct ow_senml_record record = {}; // `struct`: the function that writes it has the same name
    record.device = ow_mqtt_name(&client);
    record.base_time = ow_mqtt_utc(one.time, 0); // 0, and so left out, if it was not known
    record.time_error = record.base_time ? one.error : 0;
    record.name = "voltage";
    record.unit = "V";
    record.value.number = (int32_t)one.raw * 5;
    record.value.shift = 10;
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

// By how much the time may be wrong: sleep is timed by the watchdog.
static uint16_t time_error()
{
    uint32_t error = ow_clock_error(&timepiece, &client) + asleep / 1000 / POWER_DOWN_PARTS;
    return error < 0xFFFF ? error : 0xFFFF;
}

static void sample()
{
    Reading reading = {
        ow_mqtt_time(&client), (uint16_t)analogRead(SENSOR), missed, time_error()};
    ow_result result = ow_mqtt_publish_source(&client, (const uint8_t *)&reading);
    if (result == OW_BUSY) {
        return; // again in the next turn
    }
    next += EVERY_S;
    if (result == OW_ACCEPTED) {
        missed = 0;
    } else if (missed < 63) { // OW_FULL
        missed++;
    }
}

static bool is_through()
{
    return ow_mqtt_state(&client) == OW_CONNECTED && ow_mqtt_health(&client).pending == 0;
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
