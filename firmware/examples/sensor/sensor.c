/*
 * Samples ADC channel 0 on a timer and publishes each reading at QoS 2 on `sensors/NAME/adc0`;
 * after each start, each day, and after each `interval` a status on `sensors/NAME/status`. Takes
 * commands at QoS 2 on `commands/NAME` (command.h) and obeys each once; unknown ones are reported on
 * `logs/NAME`.
 *
 * A reading goes into the journal first (reading.h); the journal is also the queue while the
 * gateway is away. When it is full, no sample is taken, and the next reading has their count. With
 * limits of the sensor (reading.h) a value outside them is no reading, but a fault: `adc0.fault` in a
 * status.
 *
 * The interval is kept in the application's EEPROM area, twice, so that no changed bit makes another
 * interval of it. At 0x020, as release 0.2.0 has it: number:u16 crc:u16, whose CRC is over the number,
 * and over the unit as one byte if that is not milliseconds. At 0x024: number:u16 unit:u8 crc:u16,
 * whose CRC is over the three bytes.
 */
#include <string.h>

#include "Onceway.h"
#include "command.h"
#include "ow_crc.h"
#include "ow_sketch.h"
#include "reading.h"

enum { CHANNEL = 0, SAMPLING_OFF = 0xFFFF, IDENTIFY_S = 10 };
enum { FIRST_SIZE = 4, SECOND_SIZE = 5, NUMBER_AT = 0, UNIT_AT = 2, CRC_AT = 3 };
enum { PUBLISH_OVERHEAD = 10 }; /* bytes beside topic and payload */
#ifndef SENSOR_STATUS_EVERY_S
#define SENSOR_STATUS_EVERY_S 86400ul
#endif
#define TENTH_OF_A_YEAR_MS 3155760000ul
#define A_YEAR 10
/* In tenths of years: an EEPROM keeps its content for 100 years (ATmega328P data sheet,
 * features). */
#define LONGEST_LIFE 1000
#define ERASED 0xFFFFFFFFul
enum { ALIAS_ADC = 1, ALIAS_STATUS = 2 };

static struct ow_mqtt client;
static struct ow_clock timepiece;
static struct ow_health health; /* value at the last call */
static char topic[sizeof "sensors//status" + OW_NAME_MAX];
static uint32_t first_sequence; /* of this start */
static uint8_t stored[FIRST_SIZE + SECOND_SIZE]; /* the interval as it is written */
static uint32_t interval; /* milliseconds; 0: no samples */
static bool torn; /* the power was cut while it was written: its command comes again */
static uint32_t waited; /* milliseconds since a sample was due */
static uint16_t looked; /* the clock when `waited` was brought up to date */
static uint8_t identify_until; /* low bits of uptime, when `identifying` */
static bool identifying;
static bool reboot;
enum { DUE = 1, DUE_OF_START };
static uint8_t status_due = DUE_OF_START;
static uint32_t status_at; /* uptime of the last one */
static uint16_t denied = READING_NOT_DENIED;
static uint8_t missed; /* samples since the last reading that the journal took */
static const struct ow_sensor_limits limits = {SENSOR_LEAST, SENSOR_MOST, SENSOR_STEP, 4};
static struct ow_sensor sensor;
static uint8_t packed; /* samples that wait for the others of their packet */
static char unknown[OW_LOG_LINE] = "unknown command: "; /* and its first characters */
static bool unknown_due; /* on `logs/NAME` */

static uint8_t make_topic(const char *head, const char *tail)
{
    strcpy(topic, head);
    strcat(topic, ow_mqtt_name(&client));
    strcat(topic, tail);
    return (uint8_t)strlen(topic);
}

static bool is_memory_missing(void)
{
    return OW_JOURNAL_MEMORY && health.memory_missing;
}

/* Tenths of years that the EEPROM lives at this interval. */
static uint16_t life(uint32_t milliseconds)
{
    uint32_t each = TENTH_OF_A_YEAR_MS / 1000 / SENSOR_STATUS_EVERY_S;
    if (milliseconds) {
        each += TENTH_OF_A_YEAR_MS / SENSOR_READINGS / milliseconds;
    }
    ow_mqtt_health(&client, &health);
    uint32_t tenths = health.left / (each + 1);
    return tenths < LONGEST_LIFE ? (uint16_t)tenths : LONGEST_LIFE;
}

