/* Link, client and journal together against a gateway with Delivery Method B: each publication
 * there once, whatever fails. */
#include <string.h>

#include "check.h"
#include "world.h"

/* Produces `count` publications, one whenever it is possible, and waits until all are done. */
static void produce_all(uint32_t count, uint32_t limit)
{
    uint32_t last = world.produced + count;
    uint32_t end = board.now + limit;
    while (world.produced < last || !world_quiet()) {
        if (client.journal.next <= last) {
            world_produce();
        }
        world_step();
        CHECK(board.now < end, "%u of %u produced, %u pending", world.produced, last,
            client.journal.pending);
    }
}

static void a_new_device_takes_an_incarnation_and_starts_clean(void)
{
    world_connect();
    world_run(200);
    CHECK(gateway.clean_start && !world.session_present);
    CHECK_EQUAL(client.journal.incarnation, gateway.incarnation);
    CHECK(client.journal.confirmed);
    uint32_t incarnation = gateway.incarnation;
    world_boot();
    CHECK(world_until(world_online, 1000));
    CHECK(!gateway.clean_start && world.session_present);
    CHECK_EQUAL(gateway.incarnation, incarnation);
}

static void publications_reach_the_gateway_once(void)
{
    world_connect();
    produce_all(200, 60000);
    world_check(1);
    CHECK_EQUAL(gateway.publishes, 200);
    CHECK_EQUAL(gateway.most_open, 1);
    CHECK_EQUAL(gateway.pubrels, 200);
    CHECK_EQUAL(gateway.dups, 0);
    CHECK_EQUAL(gateway.connects, 1);
}

static void without_aliases_the_topic_is_sent_each_time(void)
{
    world_new();
    gateway.alias_maximum = 0;
    world_boot();
    produce_all(5, 5000);
    world_check(1);
}

static void the_journal_is_the_queue_while_the_gateway_is_away(void)
{
    world_new();
    gateway_kill();
    world_boot();
    uint32_t refused = 0;
    while (client.journal.pending < OW_JOURNAL_SLOTS || refused < 10) {
        refused += client.state != OW_STARTING && ow_journal_idle(&client.journal) && !world_produce();
        world_step();
        CHECK(board.now < 60000);
    }
    CHECK_EQUAL(world.produced, OW_JOURNAL_SLOTS);
    world.delay = 40;
    gateway_start();
    CHECK(world_until(world_quiet, 60000));
    world_check(1);
    CHECK_EQUAL(gateway.most_open, OW_FLIGHTS);
}

static void a_noisy_line_costs_time_only(void)
{
    world_connect();
    world.lose = world.corrupt = world.insert = 100;
    produce_all(300, 3000000);
    world_check(1);
    CHECK(client.link.counts.repeats > 20 && client.link.counts.broken > 20);
}

static void the_gateways_receive_maximum_is_kept(void)
{
    world_new();
    gateway.receive_maximum = 2; /* more than two messages in flight end the test */
    world_boot();
    world.delay = 20;
    produce_all(30, 60000);
    world_check(1);
    CHECK_EQUAL(gateway.most_open, OW_FLIGHTS > 1 ? 2 : 1);
}

static void a_silent_gateway_is_given_up_and_found_again(void)
{
    world_connect();
    produce_all(3, 5000);
    world.unplugged = true;
    for (int i = 0; i < 5; i++) {
        while (!world_produce()) {
            world_step();
        }
        world_run(100);
    }
    world_run(10000);
    CHECK_EQUAL(world.lost[OW_LOST_NO_ANSWER], 1);
    world.unplugged = false;
    CHECK(world_until(world_quiet, 20000));
    world_check(1);
    CHECK(world.session_present);
}

static void an_idle_connection_notices_a_dead_gateway(void)
{
    world_connect();
    world_run(70000);
    CHECK(world_online());
    gateway.mute = true; /* the link is alive, MQTT is not */
    world_run(80000);
    CHECK(world.lost[OW_LOST_NO_ANSWER] >= 1);
}

static void the_gateway_dies_again_and_again(void)
{
    world_new();
    world.corrupt = 20;
    world_boot();
    for (uint32_t round = 1; round <= 150; round++) {
        uint32_t lives = 1 + board_random() % 600;
        while (lives--) {
            if (world.produced < 400) {
                world_produce();
            }
            world_step();
        }
        gateway_kill();
        world_run(board_random() % 50);
        gateway_start();
    }
    world.corrupt = 0;
    CHECK(world_until(world_quiet, 60000));
    CHECK(world_check(2) <= world.doubtful * OW_FLIGHTS, "more than the doubtful sessions explain");
    CHECK(gateway.dups > 10 && world.produced == 400);
}

static bool something_sent(void)
{
    return board.sent > 0;
}

/* Otherwise a cut right after HELLO would give two starts the same number. */
static void nothing_is_sent_before_the_boot_number_is_kept(void)
{
    for (int i = 0; i < 6; i++) {
        world_new();
        for (int boots = 0; boots <= i; boots++) {
            world_boot();
            CHECK(world_until(something_sent, 1000));
        }
        uint16_t boot = client.journal.boot;
        world_boot();
        CHECK_EQUAL(client.journal.boot, boot + 1);
    }
}

