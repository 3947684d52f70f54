/* A program that publishes from an interrupt, which the library forbids: OW_DEBUG stops it. */
#include <avr/interrupt.h>
#include <avr/io.h>
#include <stddef.h>

#include "ow_hal.h"
#include "Onceway.h"
#include "ow_sketch.h"

static struct ow_mqtt client;

ISR(TIMER1_OVF_vect) /* after 4.2 s */
{
    static const struct ow_message message = {.topic = "t", .topic_length = 1};
    ow_mqtt_publish(&client, &message);
}

static void recall_packet(
    void *user, const struct ow_entry *entry, struct ow_message *message, uint8_t *scratch)
{
    (void)user, (void)entry, (void)message, (void)scratch;
}

static void connected(void *user, bool session_present)
{
    (void)user, (void)session_present;
}

static void message_received(void *user, const struct ow_message *message)
{
    (void)user, (void)message;
}

static const struct ow_application application = {
    .recall_packet = recall_packet,
    .connected = connected,
    .message_received = message_received,
};

void setup(void)
{
    ow_mqtt_begin(&client, &application, NULL);
    TCCR1B = _BV(CS12) | _BV(CS10);
    TIMSK1 = _BV(TOIE1);
}

void loop(void)
{
    ow_mqtt_poll(&client);
    ow_hal_idle();
}
