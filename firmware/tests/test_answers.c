/* Answers to commands: each goes to its sender, once, and outlives a power cut. */
#include <string.h>

#include "check.h"
#include "ow_bytes.h"
#include "world.h"

/* --- a command, and the program's answer --- */

static enum ow_answer answer;
static int32_t number;
static uint8_t properties[128];

static void obey(const struct ow_message *command)
{
    ow_mqtt_answer(&client, command, answer, number);
}

static void put(uint8_t id, const void *bytes, uint8_t length)
{
    uint8_t *at = properties + 1 + properties[0];
    at[0] = id;
    ow_put_u16(at + 1, length);
    memcpy(at + 3, bytes, length);
    properties[0] = (uint8_t)(properties[0] + 3 + length);
}

static void ask(const char *response, uint8_t correlation)
{
    properties[0] = 0;
    if (response) {
        put(0x08, response, (uint8_t)strlen(response));
    }
    if (correlation != 0xFF) {
        put(0x09, "abcdefgh", correlation);
    }
    gateway.properties = properties;
}

static void begin(void)
{
    world_new();
    world.subscribe = true;
    world.obey = obey;
    answer = OW_ANSWER_DONE;
    number = 0;
    ask("logs/s1", 3);
}

static void boot(void)
{
    world_boot();
    CHECK(world_until(world_online, 5000));
    world_run(200);
}

static bool command_open(void)
{
    return gateway.message_id != 0;
}

static bool command_taken(void)
{
    return !command_open();
}

static bool all_done(void)
{
    return command_taken() && (!OW_PERSISTENCE || world_quiet()) && ow_mqtt_settled(&client) &&
           client.ids.out[0].step == 0;
}

static void command(uint16_t id)
{
    gateway_command(id);
    CHECK(world_until(all_done, 5000));
}

static void check_answer(uint8_t correlation)
{
    CHECK_EQUAL(gateway.answer[0], answer << 4 | correlation);
    CHECK_EQUAL((int32_t)ow_get_u32(gateway.answer + 4), number);
    CHECK_EQUAL(gateway.beside[0], 3 + correlation);
    CHECK_EQUAL(gateway.beside[1], 0x09);
    CHECK_EQUAL(ow_get_u16(gateway.beside + 2), correlation);
    CHECK(memcmp(gateway.beside + 4, "abc", correlation) == 0);
    CHECK(memcmp(gateway.answer + 1, "abc", correlation) == 0);
}

static void an_answer_has_what_the_command_had(void)
{
    static const int32_t numbers[] = {0, 1, -1, 65535, INT32_MAX, INT32_MIN};
    uint16_t id = 1;
    begin();
    boot();
    for (answer = OW_ANSWER_DONE; answer <= OW_ANSWER_REFUSED; answer++) {
        for (unsigned i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
            for (uint8_t correlation = 0; correlation <= 3; correlation++) {
                unsigned before = gateway.answers;
                number = numbers[i];
                ask("logs/s1", correlation);
                command(id++);
                CHECK_EQUAL(gateway.answers, before + 1);
                check_answer(correlation);
            }
        }
    }
}

static void one_without_correlation_data_gets_its_answer(void)
{
    begin();
    boot();
    ask("logs/s1", 0xFF);
    command(1);
    CHECK_EQUAL(gateway.answers, 1);
    CHECK_EQUAL(gateway.answer[0], OW_ANSWER_DONE << 4);
}

static void others_get_none(void)
{
    static const char *const responses[] = {
        NULL, "", "logs", "logs/", "logs/s", "logs/s2", "logs/s11", "logs/s1/", "logs/S1", "t"};
    begin();
    boot();
    for (uint16_t i = 0; i < sizeof responses / sizeof responses[0]; i++) {
        ask(responses[i], 3);
        command((uint16_t)(i + 1));
        CHECK(gateway.answers == 0, "%s", responses[i] ? responses[i] : "none");
    }
    for (uint8_t correlation = 4; correlation <= 8; correlation++) {
        ask("logs/s1", correlation);
        command((uint16_t)(100 + correlation));
        CHECK_EQUAL(gateway.answers, 0);
    }
    gateway.properties = NULL;
    command(200);
    CHECK_EQUAL(gateway.answers, 0);
    CHECK_EQUAL(world.received[200], 1);
}

