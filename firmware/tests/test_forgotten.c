/* A gateway that has lost the MQTT session, or says that it does not know an identifier: nothing is
 * lost, and doubles are explained. */
#include <string.h>

#include "check.h"
#include "world.h"

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
    world_connect();
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
    return ow_journal_idle(&client.journal) &&
           ow_journal_find(&client.journal, client.journal.tail, &entry) && entry.released;
}

/* The mark `released` of a session that is gone must not outlive it: after one more power cut it
 * would turn into a PUBREL for a publication that the new session has never seen. */
static void a_lost_session_takes_its_releases_along(void)
{
    world_connect();
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
    world_connect();
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
            CHECK(gateway.unknown_pubrels == (uint32_t)breaks && gateway.publishes == 1 &&
                  world.doubtful == 0);
            world_check(1);
        }
    }
}

static void a_gateway_that_forgot_what_it_has_just_acknowledged_gets_it_again(void)
{
    produce_one_and_wait(published); /* PUBREC is on its way */
    lose_everything();
    CHECK(world_until(world_quiet, 1000));
    CHECK(gateway.unknown_pubrels == 1 && gateway.publishes == 2 && gateway.dups == 0 &&
          gateway.connects == 1);
    world_check(1);
}

/* The gateway has begun a new session, but the device never hears of it: the next CONNACK says that
 * the session is present. */
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

static bool in_doubt(void)
{
    return world_online() && client.doubt && client.journal.asked;
}

/* Else a connection lost meanwhile would make more publications doubtful than those that were. */
static void nothing_new_is_sent_before_a_doubt_is_settled(void)
{
    produce_one_and_wait(released);
    gateway.forget_session = true;
    uint32_t connects = gateway.connects;
    gateway_close();
    while (gateway.connects == connects) {
        world_step();
    }
    board.to_device_tail = board.to_device_head; /* CONNACK is lost */
    gateway_kill();
    while (client.journal.next < 8) {
        world_produce();
        world_step();
    }
    world.delay = 20;
    gateway_start();
    CHECK(world_until(in_doubt, 5000));
    while (in_doubt()) {
        CHECK_EQUAL(gateway.publishes, 1);
        world_step();
    }
    CHECK(world_until(world_quiet, 5000));
    world_check(2); /* the doubtful one */
    CHECK_EQUAL(gateway.publishes, 8);
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

int main(void)
{
    RUN(a_gateway_that_forgot_gets_everything_again);
    RUN(a_lost_session_takes_its_releases_along);
    RUN(a_lost_pubcomp_doubles_nothing);
    RUN(a_gateway_that_forgot_what_it_has_just_acknowledged_gets_it_again);
    RUN(a_lost_connack_makes_a_session_doubtful);
    RUN(nothing_new_is_sent_before_a_doubt_is_settled);
    RUN(a_lost_session_and_a_cut_at_every_write);
    return 0;
}
