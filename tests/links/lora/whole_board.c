/* A board with a radio, whole: MQTT client, journal, turn link, for Python. The radio, the clock and
 * the EEPROM are in memory (firmware/tests/board.h); payloads are made of their sequence. */
#include <string.h>

#include "board.h"
#include "ow_airtime.h"
#include "ow_bytes.h"
#include "Onceway.h"

enum { PAYLOAD = 20, COMMANDS = 64, SLOW_MS = 20 };
enum { REACHED, SENDS, CUT };

static struct ow_mqtt client;
static struct ow_radio_plan radio;
static enum { ASLEEP, LISTENING, SENDING } mode;
static uint32_t sent_at;
static uint8_t air[255], air_length, heard[255], heard_length;
static uint32_t commands[COMMANDS];
static uint8_t commands_taken;
static char topic[32];

bool ow_radio_begin(const struct ow_radio_plan *plan)
{
    radio = *plan;
    mode = ASLEEP;
    return true;
}

void ow_radio_send(const uint8_t *frame, uint8_t length)
{
    memcpy(air, frame, length);
    air_length = length;
    mode = SENDING;
    sent_at = board.now + ow_airtime_ms(radio.factor, length);
}

bool ow_radio_sent(void) { return board.now >= sent_at; }

void ow_radio_listen(void)
{
    mode = LISTENING;
    heard_length = 0;
}

uint8_t ow_radio_receive(uint8_t *frame, uint8_t size)
{
    uint8_t length = heard_length <= size ? heard_length : 0;
    memcpy(frame, heard, length);
    heard_length = 0;
    return length;
}

void ow_radio_sleep(void) { mode = ASLEEP; }

static void recall_packet(
    void *user, const struct ow_entry *entry, struct ow_message *message, uint8_t *scratch)
{
    (void)user;
    memset(scratch, (uint8_t)entry->sequence, PAYLOAD);
    memcpy(scratch, entry->source, OW_JOURNAL_SOURCE);
    ow_put_u32(scratch + OW_JOURNAL_SOURCE, entry->sequence);
    message->topic = topic;
    message->topic_length = (uint16_t)strlen(topic);
    message->alias = 1;
    message->qos = 2;
    message->payload = scratch;
    message->size = PAYLOAD;
}

static void connected(void *user, bool session_present)
{
    (void)user;
    (void)session_present;
    ow_mqtt_subscribe(&client, "c", 2 | OW_NO_RETAINED);
}

static void message_received(void *user, const struct ow_message *message)
{
    (void)user;
    if (message->size == 4) {
        commands[commands_taken++ % COMMANDS] = ow_get_u32(message->payload);
    }
}

static const struct ow_application application = {
    .recall_packet = recall_packet,
    .connected = connected,
    .message_received = message_received,
};

void board_start(void)
{
    board_power_on();
    ow_mqtt_begin(&client, &application, NULL);
    strcpy(topic, "spool/");
    strcat(topic, client.name);
}

void board_make(const uint8_t *page, uint8_t length)
{
    board_new("");
    board_identity(page, length);
    commands_taken = 0;
}

void board_cut_at_write(uint32_t count, int tear)
{
    board.cut_at_write = board.writes + count;
    board.tear = (enum tear)tear;
}

/* Lets time pass: until then, until a frame begins, or until the power is cut. */
int board_run(uint32_t until)
{
    if (setjmp(board.cut)) {
        board.cut_at_write = 0;
        return CUT;
    }
    while (board.now < until) {
        bool busy = mode != ASLEEP || !ow_journal_idle(&client.journal) || client.state == OW_STARTING;
        uint32_t step = busy ? 1 : SLOW_MS;
        board.now += step < until - board.now ? step : until - board.now;
        air_length = 0;
        ow_mqtt_poll(&client);
        if (air_length) {
            return SENDS;
        }
    }
    return REACHED;
}

uint32_t board_now(void) { return board.now; }
const uint8_t *board_frame(void) { return air; }
uint8_t board_frame_length(void) { return air_length; }

void board_hear(const uint8_t *frame, uint8_t length)
{
    if (mode == LISTENING) {
        memcpy(heard, frame, length);
        heard_length = length;
    }
}

int board_publish(const uint8_t *source) { return ow_mqtt_publish_source(&client, source); }
bool board_idle(void) { return ow_journal_idle(&client.journal); }
int board_state(void) { return client.state; }
uint32_t board_time(void) { return ow_mqtt_time(&client); }
uint8_t board_pending(void) { return (uint8_t)client.journal.pending; }
uint32_t board_next(void) { return client.journal.next; }
uint8_t board_commands(void) { return commands_taken; }
uint32_t board_command(uint8_t number) { return commands[number % COMMANDS]; }
const uint8_t *board_key(void) { return client.link.session; }
uint16_t board_counter(void) { return client.link.counter; }
bool board_open(void) { return client.link.state == OW_TURN_OPEN; }
uint16_t board_downs(void) { return client.link.counts.downs; }
void board_poll(void) { ow_turn_poll(&client.link); }
