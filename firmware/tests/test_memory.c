/* A journal of 2,000 slots in a memory on the bus. */
#include "check.h"
#include "world.h"

enum { HOURS = 2000 };

static void fill(uint32_t count)
{
    uint32_t end = board.now + 200 * count + 1000;
    for (uint32_t made = 0; made < count;) {
        made += world_produce();
        world_step();
        CHECK(board.now < end, "%u of %u", made, count);
    }
    world_run(200);
}

static bool one_is_left(void)
{
    return ow_journal_idle(&client.journal) && client.journal.pending == 1;
}

static void days_without_a_gateway_fit(void)
{
    world_new();
    gateway_kill();
    world_boot();
    fill(HOURS);
    CHECK_EQUAL(client.journal.pending, HOURS);
    CHECK(!world_produce(), "the journal is full, and says so");
    world_boot();
    CHECK_EQUAL(client.journal.pending, HOURS);
    gateway_start();
    CHECK(world_until(world_quiet, 600000));
    world_check(1);
}

/* The counters stay in the EEPROM, which then wears by them only. */
static void nothing_of_a_publication_is_in_the_eeprom(void)
{
    world_connect();
    fill(100);
    CHECK(world_until(world_quiet, 60000));
    for (unsigned address = 0x040; address < OW_EEPROM_SIZE; address++) {
        CHECK_EQUAL(board.cell_writes[address], 0);
    }
}

static void a_memory_that_is_missing_takes_nothing_and_the_board_goes_on(void)
{
    world_new();
    board.memory_missing = true;
    world_boot();
    CHECK(world_until(world_online, 5000));
    world_run(200);
    CHECK(client.journal.missing);
    uint8_t source[OW_JOURNAL_SOURCE] = {0};
    CHECK_EQUAL(ow_mqtt_publish_source(&client, source), OW_FULL);
    board.memory_missing = false;
    world_boot();
    CHECK(world_until(world_online, 5000));
    fill(1);
    CHECK(world_until(world_quiet, 5000));
    world_check(1);
}

/* A gateway would take it for one of the many that it has had, and never say so. */
static void one_that_was_refused_is_dropped_before_it_is_too_old(void)
{
    world_connect();
    gateway.poison = 3;
    gateway.refuse_reason = 0x87;
    fill(10);
    world_run(5000);
    CHECK_EQUAL(client.kept, 1);
    fill(30);
    world_boot();
    CHECK(world_until(world_online, 5000));
    world_run(5000);
    CHECK(client.journal.pending == 1 && client.dropped == 0, "it is tried again");
    fill(60);
    CHECK(world_until(world_online, 5000));
    world_run(10000);
    gateway.poison = 0;
    world_boot();
    CHECK(world_until(world_quiet, 10000));
    CHECK_EQUAL(client.dropped, 1);
    CHECK_EQUAL(gateway.routed[3], 0);
}

/* Counted from the newest one that is done, without a restart and after one. */
static void the_bound_of_too_old_is_exact(void)
{
    for (unsigned restart = 0; restart < 2; restart++) {
        for (unsigned beyond = 0; beyond < 2; beyond++) {
            world_connect();
            gateway.poison = 3;
            gateway.refuse_reason = 0x87;
            fill(3 + OW_JOURNAL_WINDOW - 1 + beyond);
            CHECK(world_until(one_is_left, 60000));
            gateway_kill();
            world_run(1000);
            gateway.poison = 0;
            if (restart) {
                world_boot();
            }
            gateway_start();
            CHECK(world_until(world_quiet, 60000));
            CHECK_EQUAL(client.dropped, beyond);
            CHECK_EQUAL(gateway.routed[3], 1 - beyond);
        }
    }
}

int main(void)
{
    RUN(days_without_a_gateway_fit);
    RUN(nothing_of_a_publication_is_in_the_eeprom);
    RUN(a_memory_that_is_missing_takes_nothing_and_the_board_goes_on);
    RUN(one_that_was_refused_is_dropped_before_it_is_too_old);
    RUN(the_bound_of_too_old_is_exact);
    return 0;
}