/* --- callbacks of the client --- */

static void recall_packet(
    void *user, const struct ow_entry *entry, struct ow_message *message, uint8_t *scratch)
{
    (void)user;
    bool status = reading_kind(entry->source) == READING_STATUS;
    message->topic_length = make_topic("sensors/", status ? "/status" : "/adc0");
    message->topic = topic;
    message->alias = status ? ALIAS_STATUS : ALIAS_ADC;
    message->qos = 2;
    message->payload = scratch;
    struct reading_context context = {
        .device = ow_mqtt_name(&client),
        .clock = entry->sequence >= first_sequence ? &timepiece : NULL,
        .denied = denied,
        .life = life(interval),
        .health = &health,
    };
    uint8_t room = (uint8_t)(OW_SEND_SIZE - PUBLISH_OVERHEAD - message->topic_length);
    message->size =
        reading_encode(scratch, room < OW_SCRATCH ? room : OW_SCRATCH, entry->source, &context);
}

/* The journal's memory does not answer, so nothing can be kept: this goes at QoS 0. */
static void tell_missing(void)
{
    uint8_t payload[40];
    const uint8_t *end = payload + sizeof payload;
    struct ow_senml_record record = {.device = ow_mqtt_name(&client), .name = "memory"};
    const uint8_t *at = ow_senml_record(ow_senml_pack(payload, end, 1), end, &record);
    struct ow_message message = {.topic_length = make_topic("sensors/", "/status"),
        .topic = topic,
        .payload = payload,
        .size = (uint16_t)(at - payload)};
    ow_mqtt_publish(&client, &message);
}

/* Each time: the last SUBSCRIBE may not have got through. The retained copy of a command is not
 * taken: it would be obeyed at each start. */
static void connected(void *user, bool session_present)
{
    (void)user;
    (void)session_present;
    make_topic("commands/", "");
    ow_mqtt_subscribe(&client, topic, 2 | OW_NO_RETAINED);
    if (is_memory_missing()) {
        tell_missing();
    }
}

/* An interval that wears the EEPROM out within a year needs `force`, unless it is longer than the
 * present one. */
static bool wears_out(uint32_t milliseconds)
{
    return !torn && milliseconds && (interval == 0 || milliseconds < interval) &&
           life(milliseconds) < A_YEAR;
}

static uint32_t to_milliseconds(const struct interval *one)
{
    if (one->unit == MILLISECONDS) {
        return one->number == SAMPLING_OFF ? 0 : one->number;
    }
    return one->number * (one->unit == SECONDS ? 1000ul : 60000ul);
}

static uint16_t crc_of(const uint8_t *number, enum unit unit)
{
    uint16_t crc = ow_crc(OW_CRC_INITIAL, number, 2);
    return unit == MILLISECONDS ? crc : ow_crc_byte(crc, unit);
}

static void set_interval(const struct interval *one)
{
    interval = to_milliseconds(one);
    if (waited > interval) {
        waited = interval; /* skipped samples are not repeated */
    }
    torn = false;
    uint8_t *second = stored + FIRST_SIZE;
    ow_put_u16(stored, one->number);
    ow_put_u16(stored + 2, crc_of(stored, one->unit));
    ow_put_u16(second + NUMBER_AT, one->number);
    second[UNIT_AT] = one->unit;
    ow_put_u16(second + CRC_AT, ow_crc(OW_CRC_INITIAL, second, CRC_AT));
    ow_journal_application(stored, sizeof stored);
}

/* Its sender looks at the gateway: the gateway's log gets the report from `logs/NAME`. */
static void keep_unknown(const struct ow_message *command)
{
    enum { HEAD = sizeof "unknown command: " - 1, ROOM = sizeof unknown - HEAD - 1 };
    uint8_t length = command->size < ROOM ? (uint8_t)command->size : ROOM;
    memcpy(unknown + HEAD, command->payload, length);
    unknown[HEAD + length] = '\0';
    unknown_due = true;
    ow_log(&client, unknown);
}

