/*
 * A thermometer: a TMP36 at A0 (10 mV per degree, 500 mV at 0 degrees Celsius), below zero as well.
 * Each minute one reading at QoS 2 on `thermometers/NAME`, as SenML-CBOR, exactly once. While sixty
 * wait for the gateway none is taken, and the next one says how many were `missed` (255: or more).
 */
#include <Onceway.h>

static const uint8_t SENSOR = A0;
static const uint32_t EVERY_MS = 60000;
static const int16_t ZERO_MV = 500;

struct Reading { // OW_JOURNAL_SOURCE bytes
    uint32_t time; // see ow_mqtt_time
    int32_t tenths : 12; // of a degree; the sensor has 1 mV for each
    uint32_t error : 12; // seconds by which the time may be wrong
    uint32_t missed : 8; // readings that were left out before this one
};
static_assert(sizeof(Reading) == OW_JOURNAL_SOURCE, "a source has 8 bytes");

static ow_mqtt client;
static ow_clock timepiece;
static ow_application application;
static char topic[sizeof "thermometers/" + OW_NAME_MAX];
static uint32_t last = -EVERY_MS; // the first one at once
static uint8_t missed;            // since the last one that the journal took

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
    record.value.number = one.tenths;
    record.value.exponent = -1;
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

static void sample()
{
    int16_t millivolts = (int32_t)analogRead(SENSOR) * 5000 / 1024;
    uint32_t error = ow_clock_error(&timepiece, &client);
    Reading reading = {ow_mqtt_time(&client), millivolts - ZERO_MV, error < 0xFFF ? error : 0xFFF,
        missed};
    ow_result result = ow_mqtt_publish_source(&client, (const uint8_t *)&reading);
    if (result == OW_BUSY) {
        return; // again in the next turn
    }
    last += EVERY_MS;
    if (result == OW_ACCEPTED) {
        missed = 0;
    } else if (missed < 0xFF) { // OW_FULL
        missed++;
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
}

void loop()
{
    ow_mqtt_poll(&client);
    ow_clock_poll(&timepiece, &client);
    if (millis() - last >= EVERY_MS) {
        sample();
    }
    ow_hal_idle();
}
