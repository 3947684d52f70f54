/* Link, client and journal together against a gateway with Delivery Method B: each publication there once, whatever fails. */
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
        CHECK(board.now < end, "%u of %u produced, %u pending", world.produced, last, client.journal.pending);
    }
}

static void connect_new_device(void)
{
    world_new();
    world_boot();
    CHECK(world_until(world_online, 1000));
}

static void a_new_device_takes_an_incarnation_and_starts_clean(void)
{
    connect_new_device();
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
    connect_new_device();
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
        refused += client.started && ow_journal_idle(&client.journal) && !world_produce();
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
    connect_new_device();
    world.lose = world.corrupt = world.insert = 100;
    produce_all(300, 3000000);
    world_check(1);
    CHECK(client.link.counts.repeats > 20 && client.link.counts.broken > 20);
}

static void the_gateways_receive_maximum_is_kept(void)
{
    world_new();
    gateway.receive_maximum = 2; /* more than two in flight end the test */
    world_boot();
    world.delay = 20;
    produce_all(30, 60000);
    world_check(1);
    CHECK_EQUAL(gateway.most_open, OW_FLIGHTS > 1 ? 2 : 1);
}

static void a_silent_gateway_is_given_up_and_found_again(void)
{
    connect_new_device();
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
    connect_new_device();
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
    world_check(1);
    CHECK(gateway.dups > 10 && world.produced == 400);
}

static void reconnect(void)
{
    uint32_t end = board.now + 5000;
    uint32_t connected = world.connected;
    gateway_close();
    while (world.connected == connected) {
        world_step();
        CHECK(board.now < end);
    }
}

/* The gateway forgets the MQTT session; the client comes back. */
static void lose_session(void)
{
    gateway.forget_session = true;
    reconnect();
    CHECK(!world.session_present);
}

static void a_gateway_that_forgot_gets_everything_again(void)
{
    connect_new_device();
    for (int i = 0; i < 100; i++) {
        uint32_t steps = 1 + board_random() % 300;
        while (steps--) {
            world_produce();
            world_step();
        }
        lose_session();
    }
    CHECK(world_until(world_quiet, 60000));
    world_check(100); /* the same sequence may be there twice: the table's key catches it */
}

static bool released(void)
{
    struct ow_entry entry;
    return ow_journal_idle(&client.journal) && ow_journal_find(&client.journal, client.journal.tail, &entry) && entry.released;
}

/* The mark `released` of a session that is gone must not outlive it: after one more power cut it would turn into a PUBREL for a
 * publication that the new session has never seen. */
static void a_lost_session_takes_its_releases_along(void)
{
    connect_new_device();
    while (!world_produce()) {
        world_step();
    }
    CHECK(world_until(released, 1000));
    gateway.routed[1] = 0; /* what the gateway had routed is lost as well */
    lose_session();
    gateway.mute = true;
    world_run(200);
    gateway_kill();
    gateway.mute = false;
    gateway_start();
    world_boot();
    CHECK(world_until(world_quiet, 5000));
    CHECK(world.session_present);
    world_check(1);
}

/* --- PUBCOMP 0x92: the gateway does not know the identifier --- */

static bool published(void)
{
    return gateway.publishes > 0;
}

static void produce_one_and_wait(bool (*condition)(void))
{
    connect_new_device();
    world_run(100);
    while (!world_produce()) {
        world_step();
    }
    CHECK(world_until(condition, 1000));
}

/* As if the gateway's disk had been replaced. */
static void lose_everything(void)
{
    memset(gateway.held, 0, sizeof gateway.held);
    memset(gateway.routed, 0, sizeof gateway.routed);
}

/* The line drops what is under way to the device, and the connection is gone. */
static void break_connection(void)
{
    board.to_device_tail = board.to_device_head;
    gateway_kill();
    gateway_start();
}

static bool pubrel_sent(void)
{
    return gateway.pubrels > 0;
}