static void tell_unknown(void)
{
    struct ow_message message = {.topic_length = make_topic("logs/", ""),
        .topic = topic,
        .payload = (const uint8_t *)unknown,
        .size = (uint16_t)strlen(unknown)};
    enum ow_result result = ow_mqtt_publish(&client, &message);
    unknown_due = result == OW_BUSY || result == OW_OFFLINE;
}

/* The answer to a number out of range names the reason, so a line in the log is not needed. */
static bool wants_answer(const struct ow_message *command)
{
#if OW_ANSWERS
    return command->response;
#else
    (void)command;
    return false;
#endif
}

/* The effect of a command is done, or on its way into the EEPROM, before the client records the
 * command: after a power cut between the two the command comes again. */
static void message_received(void *user, const struct ow_message *message)
{
    (void)user;
    enum ow_answer answer = OW_ANSWER_DONE;
    int32_t number = 0;
    struct interval wanted;
    enum command command = command_read(message->payload, (uint8_t)message->size, &wanted);
    switch (command) {
    case COMMAND_INTERVAL:
    case COMMAND_INTERVAL_FORCED:
        if (SENSOR_READINGS > 1) {
            number = OW_REFUSAL_UNFIT;
            break;
        }
        denied = READING_NOT_DENIED;
        if (command == COMMAND_INTERVAL && wears_out(to_milliseconds(&wanted))) {
            denied = life(to_milliseconds(&wanted));
            number = OW_REFUSAL_WEAR;
        } else {
            set_interval(&wanted);
        }
        status_due = DUE;
        break;
    case COMMAND_ASK_INTERVAL:
        answer = OW_ANSWER_VALUE;
        number = (int32_t)interval;
        break;
    case COMMAND_IDENTIFY:
        identifying = true;
        identify_until = (uint8_t)(ow_mqtt_uptime(&client) + IDENTIFY_S);
        break;
    case COMMAND_REBOOT:
        reboot = true;
        break;
    default:
        if (!ow_log_asked(&client, message)) {
            if (command == COMMAND_UNKNOWN || !wants_answer(message)) {
                keep_unknown(message);
            }
            number = command == COMMAND_RANGE ? OW_REFUSAL_RANGE : OW_REFUSAL_UNKNOWN;
        }
        break;
    }
    if (answer == OW_ANSWER_DONE && number) {
        answer = OW_ANSWER_REFUSED;
    }
    ow_mqtt_answer(&client, message, answer, number);
}

static const struct ow_application application = {
    .recall_packet = recall_packet,
    .connected = connected,
    .message_received = message_received,
};

/* --- sampling --- */

/* Reads what release 0.2.0 writes. */
static bool read_first(struct interval *one)
{
    for (uint8_t i = 0; i < FIRST_SIZE; i++) {
        stored[i] = ow_hal_eeprom_read(OW_JOURNAL_APPLICATION + i);
    }
    one->number = ow_get_u16(stored);
    for (one->unit = MILLISECONDS; one->number && one->unit < UNITS; one->unit++) {
        if (ow_get_u16(stored + 2) == crc_of(stored, one->unit)) {
            return true;
        }
    }
    return false;
}

static bool read_second(struct interval *one)
{
    uint8_t second[SECOND_SIZE + 1];
    bool whole = ow_journal_application_read(second, FIRST_SIZE, SECOND_SIZE);
    one->number = ow_get_u16(second + NUMBER_AT);
    one->unit = second[UNIT_AT];
    return whole && one->number && one->unit < UNITS;
}

/* The first record is written first. If it is torn, the second has the old interval; if one bit of
 * it has changed, the second has the interval. If they differ in more, the first is newer: release
 * 0.2.0 has written it, or the power was cut before the second. */
static uint32_t stored_interval(void)
{
    struct interval first, second;
    bool whole = read_first(&first), changed = false;
    if (SENSOR_READINGS > 1) {
        return SENSOR_INTERVAL_MS;
    }
    bool known = read_second(&second);
    if (known) {
        uint8_t record[FIRST_SIZE];
        ow_put_u16(record, second.number);
        ow_put_u16(record + 2, crc_of(record, second.unit));
        uint32_t bits = ow_get_u32(record) ^ ow_get_u32(stored);
        changed = (bits & (bits - 1)) == 0;
    }
    torn = !whole && !changed && ow_get_u32(stored) != ERASED;
    if (known && (changed || !whole)) {
        return to_milliseconds(&second);
    }
    return whole ? to_milliseconds(&first) : SENSOR_INTERVAL_MS;
}

