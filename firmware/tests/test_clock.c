/* The time that a board tells, against a gateway whose clock goes faster or slower than its own. */
#include "check.h"
#include "Onceway.h"
#include "world.h"

enum { HOUR_S = 3600, FAST = 5000, SLOW = -5000 }; /* half a percent, as a bad resonator */

static struct ow_clock timepiece;

static void start(int32_t drift)
{
    timepiece = (struct ow_clock){0};
    world_new();
    gateway.drift = drift;
}

/* Lets seconds pass; at each of them the time is right within the error that is said. Returns the
 * largest one that was said. */
static uint32_t watch(uint32_t seconds)
{
    uint32_t largest = 0;
    for (uint32_t i = 0; i < seconds; i++) {
        for (unsigned ms = 0; ms < 1000; ms++) {
            world_step();
            ow_clock_poll(&timepiece, &client);
        }
        uint32_t time = ow_mqtt_time(&client);
        if (time & OW_UPTIME_BIT) {
            continue;
        }
        uint32_t error = ow_clock_error(&timepiece, &client);
        double wrong = (double)ow_clock_utc(&timepiece, time) - (double)gateway_utc_ms() / 1000;
        CHECK(-(double)error <= wrong && wrong <= error, "%.3f s, said: %u s", wrong, error);
        largest = error > largest ? error : largest;
    }
    return largest;
}

static void connect(int32_t drift)
{
    start(drift);
    gateway_start();
    world_boot();
    watch(5);
    CHECK(world_online());
}

static void the_time_stays_right_while_the_gateway_is_there(void)
{
    for (int32_t drift = SLOW; drift <= FAST; drift += FAST) {
        connect(drift);
        CHECK_EQUAL(watch(2 * HOUR_S), 4);
        CHECK(gateway.asked_time > 2 * HOUR_S / 31, "%u questions", gateway.asked_time);
    }
}

static void while_it_is_away_the_error_grows_with_the_drift(void)
{
    connect(FAST);
    gateway_kill();
    uint32_t said = watch(2 * HOUR_S), drift = 2 * HOUR_S / OW_CLOCK_PARTS;
    CHECK(said >= 3 + drift && said <= 4 + drift, "%u s", said);
    gateway_start();
    watch(40);
    CHECK(world_online());
    CHECK(watch(1) <= 4, "the next session sets it right");
}

static void an_answer_that_waited_is_not_taken(void)
{
    connect(0);
    gateway.answers_late = 1500;
    uint32_t said = watch(600);
    CHECK_EQUAL(said, 3 + 604 / OW_CLOCK_PARTS + 1);
    gateway.answers_late = 0;
    watch(31);
    CHECK_EQUAL(ow_clock_error(&timepiece, &client), 4);
}

static void a_gateway_that_tells_no_time_later_is_no_harm(void)
{
    start(FAST);
    gateway.tells_no_time = true;
    gateway_start();
    world_boot();
    CHECK(watch(HOUR_S) >= 3 + HOUR_S / OW_CLOCK_PARTS - 1, "WELCOME's is an hour old");
    CHECK(world_online());
    CHECK_EQUAL(gateway.connects, 1);
}

/* A reading that is sent again says the same time. */
static void a_time_from_before_the_gateway_told_it_has_one_utc(void)
{
    start(SLOW);
    gateway_kill();
    world_boot();
    watch(1000);
    uint32_t before = ow_mqtt_time(&client), utc = (uint32_t)(gateway_utc_ms() / 1000);
    CHECK(before & OW_UPTIME_BIT);
    CHECK_EQUAL(ow_clock_utc(&timepiece, before), 0);
    watch(1000);
    gateway_start();
    watch(60);
    uint32_t reckoned = ow_clock_utc(&timepiece, before);
    uint32_t error = ow_clock_error_before(&timepiece, before);
    CHECK(error >= 3 + 1000 / OW_CLOCK_PARTS && error <= 5 + 1000 / OW_CLOCK_PARTS, "%u", error);
    CHECK(reckoned + error >= utc && reckoned <= utc + error, "%u, it was %u", reckoned, utc);
    watch(HOUR_S);
    CHECK_EQUAL(ow_clock_utc(&timepiece, before), reckoned);
    CHECK_EQUAL(ow_clock_error_before(&timepiece, before), error);
}

int main(void)
{
    RUN(the_time_stays_right_while_the_gateway_is_there);
    RUN(while_it_is_away_the_error_grows_with_the_drift);
    RUN(an_answer_that_waited_is_not_taken);
    RUN(a_gateway_that_tells_no_time_later_is_no_harm);
    RUN(a_time_from_before_the_gateway_told_it_has_one_utc);
    return 0;
}
