/*
 * Your own payload: a door contact between pin 2 and ground. Each opening is one publication at
 * QoS 2 on `doors/NAME`, as JSON, exactly once. While sixty wait for the gateway the next one waits
 * for room. Later ones are only counted: the numbers show the gap. The possible error of the time is
 * left out, since the 8 bytes have no room for it; examples/thermometer has it.
 *
 * The journal keeps not the packet but its source: 8 bytes, from which recall_packet makes the same
 * packet again.
 */
#include <Onceway.h>

static const uint8_t DOOR = 2;
static const uint16_t DEBOUNCE_MS = 50;

struct Opening { // OW_JOURNAL_SOURCE bytes
    uint32_t time; // see ow_mqtt_time
    uint32_t number;
};
static_assert(sizeof(Opening) == OW_JOURNAL_SOURCE, "a source has 8 bytes");

static ow_mqtt client;
static ow_application application;
static char topic[sizeof "doors/" + OW_NAME_MAX];
static Opening opening;
static uint32_t openings; // since the start
static bool waiting; // the opening is not in the journal yet
static bool open_before;
static uint16_t changed;

static bool save_packet(void *, const ow_message *message, uint8_t *source)
{
    memcpy(source, message->payload, OW_JOURNAL_SOURCE);
    return true;
}

static void recall_packet(void *, const ow_entry *entry, ow_message *message, uint8_t *scratch)
{
    Opening one;
    memcpy(&one, entry->source, sizeof one);
    uint32_t utc = ow_mqtt_utc(one.time, 0);
    message->topic = topic;
    message->topic_length = strlen(topic);
    message->qos = 2;
    message->payload = scratch;
    message->size = snprintf_P(
        (char *)scratch, OW_SCRATCH,
        utc ? PSTR("{\"opening\":%lu,\"time\":%lu}") : PSTR("{\"opening\":%lu}"), one.number, utc);
}

static void connected(void *, bool)
{
}

void setup()
{
    pinMode(DOOR, INPUT_PULLUP);
    application.save_packet = save_packet;
    application.recall_packet = recall_packet;
    application.connected = connected;
    ow_mqtt_begin(&client, &application, NULL);
    strcpy(topic, "doors/");
    strcat(topic, ow_mqtt_name(&client));
}

static void look_at_the_door()
{
    bool open = digitalRead(DOOR) == HIGH;
    uint16_t now = millis();
    if (open == open_before || (uint16_t)(now - changed) < DEBOUNCE_MS) {
        return;
    }
    open_before = open;
    changed = now;
    openings += open;
    if (open && !waiting) {
        opening = {ow_mqtt_time(&client), openings};
        waiting = true;
    }
}

void loop()
{
    ow_mqtt_poll(&client);
    look_at_the_door();
    if (waiting) {
        ow_message message = ow_message();
        message.payload = (const uint8_t *)&opening;
        message.size = sizeof opening;
        message.qos = 2;
        // OW_BUSY, OW_FULL: again in the next turn
        waiting = ow_mqtt_publish(&client, &message) != OW_ACCEPTED;
    }
    ow_hal_idle();
}
