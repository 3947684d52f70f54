/*
 * Samples ADC channel 0 on a timer and publishes each reading at QoS 2 on `sensors/NAME/adc0`;
 * after each start a status on `sensors/NAME/status`. Takes commands at QoS 2 on `commands/NAME`
 * (command.h) and obeys each once.
 *
 * A reading goes into the journal first (reading.h); the journal is also the queue while the
 * gateway is away. When it is full, no sample is taken, and the next reading tells how many. The
 * interval is kept in the application's EEPROM area: interval:u16 crc:u16 at 0x020.
 */
#include <string.h>

#include "command.h"
#include "ow_bytes.h"
#include "ow_crc.h"
#include "ow_hal.h"
#include "ow_mqtt.h"
#include "reading.h"
#include "ow_sketch.h"

enum { CHANNEL = 0, SAMPLING_OFF = 0xFFFF, IDENTIFY_S = 10 };
enum { ALIAS_ADC = 1, ALIAS_STATUS = 2 };

static struct ow_mqtt client;
static char topic[sizeof "sensors//status" + OW_NAME_MAX];
static uint32_t first_sequence; /* of this life */
static uint8_t stored[4]; /* the interval as it stands in the EEPROM */
static uint16_t interval;
static uint16_t last; /* when a sample was due, milliseconds */
static uint8_t identify_until; /* low bits of uptime, when `identifying` */
static bool identifying;
static bool reboot;
static bool told_status;
static uint8_t missed; /* samples since the last reading that the journal took */

static uint8_t make_topic(const char *head, const char *tail)
{
    strcpy(topic, head);
    strcat(topic, client.name);
    strcat(topic, tail);
    return (uint8_t)strlen(topic);
}

/* --- what the client asks for --- */

static void recall_packet(
    const struct ow_entry *entry, struct ow_message *message, uint8_t *scratch)
{
    bool status = reading_kind(entry->source) == READING_STATUS;
    message->topic_length = make_topic("sensors/", status ? "/status" : "/adc0");
    message->topic = topic;
    message->alias = status ? ALIAS_STATUS : ALIAS_ADC;
    message->qos = 2;
    message->payload = scratch;
    struct reading_context context = {
        .device = client.name,
        .utc_at_start = entry->sequence >= first_sequence ? client.utc_at_start : 0,
        .counts = &client.link.counts,
    };
    message->size = reading_encode(scratch, entry->source, &context);
}

/* Each time: the last SUBSCRIBE may not have got through. A retained command is not taken: it would
 * be obeyed at each start. */
static void connected(bool session_present)
{
    (void)session_present;
    make_topic("commands/", "");
    ow_mqtt_subscribe(&client, topic, 2 | OW_NO_RETAINED);
}

/* What a command changes is done, or on its way into the EEPROM, before the client writes down that
 * it came: a power cut between the two makes it come again. */
static void message_received(const struct ow_message *message)
{
    uint16_t number;
    switch (command_read(message->payload, message->size, &number)) {
    case COMMAND_INTERVAL:
        if (SENSOR_READINGS == 1) {
            interval = number;
            ow_put_u16(stored, number);
            ow_put_u16(stored + 2, ow_crc(OW_CRC_INITIAL, stored, 2));
            ow_journal_application(stored, sizeof stored);
        }
        break;
    case COMMAND_IDENTIFY:
        identifying = true;
        identify_until = (uint8_t)(client.uptime + IDENTIFY_S);
        break;
    case COMMAND_REBOOT:
        reboot = true;
        break;
    default:
        break;
    }
}

static const struct ow_application application = {
    .recall_packet = recall_packet,
    .connected = connected,
    .message_received = message_received,
};

/* --- sampling --- */

static uint16_t stored_interval(void)
{
    for (uint8_t i = 0; i < sizeof stored; i++) {
        stored[i] = ow_hal_eeprom_read(OW_JOURNAL_APPLICATION + i);
    }
    uint16_t value = ow_get_u16(stored);
    return SENSOR_READINGS == 1 && ow_crc(OW_CRC_INITIAL, stored, sizeof stored) == 0 && value
               ? value
               : SENSOR_INTERVAL_MS;
}

/* Takes a sample; returns whether `source` has become a reading. */
static bool take_sample(uint8_t *source)
{
    uint16_t value = ow_hal_adc_read(CHANNEL);
    uint32_t now = ow_mqtt_time(&client);
    if (SENSOR_READINGS == 1) {
        reading_put(source, now, value, CHANNEL, missed);
        return true;
    }
    static uint16_t values[SENSOR_READINGS];
    static uint32_t first;
    static uint8_t count;
    if (count == 0) {
        first = now;
    }
    values[count++] = value;
    if (count < SENSOR_READINGS) {
        return false;
    }
    count = 0;
    reading_put_three(source, first, values);
    return true;
}

static void sample(void)
{
    uint8_t source[OW_JOURNAL_SOURCE];
    if (!client.started || !ow_journal_idle(&client.journal)) {
        return;
    }
    if (!told_status) {
        reading_put(source, ow_mqtt_time(&client), client.journal.boot & READING_BOOT_MASK,
            READING_STATUS, ow_hal_reset_cause());
        told_status = ow_mqtt_publish_source(&client, source) == OW_ACCEPTED;
        return;
    }
    if (interval == SAMPLING_OFF || (uint16_t)(ow_hal_millis() - last) < interval) {
        return;
    }
    last = (uint16_t)(last + interval);
    if (!take_sample(source)) {
        return;
    }
    if (ow_mqtt_publish_source(&client, source) == OW_ACCEPTED) {
        missed = 0;
    } else if (missed < 0xFF) {
        missed++;
    }
}

static void blink(void)
{
    if (identifying && (int8_t)(client.uptime - identify_until) >= 0) {
        identifying = false;
    }
    ow_hal_led(identifying && ow_hal_millis() & 0x80);
}

void setup(void)
{
    interval = stored_interval();
    ow_mqtt_begin(&client, &application);
    first_sequence = client.journal.next;
    last = (uint16_t)(ow_hal_millis() - interval); /* the first one at once */
}

void loop(void)
{
    ow_mqtt_poll(&client);
    sample();
    blink();
    if (reboot && ow_mqtt_settled(&client)) {
        ow_hal_reboot();
    }
    ow_hal_idle();
}