static void a_lost_pubcomp_doubles_nothing(void)
{
    for (int with_power_cut = 0; with_power_cut < 2; with_power_cut++) {
        for (int breaks = 1; breaks < 4; breaks++) {
            produce_one_and_wait(released);
            for (int i = 0; i < breaks; i++) {
                CHECK(world_until(pubrel_sent, 5000));
                gateway.pubrels = 0;
                break_connection();
                if (with_power_cut) {
                    world_boot();
                }
            }
            CHECK(world_until(world_quiet, 5000));
            CHECK(gateway.unknown_pubrels == (uint32_t)breaks && gateway.publishes == 1 && world.doubtful == 0);
            world_check(1);
        }
    }
}

static void a_gateway_that_forgot_what_it_has_just_acknowledged_gets_it_again(void)
{
    produce_one_and_wait(published); /* PUBREC is on its way */
    lose_everything();
    CHECK(world_until(world_quiet, 1000));
    CHECK(gateway.unknown_pubrels == 1 && gateway.publishes == 2 && gateway.dups == 0 && gateway.connects == 1);
    world_check(1);
}

/* The gateway has begun a new session, but the device never hears of it: the next CONNACK says that the session is present. */
static void a_lost_connack_makes_a_session_doubtful(void)
{
    produce_one_and_wait(released);
    lose_everything();
    gateway.forget_session = true;
    uint32_t connects = gateway.connects;
    gateway_close();
    while (gateway.connects == connects) {
        world_step();
    }
    break_connection();
    CHECK(world_until(world_quiet, 5000));
    CHECK(world.session_present && world.doubtful == 1);
    CHECK_EQUAL(gateway.publishes, 2);
    world_check(1);
    lose_session(); /* a new session for certain ends the doubt, a known one too */
    reconnect();
    CHECK_EQUAL(world.doubtful, 1);
}

static bool recovery_is_cut(void)
{
    if (setjmp(board.cut)) {
        return true;
    }
    lose_session();
    CHECK(world_until(world_quiet, 5000));
    return false;
}

/* The power goes while the device takes back what the lost session had released. */
static void a_lost_session_and_a_cut_at_every_write(void)
{
    uint32_t cuts = 0, doubtful = 0;
    bool cut = true;
    for (uint32_t at = 1; cut; at++) {
        for (int tear = 0; tear < TEARS; tear++) {
            produce_one_and_wait(released);
            lose_everything();
            board.writes = 0;
            board.tear = (enum tear)tear;
            board.cut_at_write = at;
            cut = recovery_is_cut();
            cuts += cut;
            board.cut_at_write = 0;
            world_boot();
            CHECK(world_until(world_quiet, 5000));
            world_check(1);
            doubtful += world.doubtful;
        }
    }
    CHECK(cuts > 10 && doubtful > 2, "%u cuts, %u doubtful", cuts, doubtful);
}

static bool something_sent(void)
{
    return board.sent > 0;
}

/* Else a cut right after HELLO would give two lives the same number. */
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
    connect_new_device();
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
        if (client.started && client.journal.next < script_from + 3) {
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
    RUN(a_gateway_that_forgot_gets_everything_again);
    RUN(a_lost_session_takes_its_releases_along);
    RUN(a_lost_pubcomp_doubles_nothing);
    RUN(a_gateway_that_forgot_what_it_has_just_acknowledged_gets_it_again);
    RUN(a_lost_connack_makes_a_session_doubtful);
    RUN(a_lost_session_and_a_cut_at_every_write);
    RUN(nothing_is_sent_before_the_boot_number_is_kept);
    RUN(a_full_spool_makes_the_device_hold);
    RUN(a_cut_at_every_write_of_a_new_device);
    RUN(a_cut_at_every_write_when_slots_are_used_again);
    RUN(a_cut_after_every_byte_sent);
    RUN(everything_at_once);
    return 0;
}
