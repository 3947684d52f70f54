/*
 * Samples ADC channel 0 on a timer and publishes each reading at QoS 2 on `sensors/NAME/adc0` as SenML-CBOR.
 *
 * A reading goes into the journal first: source = time:u32 (UTC seconds, or uptime with the top bit set), raw value:u16, channel:u8, spare:u8.
 * The journal is also the queue while the gateway is away. When it is full, no sample is taken and `missed` counts it.
 * The interval in milliseconds can be set in the application's EEPROM area: interval:u16 crc:u16 at 0x020. 0xFFFF takes no samples, and
 * what is in the journal still goes out.
 */
#include <string.h>

#include "ow_bytes.h"
#include "ow_crc.h"
#include "ow_hal.h"
#include "ow_mqtt.h"
#include "ow_senml.h"
#include "sketch.h"

#ifndef SENSOR_INTERVAL_MS
#define SENSOR_INTERVAL_MS 1000
#endif

enum { CHANNEL = 0, TIME_AT = 0, VALUE_AT = 4, CHANNEL_AT = 6 };
enum { SAMPLING_OFF = 0xFFFF };
enum { REFERENCE_VOLTS = 5, ADC_BITS = 10, TOPIC_ALIAS = 1 };

static struct ow_mqtt client;
static char topic[sizeof "sensors//adc0" + OW_NAME_MAX];
static uint16_t interval;
static uint16_t last; /* when a sample was due, milliseconds */
static uint16_t missed;

static void recall_packet(const struct ow_entry *entry, struct ow_message *message, uint8_t *scratch)
{
    uint32_t time = ow_get_u32(entry->source + TIME_AT);
    struct ow_senml_record record = {
        .device = client.name,
        .name = "adc0",
        .unit = "V",
        .time = time & OW_UPTIME_BIT ? 0 : time,
        .value = {(uint32_t)ow_get_u16(entry->source + VALUE_AT) * REFERENCE_VOLTS, ADC_BITS},
    };
    message->topic = topic;
    message->topic_length = (uint16_t)strlen(topic);
    message->alias = TOPIC_ALIAS;
    message->qos = 2;
    message->payload = scratch;
    message->size = ow_senml_encode(scratch, &record);
}

static void connected(bool session_present)
{
    (void)session_present;
}

static void message_received(const struct ow_message *message)
{
    (void)message;
}

static const struct ow_application application = {
    .recall_packet = recall_packet,
    .connected = connected,
    .message_received = message_received,
};

static uint16_t stored_interval(void)
{
    uint8_t record[4];
    for (uint8_t i = 0; i < sizeof record; i++) {
        record[i] = ow_hal_eeprom_read(OW_JOURNAL_APPLICATION + i);
    }
    uint16_t value = ow_get_u16(record);
    return ow_crc(OW_CRC_INITIAL, record, sizeof record) == 0 && value ? value : SENSOR_INTERVAL_MS;
}

void setup(void)
{
    interval = stored_interval();
    ow_mqtt_begin(&client, &application);
    strcpy(topic, "sensors/");
    strcat(topic, client.name);
    strcat(topic, "/adc0");
    last = (uint16_t)(ow_hal_millis() - interval); /* the first one at once */
}

static void sample(void)
{
    uint8_t source[OW_JOURNAL_SOURCE] = {0};
    if (interval == SAMPLING_OFF || !client.started || !ow_journal_idle(&client.journal)) {
        return;
    }
    if ((uint16_t)(ow_hal_millis() - last) < interval) {
        return;
    }
    last = (uint16_t)(last + interval);
    ow_put_u32(source + TIME_AT, ow_mqtt_time(&client));
    ow_put_u16(source + VALUE_AT, ow_hal_adc_read(CHANNEL));
    source[CHANNEL_AT] = CHANNEL;
    if (ow_mqtt_publish_source(&client, source) != OW_ACCEPTED) {
        missed++;
    }
}

void loop(void)
{
    ow_mqtt_poll(&client);
    sample();
    ow_hal_idle();
}
