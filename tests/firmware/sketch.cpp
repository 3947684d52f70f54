/*
 * Run an unchanged example on the host, with stand-ins for the functions of Arduino and of the
 * library. For each raw value, the sensor gives only this value until the sketch publishes.
 *
 * In: SKETCH: the .ino; FROM, TO, STRIDE: the raw values. Out: a line for each value with the raw
 * value, topic and payload, or with the raw value and two dashes if nothing was published. A sketch
 * can begin only once, so each value has its own process.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint8_t A0 = 0;
static long raw;
static uint32_t milliseconds;

static uint32_t millis()
{
    return milliseconds;
}

static int analogRead(uint8_t)
{
    return (int)raw;
}

static struct {
    void flush() {}
} Serial;

#define PSTR(text) text
#define snprintf_P(to, size, form, number, time)                                                    \
    snprintf(to, size, form, (unsigned long)(number), (unsigned long)(time))

extern "C" uint16_t power_down(void)
{
    return 1000;
}

#include SKETCH

#ifdef ONEWIRE_H
void onewire_begin(uint8_t) {}
ow_sensor_fault ds18b20_convert(void)
{
    return OW_SENSOR_WELL;
}
ow_sensor_fault ds18b20_read(int16_t *sixteenths)
{
    *sixteenths = (int16_t)raw;
    return OW_SENSOR_WELL;
}
#endif

#ifdef DHT22_H
void dht22_begin(uint8_t) {}
void dht22_call(void) {}
void dht22_listen(void) {}
ow_sensor_fault dht22_read(int16_t *tenths, uint16_t *percent)
{
    *tenths = (int16_t)raw;
    *percent = (uint16_t)(raw < 0 ? -raw : raw); // humidity is not negative
    return OW_SENSOR_WELL;
}
#endif

static const ow_application *used;

extern "C" {
void ow_mqtt_begin(ow_mqtt *client, const ow_application *with, void *)
{
    used = with;
    client->state = OW_CONNECTED;
    strcpy(client->name, "b");
}
void ow_mqtt_poll(ow_mqtt *client)
{
    client->uptime = milliseconds / 1000 + 1;
}
uint32_t ow_mqtt_time(const ow_mqtt *)
{
    return 1800000000;
}
uint32_t ow_mqtt_utc(uint32_t time, uint32_t)
{
    return time;
}
bool ow_journal_idle(const ow_journal *)
{
    return true;
}
bool ow_mqtt_settled(const ow_mqtt *)
{
    return false;
}
void ow_mqtt_health(const ow_mqtt *, ow_health *) {}
void ow_mqtt_slept(ow_mqtt *, uint32_t) {}
void ow_clock_poll(ow_clock *, const ow_mqtt *) {}
uint32_t ow_clock_error(const ow_clock *, const ow_mqtt *)
{
    return 4;
}
void ow_hal_idle(void) {}

ow_result ow_mqtt_publish_source(ow_mqtt *, const uint8_t *source)
{
    ow_entry entry = {};
    ow_message message = {};
    uint8_t scratch[OW_SCRATCH];
    memcpy(entry.source, source, OW_JOURNAL_SOURCE);
    used->recall_packet(NULL, &entry, &message, scratch);
    printf("%ld %.*s ", raw, (int)message.topic_length, message.topic);
    for (int i = 0; i < message.size; i++) {
        printf("%02x", message.payload[i]);
    }
    printf("\n");
    fflush(stdout);
    _exit(0);
}

ow_result ow_mqtt_publish(ow_mqtt *client, const ow_message *message)
{
    uint8_t source[OW_JOURNAL_SOURCE];
    used->save_packet(NULL, message, source);
    return ow_mqtt_publish_source(client, source);
}
}

int main()
{
    for (raw = FROM; raw <= TO; raw += STRIDE) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            for (setup(); milliseconds < 120000; milliseconds += 5) {
                loop();
            }
            printf("%ld - -\n", raw);
            fflush(stdout);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (status) {
            fprintf(stderr, "%ld: the sketch crashed\n", raw);
            return 1;
        }
    }
    return 0;
}