#if OW_PERSISTENCE

/* --- power cuts --- */

static void whole_story(void)
{
    boot();
    gateway_command(9);
    CHECK(world_until(all_done, 5000));
}

static bool is_cut(void)
{
    if (setjmp(board.cut)) {
        return true;
    }
    whole_story();
    return false;
}

/* Whoever the power cut makes obey twice answers twice. No command stays without an answer, and
 * none is acknowledged before its answer is kept. */
static bool recovers(uint32_t at)
{
    if (!is_cut()) {
        return false;
    }
    bool acknowledged = gateway.message_received || (command_taken() && world.received[9]);
    board.cut_at_write = board.cut_at_sent = 0;
    if (acknowledged) {
        world.obey = NULL; /* the answers sent until now have to be enough */
    }
    boot();
    if (command_taken() && !world.received[9]) {
        gateway_command(9);
    }
    CHECK(world_until(all_done, 5000));
    CHECK(world.received[9] >= 1 && gateway.answers >= 1, "obeyed %u times, %u answers, cut at %u",
        world.received[9], gateway.answers, at);
    check_answer(3);
    return true;
}

static void an_answer_outlives_a_cut_at_every_write(void)
{
    uint32_t cuts = 0;
    bool cut = true;
    for (uint32_t at = 1; cut; at++) {
        for (int tear = 0; tear < TEARS; tear++) {
            begin();
            answer = OW_ANSWER_VALUE;
            number = 42;
            board.tear = (enum tear)tear;
            board.cut_at_write = at;
            cut = recovers(at);
            cuts += cut;
        }
    }
    CHECK(cuts > 60, "%u cuts", cuts);
}

static void and_a_cut_at_every_byte_sent(void)
{
    uint32_t cuts = 0;
    bool cut = true;
    for (uint32_t at = 1; cut; at++) {
        begin();
        board.cut_at_sent = at;
        cut = recovers(at);
        cuts += cut;
    }
    CHECK(cuts > 60, "%u cuts", cuts);
}

/* --- a full journal --- */

static bool is_full(void)
{
    return world_publish() == OW_FULL;
}

static void a_full_journal_lets_the_command_wait(void)
{
    begin();
    boot();
    gateway.refuse = 255;
    CHECK(world_until(is_full, OW_JOURNAL_SLOTS * 1000u));
    gateway_command(5);
    world_run(1000);
    CHECK(command_open() && !gateway.message_received && world.received[5] == 1);
    gateway.refuse = 0;
    CHECK(world_until(all_done, 10u * 60000));
    CHECK_EQUAL(gateway.answers, 1);
    check_answer(3);
    CHECK_EQUAL(world.received[5], 1);
}

static void an_answer_stands_among_publications(void)
{
    begin();
    boot();
    for (uint16_t id = 1; id <= 100; id++) {
        world_produce();
        number = id;
        answer = OW_ANSWER_VALUE;
        gateway_command(id);
        world_produce();
        CHECK(world_until(all_done, 5000));
        check_answer(3);
    }
    CHECK_EQUAL(gateway.answers, 100);
}

#else

static void who_keeps_nothing_answers_too(void)
{
    begin();
    world.keeps_nothing = true;
    boot();
    answer = OW_ANSWER_REFUSED;
    number = OW_REFUSAL_UNKNOWN;
    command(4);
    CHECK_EQUAL(gateway.answers, 1);
    check_answer(3);
}

#endif

int main(void)
{
    RUN(an_answer_has_what_the_command_had);
    RUN(one_without_correlation_data_gets_its_answer);
    RUN(others_get_none);
#if OW_PERSISTENCE
    RUN(an_answer_outlives_a_cut_at_every_write);
    RUN(and_a_cut_at_every_byte_sent);
    if (!OW_JOURNAL_MEMORY) { /* which takes long to fill */
        RUN(a_full_journal_lets_the_command_wait);
    }
    RUN(an_answer_stands_among_publications);
#else
    RUN(who_keeps_nothing_answers_too);
#endif
    return 0;
}
