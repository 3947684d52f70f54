/* Calls that the library forbids: with OW_DEBUG each function for programs that takes a client stops
 * the program in an interrupt, and so does a poll from a callback. tests/firmware/test_header.py
 * sees that none is missing here. */
#include "Onceway.h"
#include "board.h"
#include "check.h"

static struct ow_mqtt client;
static struct ow_clock timepiece;
static struct ow_health health;
static struct ow_message message = {.topic = "t", .topic_length = 1};
static const uint8_t source[OW_JOURNAL_SOURCE];
static bool polls, polled_twice;

static void connected(void *user, bool session_present)
{
    (void)user, (void)session_present;
}

static void message_received(void *user, const struct ow_message *received)
{
    (void)user, (void)received;
}

static void recall_packet(
    void *user, const struct ow_entry *entry, struct ow_message *made, uint8_t *scratch)
{
    (void)user, (void)entry, (void)made, (void)scratch;
}

static void connection_lost(void *user, enum ow_lost cause, uint8_t reason)
{
    (void)user, (void)cause, (void)reason;
    if (polls) {
        ow_mqtt_poll(&client);
        polled_twice = true;
    }
}

static const struct ow_application application = {.recall_packet = recall_packet,
    .connected = connected,
    .connection_lost = connection_lost,
    .message_received = message_received};

static void call(unsigned number)
{
    switch (number) {
    case 0: ow_mqtt_begin(&client, &application, NULL); break;
    case 1: ow_mqtt_poll(&client); break;
    case 2: ow_mqtt_slept(&client, 1000); break;
    case 3: ow_mqtt_publish(&client, &message); break;
    case 4: ow_mqtt_publish_source(&client, source); break;
    case 5: ow_mqtt_subscribe(&client, "t", 2); break;
    case 6: ow_mqtt_unsubscribe(&client, "t"); break;
    case 7: ow_mqtt_settled(&client); break;
    case 8: ow_mqtt_name(&client); break;
    case 9: ow_mqtt_state(&client); break;
    case 10: ow_mqtt_uptime(&client); break;
    case 11: ow_mqtt_busy(&client); break;
    case 12: ow_mqtt_health(&client, &health); break;
    case 13: ow_mqtt_time(&client); break;
    case 14: ow_clock_poll(&timepiece, &client); break;
    case 15: ow_clock_error(&timepiece, &client); break;
    case 16: ow_log(&client, "t"); break;
    case 17: ow_log_number(&client, "t", 1); break;
    case 18: ow_log_asked(&client, &message); break;
    case 19: ow_mqtt_answer(&client, &message, OW_ANSWER_DONE, 0); break;
    case 20: ow_journal_application(source, 1); break;
    }
}

enum { CALLS = 21 };

static void a_call_from_an_interrupt_stops_the_program(void)
{
    for (volatile unsigned number = 0; number < CALLS; number++) {
        board_new("s1");
        board_power_on();
        ow_mqtt_begin(&client, &application, NULL);
        call(number);
        board.interrupted = true;
        if (!setjmp(board.cut)) {
            call(number);
            CHECK(false, "%u", number);
        }
    }
}

static void a_poll_from_a_callback_stops_the_program(void)
{
    board_new("s1");
    board_power_on();
    ow_mqtt_begin(&client, &application, NULL);
    while (client.state == OW_STARTING) {
        ow_mqtt_poll(&client);
        board.now++;
    }
    polls = true;
    client.state = OW_CONNECTING;
    if (!setjmp(board.cut)) {
        for (unsigned i = 0; i < 60; i++) { /* nobody answers CONNECT */
            ow_mqtt_poll(&client);
            board.now += 1000;
        }
        CHECK(false, "%d", polled_twice);
    }
    CHECK(!polled_twice, "it went on");
}

int main(void)
{
    RUN(a_call_from_an_interrupt_stops_the_program);
    RUN(a_poll_from_a_callback_stops_the_program);
    return 0;
}