/* Judges a value of the sensor; returns whether it is a sample. If it is neither a sample nor a
 * fault, the next turn measures again. */
static bool is_sample(uint8_t *source, uint16_t value)
{
    if (!ow_sensor_judge(&sensor, &limits, OW_SENSOR_WELL, value)) {
        waited += interval;
        return false;
    }
    bool well = sensor.fault == OW_SENSOR_WELL;
    if (ow_sensor_due(&sensor) == OW_SENSOR_STATUS) {
        reading_put(source, ow_mqtt_time(&client), READING_FAULT | sensor.fault, READING_STATUS, 0);
        if (ow_mqtt_publish_source(&client, source) == OW_ACCEPTED) {
            ow_sensor_told(&sensor);
            if (well) {
                waited += interval; /* the journal takes the value in the next turn */
                return false;
            }
        }
    }
    if (!well) {
        packed = 0;
    }
    return well;
}

/* Takes a sample; returns whether `source` has become a reading. */
static bool take_sample(uint8_t *source, uint16_t value)
{
    uint32_t now = ow_mqtt_time(&client);
    if (SENSOR_READINGS == 1) {
        reading_put(source, now, value,
            reading_make_kind(CHANNEL, ow_clock_error(&timepiece, &client)), missed);
        return true;
    }
    static uint16_t values[SENSOR_READINGS];
    static uint32_t first;
    if (packed == 0) {
        first = now;
    }
    values[packed++] = value;
    if (packed < SENSOR_READINGS) {
        return false;
    }
    packed = 0;
    reading_put_three(source, first, values);
    return true;
}

static void sample(void)
{
    uint8_t source[OW_JOURNAL_SOURCE];
    uint16_t now = ow_hal_millis();
    waited += (uint16_t)(now - looked);
    looked = now;
    if (ow_mqtt_busy(&client)) {
        return;
    }
    if (status_due || ow_mqtt_uptime(&client) - status_at >= SENSOR_STATUS_EVERY_S) {
        if (status_due == DUE_OF_START) { /* the journal is repaired by now */
            ow_mqtt_health(&client, &health);
            first_sequence = health.next_sequence;
        }
        reading_put(source, ow_mqtt_time(&client), health.boot & READING_BOOT_MASK,
            READING_STATUS, ow_hal_reset_cause());
        status_due = ow_mqtt_publish_source(&client, source) != OW_ACCEPTED;
        status_at = ow_mqtt_uptime(&client);
        if (!status_due) {
            return;
        }
    }
    if (interval == 0 || waited < interval) {
        return;
    }
    waited -= interval;
    uint16_t value = ow_hal_adc_read(CHANNEL);
    if (SENSOR_HAS_LIMITS && !is_sample(source, value)) {
        return;
    }
    if (!take_sample(source, value)) {
        return;
    }
    if (ow_mqtt_publish_source(&client, source) == OW_ACCEPTED) {
        missed = 0;
    } else if (missed < 0xFF) {
        missed++;
    }
    if (missed == 1) {
        ow_log(&client, "the journal takes no reading");
    }
}

static void blink(void)
{
    if (identifying && (int8_t)(ow_mqtt_uptime(&client) - identify_until) >= 0) {
        identifying = false;
    }
    ow_hal_led((identifying && ow_hal_millis() & 0x80) || is_memory_missing());
}

void setup(void)
{
    interval = stored_interval();
    ow_mqtt_begin(&client, &application, NULL);
    ow_mqtt_health(&client, &health);
    looked = ow_hal_millis();
    waited = interval; /* the first one at once */
}

void loop(void)
{
    ow_mqtt_poll(&client);
    ow_clock_poll(&timepiece, &client);
    sample();
    blink();
    if (unknown_due) {
        tell_unknown();
    }
    if (reboot && ow_mqtt_settled(&client)) {
        ow_hal_reboot();
    }
    ow_hal_idle();
}
