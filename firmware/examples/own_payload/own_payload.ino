/*
 * Your own payload: a door contact at A0. Each opening is one publication at QoS 2 on `doors/NAME`,
 * as JSON, exactly once. While sixty wait for the gateway the next one waits for room. Later ones are
 * only counted: the numbers show the gap. The possible error of the time is left out, since the 8
 * bytes have no room for it; examples/thermometer has it.
 *
 * Three resistors of 10 kilohms tell the contact from its wires: one from A0 to 5 V, one beside the
 * contact, and one in series with both, to ground. A closed door is half of the supply, an open one
 * two thirds; a broken wire is 5 V, and wires that touch are ground. Both faults are reported on
 * `doors/NAME/status` as `contact.fault`. Put the two resistors at the contact, not at the board.
 *
 * The journal keeps not the packet but its source: 8 bytes, from which recall_packet makes the same
 * packet again.
 */
#include <Onceway.h>

static const uint8_t CONTACT = A0;
static const uint16_t EVERY_MS = 20;
// In steps of the converter, half way between two states.
static const int16_t CLOSED = 256, OPEN = 597, BROKEN = 853;
// 0 is closed, 1 open. A change counts when the next measurement has it, too; half a second without
// a value is a fault.
static const ow_sensor_limits LIMITS = {0, 1, 0, 25};
static const uint32_t FAULT = 0xFFFFFF00; // in place of a number: and a fault

struct Opening { // OW_JOURNAL_SOURCE bytes
    uint32_t time; // see ow_mqtt_time
    uint32_t number;
};
static_assert(sizeof(Opening) == OW_JOURNAL_SOURCE, "a source has 8 bytes");

static ow_mqtt client;
static ow_application application;
static char topic[sizeof "doors//status" + OW_NAME_MAX]; // topic of a status
static uint8_t topic_length;                         // topic of an opening: without the last level
static ow_sensor sensor;
static Opening opening;
static uint32_t openings; // since the start
static bool waiting; // the opening is not in the journal yet
static bool open_before;
static uint16_t measured;

static bool save_packet(void *, const ow_message *message, uint8_t *source)
{
    memcpy(source, message->payload, OW_JOURNAL_SOURCE);
    return true;
}

static uint16_t write_opening(const Opening &one, uint32_t utc, uint8_t *payload)
{
    return snprintf_P(
        (char *)payload, OW_SCRATCH,
        utc ? PSTR("{\"opening\":%lu,\"time\":%lu}") : PSTR("{\"opening\":%lu}"), one.number, utc);
}

static uint16_t write_fault(const Opening &one, uint32_t utc, uint8_t *payload)
{
    const uint8_t *end = payload + OW_SCRATCH;
    struct ow_senml_record record = {}; // `struct`: the function that writes it has the same name
    record.device = ow_mqtt_name(&client);
    record.base_time = utc;
    record.name = "contact.fault";
    record.value.number = one.number - FAULT;
    return ow_senml_record(ow_senml_pack(payload, end, 1), end, &record) - payload;
}

static void recall_packet(void *, const ow_entry *entry, ow_message *message, uint8_t *scratch)
{
    Opening one;
    memcpy(&one, entry->source, sizeof one);
    uint32_t utc = ow_mqtt_utc(one.time, 0);
    bool is_status = one.number >= FAULT;
    message->topic = topic;
    message->topic_length = is_status ? strlen(topic) : topic_length;
    message->qos = 2;
    message->payload = scratch;
    message->size = is_status ? write_fault(one, utc, scratch) : write_opening(one, utc, scratch);
}

static void connected(void *, bool)
{
}

void setup()
{
    application.save_packet = save_packet;
    application.recall_packet = recall_packet;
    application.connected = connected;
    ow_mqtt_begin(&client, &application, NULL);
    strcpy(topic, "doors/");
    strcat(topic, ow_mqtt_name(&client));
    topic_length = strlen(topic);
    strcat(topic, "/status");
}

static void look_at_the_door()
{
    int16_t step = analogRead(CONTACT);
    ow_sensor_fault fault = OW_SENSOR_WELL;
    if (step < CLOSED) {
        fault = OW_SENSOR_SHORTED;
    } else if (step >= BROKEN) {
        fault = OW_SENSOR_ABSENT;
    }
    if (!ow_sensor_judge(&sensor, &LIMITS, fault, step >= OPEN) || sensor.fault != OW_SENSOR_WELL) {
        return;
    }
    bool open = sensor.value;
    openings += open && !open_before;
    if (open && !open_before && !waiting) {
        opening = {ow_mqtt_time(&client), openings};
        waiting = true;
    }
    open_before = open;
}

static bool publish(const Opening &one)
{
    ow_message message = ow_message();
    message.payload = (const uint8_t *)&one;
    message.size = sizeof one;
    message.qos = 2;
    // OW_BUSY, OW_FULL: try again in the next loop
    return ow_mqtt_publish(&client, &message) == OW_ACCEPTED;
}

void loop()
{
    ow_mqtt_poll(&client);
    if ((uint16_t)(millis() - measured) >= EVERY_MS) {
        measured = millis();
        look_at_the_door();
    }
    if (ow_sensor_due(&sensor) == OW_SENSOR_STATUS) {
        if (publish({ow_mqtt_time(&client), FAULT + sensor.fault})) {
            ow_sensor_told(&sensor);
        }
    } else if (waiting) {
        waiting = !publish(opening);
    }
    ow_hal_idle();
}