static void a_full_spool_makes_the_device_hold(void)
{
    world_connect();
    gateway.refuse = 2;
    while (!world_produce()) {
        world_step();
    }
    world_run(15000);
    CHECK_EQUAL(gateway.publishes, 2);
    CHECK(client.journal.pending == 1 && world_online());
    CHECK(world_until(world_quiet, 20000));
    CHECK_EQUAL(gateway.publishes, 3);
    CHECK_EQUAL(gateway.dups, 0); /* each was a new flow */
    world_check(1);
}

/* --- power cuts --- */

static uint32_t script_from;

/* A whole life: start, handshake, and three publications. Ends when they are done. */
static void script(void)
{
    world_boot();
    uint32_t end = board.now + 60000;
    while (client.journal.next < script_from + 3 || !world_quiet()) {
        if (client.state != OW_STARTING && client.journal.next < script_from + 3) {
            world_produce();
        }
        world_step();
        CHECK(board.now < end);
    }
}

static bool script_is_cut(void)
{
    if (setjmp(board.cut)) {
        return true;
    }
    script();
    return false;
}

/* `used`: publications that the device has made before. */
static void prepare(uint32_t used)
{
    world_new();
    world_boot();
    if (used) {
        produce_all(used, 60000);
        world_run(500);
    }
    script_from = client.journal.next;
}

static void recover(const char *what, uint32_t at)
{
    board.cut_at_write = board.cut_at_sent = 0;
    script_from = world.produced + 1;
    CHECK(!script_is_cut());
    world_check(1);
    CHECK(world.produced >= script_from + 2, "%s %u", what, at);
}

static uint32_t cut_at_every_write(uint32_t used)
{
    uint32_t cuts = 0;
    bool cut = true;
    for (uint32_t at = 1; cut; at++) {
        for (int tear = 0; tear < TEARS; tear++) {
            prepare(used);
            board_power_on();
            board.tear = (enum tear)tear;
            board.cut_at_write = at;
            cut = script_is_cut();
            cuts += cut;
            recover("write", at);
        }
    }
    return cuts;
}

static void a_cut_at_every_write_of_a_new_device(void)
{
    CHECK(cut_at_every_write(0) > 150);
}

static void a_cut_at_every_write_when_slots_are_used_again(void)
{
    CHECK(cut_at_every_write(OW_JOURNAL_SLOTS - 1) > 100);
}

static void a_cut_after_every_byte_sent(void)
{
    uint32_t cuts = 0;
    bool cut = true;
    for (uint32_t at = 1; cut; at++) {
        prepare(7);
        board_power_on();
        board.cut_at_sent = at;
        cut = script_is_cut();
        cuts += cut;
        recover("byte", at);
    }
    CHECK(cuts > 150, "only %u cuts", cuts);
}

static void everything_at_once(void)
{
    world_new();
    world.lose = world.corrupt = world.insert = 30;
    for (int life = 0; life < 300; life++) {
        board_power_on();
        board.tear = (enum tear)(board_random() % TEARS);
        if (board_random() % 2) {
            board.cut_at_write = 1 + board_random() % 200;
        } else {
            board.cut_at_sent = 1 + board_random() % 2000;
        }
        if (board_random() % 4 == 0) {
            gateway_kill();
            gateway_start();
        }
        if (setjmp(board.cut) == 0) {
            world_boot();
            for (;;) {
                world_produce();
                world_step();
            }
        }
        board.cut_at_write = board.cut_at_sent = 0;
    }
    script_from = world.produced + 1;
    world.lose = world.corrupt = world.insert = 0;
    CHECK(!script_is_cut());
    CHECK(world.produced > 300, "only %u", world.produced);
    CHECK(world_check(2) <= world.doubtful * OW_FLIGHTS, "more than the doubtful sessions explain");
    CHECK(world.doubtful < world.connected / 20);
}

int main(void)
{
    RUN(a_new_device_takes_an_incarnation_and_starts_clean);
    RUN(publications_reach_the_gateway_once);
    RUN(without_aliases_the_topic_is_sent_each_time);
    RUN(the_journal_is_the_queue_while_the_gateway_is_away);
    RUN(a_noisy_line_costs_time_only);
    RUN(the_gateways_receive_maximum_is_kept);
    RUN(a_silent_gateway_is_given_up_and_found_again);
    RUN(an_idle_connection_notices_a_dead_gateway);
    RUN(the_gateway_dies_again_and_again);
    RUN(nothing_is_sent_before_the_boot_number_is_kept);
    RUN(a_full_spool_makes_the_device_hold);
    RUN(a_cut_at_every_write_of_a_new_device);
    RUN(a_cut_at_every_write_when_slots_are_used_again);
    RUN(a_cut_after_every_byte_sent);
    RUN(everything_at_once);
    return 0;
}
