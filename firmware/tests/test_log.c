/* The log that a gateway asks for, line by line. */
#include "check.h"
#include "world.h"

static const uint8_t ask[] = {0x30, 7, 0, 1, 'c', 0, 'l', 'o', 'g'}; /* PUBLISH at QoS 0 */

static bool answered(void)
{
    return gateway.log_lines && !strchr(gateway.log[gateway.log_lines - 1], ' ');
}

static void read_log(void)
{
    gateway.log_lines = 0;
    gateway_send(ask, sizeof ask);
    CHECK(world_until(answered, 5000));
}

static void start(void)
{
    world_subscribe();
    CHECK(world_quiet());
}

static const char *text(unsigned line)
{
    CHECK(line < gateway.log_lines, "%u lines", gateway.log_lines);
    const char *space = strchr(gateway.log[line], ' ');
    return space ? space + 1 : "";
}

static void lines_come_oldest_first_and_as_often_as_they_are_asked_for(void)
{
    start();
    ow_log(&client, "door open");
    ow_log_number(&client, "raw", -2147483647 - 1);
    for (unsigned i = 0; i < 2; i++) {
        read_log();
        CHECK_EQUAL(gateway.log_lines, 5);
        CHECK(strcmp(text(0), "start, cause 0") == 0, "%s", gateway.log[0]);
        CHECK(strcmp(text(1), "connected, session 0") == 0, "%s", gateway.log[1]);
        CHECK(strcmp(text(2), "door open") == 0, "%s", gateway.log[2]);
        CHECK(strcmp(text(3), "raw -2147483648") == 0, "%s", gateway.log[3]);
        CHECK(strcmp(gateway.log[4], "0") == 0, "%s", gateway.log[4]);
    }
}

static void each_line_has_its_time(void)
{
    start();
    ow_log(&client, "x");
    long long now = (long long)(gateway_utc_ms() / 1000);
    world_run(20000);
    read_log();
    long long told = atoll(gateway.log[2]);
    CHECK(told >= now - 2 && told <= now + 2, "%lld, at %lld", told, now);
}

static void without_the_time_it_is_the_uptime(void)
{
    world_new();
    gateway.tells_no_time = true;
    gateway_start();
    world_boot();
    world_run(3000);
    client.utc_at_start = 0;
    ow_log(&client, "x");
    CHECK(world_until(world_online, 20000));
    client.utc_at_start = 0;
    read_log();
    CHECK(strcmp(gateway.log[0], "+0 start, cause 0") == 0, "%s", gateway.log[0]);
}

/* Whole lines, whatever their length, and how many are not there any more. */
static void the_oldest_make_room(void)
{
    start();
    char line[100];
    for (unsigned i = 0; i < 2000; i++) {
        snprintf(line, sizeof line, "line %u %.*s", i, (int)(i % 60),
            "0123456789012345678901234567890123456789012345678901234567890123456789");
        ow_log(&client, line);
    }
    read_log();
    unsigned lines = gateway.log_lines - 1;
    CHECK(lines >= 4, "%u lines", lines);
    CHECK_EQUAL(atoi(gateway.log[lines]), 2002 - lines);
    for (unsigned i = 0; i < lines; i++) {
        unsigned number = 2000 - lines + i;
        int length = snprintf(line, sizeof line, "line %u %.*s", number, (int)(number % 60),
            "0123456789012345678901234567890123456789012345678901234567890123456789");
        line[length < OW_LOG_LINE ? length : OW_LOG_LINE] = '\0';
        CHECK(strcmp(text(i), line) == 0, "'%s', should be '%s'", text(i), line);
    }
}

/* What is overwritten before it was sent is left out: the rest is whole. */
static void lines_that_are_added_while_it_is_read_do_no_harm(void)
{
    start();
    char line[40];
    for (unsigned i = 0; i < 12; i++) {
        ow_log(&client, "a line that is not short");
    }
    gateway.log_lines = 0;
    gateway_send(ask, sizeof ask);
    world_run(3);
    CHECK(gateway.log_lines < 8, "%u lines", gateway.log_lines);
    for (unsigned i = 0; i < 60; i++) {
        snprintf(line, sizeof line, "number %u", i);
        ow_log(&client, line);
    }
    CHECK(world_until(answered, 5000));
    int last = -1;
    for (unsigned i = 0; i + 1 < gateway.log_lines; i++) {
        int number = 0, end = 0;
        if (sscanf(text(i), "number %d%n", &number, &end) == 1) {
            CHECK(number > last && text(i)[end] == '\0', "%s after %d", text(i), last);
            last = number;
        }
    }
    CHECK_EQUAL(last, 59);
}

static void a_lost_connection_is_in_it_and_ends_the_answer(void)
{
    start();
    for (unsigned i = 0; i < 12; i++) {
        ow_log(&client, "a line that is not short");
    }
    gateway.log_lines = 0;
    gateway_send(ask, sizeof ask);
    world_run(4);
    gateway_kill();
    world_run(1000);
    gateway_start();
    CHECK(world_until(world_online, 60000));
    unsigned lines = gateway.log_lines;
    world_run(5000);
    CHECK_EQUAL(gateway.log_lines, lines);
    read_log();
    bool found = false;
    for (unsigned i = 0; i < gateway.log_lines; i++) {
        found = found || strncmp(text(i), "connection lost, cause ", 23) == 0;
    }
    CHECK(found);
}

int main(void)
{
    RUN(lines_come_oldest_first_and_as_often_as_they_are_asked_for);
    RUN(each_line_has_its_time);
    RUN(without_the_time_it_is_the_uptime);
    RUN(the_oldest_make_room);
    RUN(lines_that_are_added_while_it_is_read_do_no_harm);
    RUN(a_lost_connection_is_in_it_and_ends_the_answer);
    return 0;
}
