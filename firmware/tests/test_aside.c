/* A publication that the gateway refuses for good is set aside: the next one goes, and the program
 * is asked what shall become of it. */
#include "check.h"
#include "world.h"

static const uint8_t final_reasons[] = {
    OW_NOT_AUTHORIZED, OW_TOPIC_NAME_INVALID, OW_PACKET_TOO_LARGE, OW_PAYLOAD_FORMAT_INVALID};

/* Produces so many, one whenever it is possible. */
static void produce(uint32_t count)
{
    uint32_t last = world.produced + count, end = board.now + 600000;
    while (world.produced < last) {
        if (client.journal.next <= last) {
            enum ow_result result = world_publish();
            CHECK(result == OW_ACCEPTED || result == OW_BUSY || result == OW_FULL);
        }
        world_step();
        CHECK(board.now < end, "%u of %u, %u pending", world.produced, last,
            client.journal.pending);
    }
}

static bool one_is_left(void)
{
    return client.state != OW_STARTING && ow_journal_idle(&client.journal) && client.journal.pending == 1;
}

static void poison(uint32_t sequence, uint8_t reason)
{
    gateway.poison = sequence;
    gateway.refuse_reason = reason;
}

/* All but `missing` were routed once. */
static void check_all_but(uint32_t missing)
{
    CHECK_EQUAL(gateway.routed[missing], 0);
    gateway.routed[missing] = 1;
    world_produced_as(missing);
    world_check(1);
}

static void a_final_refusal_lets_the_next_one_go(void)
{
    for (unsigned i = 0; i < sizeof final_reasons; i++) {
        for (uint8_t qos = 1; qos <= 2; qos++) {
            world_new();
            world.qos = qos;
            world_boot();
            CHECK(world_until(world_online, 1000));
            poison(2, final_reasons[i]);
            produce(5);
            CHECK(world_until(one_is_left, 5000), "reason %x", final_reasons[i]);
            CHECK(world.answer == final_reasons[i] && world.refusals == 1);
            CHECK(world_online() && client.kept == 1 && gateway.dups == 0);
            check_all_but(2);
        }
    }
}

static void one_that_is_too_long_for_the_gateway_does_too(void)
{
    world_new();
    gateway.maximum_packet = 60;
    world.long_one = 2;
    world_boot();
    produce(5);
    CHECK(world_until(one_is_left, 5000));
    CHECK(world.refusals == 1 && world.answer == OW_PACKET_TOO_LARGE);
    check_all_but(2);
}

static void a_full_disk_is_waited_for(void)
{
    world_connect();
    poison(1, OW_QUOTA_EXCEEDED);
    produce(3);
    world_run(3600000ul);
    CHECK(client.journal.pending == 3 && world.refusals == 0);
    gateway.poison = 0;
    CHECK(world_until(world_quiet, 20000));
    world_check(1);
}

static void any_other_reason_is_final_after_some_tries(void)
{
    world_connect();
    poison(1, OW_UNSPECIFIED_ERROR);
    produce(3);
    world_run((OW_TRIES - 2) * OW_RETRY_S * 1000ul);
    CHECK(client.journal.pending == 3 && world.refusals == 0);
    CHECK(world_until(one_is_left, 3 * OW_RETRY_S * 1000ul));
    CHECK_EQUAL(world.refusals, 1);
    check_all_but(1);
}

static void poison_ends(uint32_t sequence, uint8_t reason)
{
    poison(sequence, reason);
    gateway.poison_ends = true;
}

/* A topic with a `+`, or a zero byte: the gateway must end the connection [MQTT-4.13.1-1]. */
static void one_that_ends_connections_is_set_aside_after_some_tries(void)
{
    static const uint8_t reasons[] = {
        OW_MALFORMED_PACKET, OW_PROTOCOL_ERROR, OW_TOPIC_NAME_INVALID, OW_PACKET_TOO_LARGE};
    for (unsigned i = 0; i < sizeof reasons; i++) {
        for (uint8_t qos = 1; qos <= 2; qos++) {
            world_new();
            world.qos = qos;
            world_boot();
            CHECK(world_until(world_online, 1000));
            poison_ends(2, reasons[i]);
            produce(5);
            world_run((OW_TRIES - 1) * OW_RETRY_S * 1000ul - 2000);
            CHECK(world.refusals == 0 && gateway.ends == OW_TRIES - 1, "%u", gateway.ends);
            CHECK(world_until(one_is_left, 3 * OW_RETRY_S * 1000ul), "reason %x", reasons[i]);
            CHECK(world.refusals == 1 && client.kept == 1 && gateway.ends == OW_TRIES);
            check_all_but(2);
        }
    }
}

/* It would end them again: connections begin after it, and it has one more chance in an hour. */
static void it_does_not_end_the_connections_that_follow(void)
{
    world_connect();
    poison_ends(2, OW_TOPIC_NAME_INVALID);
    produce(5);
    CHECK(world_until(one_is_left, (OW_TRIES + 1) * OW_RETRY_S * 1000ul));
    gateway_close();
    produce(5);
    CHECK(world_until(one_is_left, 5000));
    CHECK_EQUAL(gateway.ends, OW_TRIES);
    world_run(2 * 3600000ul);
    CHECK(gateway.ends > OW_TRIES && gateway.ends <= OW_TRIES + 2, "%u", gateway.ends);
    produce(5);
    CHECK(world_until(one_is_left, 20000));
    gateway.poison = 0;
    CHECK(world_until(world_quiet, 2 * 3600000ul));
    world_check(1);
}

static void two_of_them_and_a_refused_one_let_the_rest_go(void)
{
    for (int drops = 0; drops < 2; drops++) {
        world_connect();
        world.drops = drops;
        poison_ends(2, OW_MALFORMED_PACKET);
        gateway.poison_too = 4;
        produce(OW_JOURNAL_SLOTS / 2);
        world_run((2 * OW_TRIES + 2) * OW_RETRY_S * 1000ul);
        CHECK(client.journal.pending == (drops ? 0 : 2), "%u", client.journal.pending);
        CHECK_EQUAL(gateway.ends, 2 * OW_TRIES);
        gateway_close();
        produce(3 * OW_JOURNAL_SLOTS); /* their slots are needed */
        CHECK(world_until(world_quiet, 20000));
        CHECK_EQUAL(client.dropped, 2);
        gateway.routed[4] = 1;
        world_produced_as(4);
        check_all_but(2);
    }
}

/* No publication causes this, whichever is in flight. */
static void a_gateway_that_goes_blames_none(void)
{
    world_connect();
    poison_ends(2, 0x8B); /* Server shutting down */
    produce(3);
    world_run(2 * OW_TRIES * OW_RETRY_S * 1000ul);
    CHECK(world.refusals == 0 && client.kept == 0 && gateway.ends >= OW_TRIES);
    gateway.poison = 0;
    CHECK(world_until(world_quiet, 2 * OW_RETRY_S * 1000ul));
    world_check(1);
}

/* Else one refused status after each start would fill the journal for ever. */
static void what_is_kept_gives_its_slot_away_when_it_is_needed(void)
{
    world_connect();
    poison(2, OW_NOT_AUTHORIZED);
    produce(3 * OW_JOURNAL_SLOTS);
    CHECK(world_until(world_quiet, 5000));
    CHECK(client.dropped == 1 && client.kept == 0);
    check_all_but(2);
}

static void it_does_so_while_the_gateway_is_away_too(void)
{
    world_connect();
    poison(2, OW_NOT_AUTHORIZED);
    produce(3);
    CHECK(world_until(one_is_left, 5000));
    gateway_kill();
    produce(OW_JOURNAL_SLOTS);
    CHECK_EQUAL(client.dropped, 1);
    gateway_start();
    CHECK(world_until(world_quiet, 20000));
    check_all_but(2);
}

static void the_program_may_drop_it(void)
{
    world_connect();
    world.drops = true;
    poison(2, OW_NOT_AUTHORIZED);
    produce(5);
    CHECK(world_until(world_quiet, 5000));
    CHECK(client.dropped == 1 && client.kept == 0 && world.refusals == 1);
    CHECK_EQUAL(world.released[2], 0);
    check_all_but(2);
    world_boot();
    CHECK(world_until(world_online, 5000));
    CHECK_EQUAL(client.journal.pending, 0);
}

static void what_is_kept_is_tried_again_at_each_connection(void)
{
    world_connect();
    poison(2, OW_NOT_AUTHORIZED);
    produce(5);
    CHECK(world_until(one_is_left, 5000));
    gateway_close();
    world_run(1000);
    CHECK(world_online() && client.journal.pending == 1);
    CHECK_EQUAL(world.refusals, 2);
    gateway.poison = 0;
    gateway_close();
    CHECK(world_until(world_quiet, 5000));
    world_check(1);
}

static void and_in_a_long_connection_about_hourly(void)
{
    world_connect();
    poison(2, OW_NOT_AUTHORIZED);
    produce(5);
    world_run(2 * 3600000ul);
    CHECK(world.refusals >= 2 && world.refusals <= 4, "%u", world.refusals);
    gateway.poison = 0;
    CHECK(world_until(world_quiet, 2 * 3600000ul));
    CHECK_EQUAL(gateway.dups, 0); /* each was a new flow */
    world_check(1);
}

/* The mark `released` of a younger one must not get lost when the slot of a kept one is freed. */
static void freeing_a_slot_forgets_no_release(void)
{
    world_connect();
    poison(1, OW_NOT_AUTHORIZED);
    produce(OW_JOURNAL_SLOTS - 1);
    CHECK(world_until(one_is_left, 60000));
    gateway.silent_pubrel = true;
    produce(1);
    world_run(100);
    CHECK(client.journal.released == 1);
    while (client.dropped == 0) {
        world_publish();
        world_step();
    }
    CHECK_EQUAL(client.journal.released, 1);
    gateway.silent_pubrel = false;
    gateway_close();
    CHECK(world_until(world_quiet, 20000));
    check_all_but(1);
}

static void script(void)
{
    world_boot();
    uint32_t end = board.now + 30000, last = client.journal.next + 4;
    while (board.now < end) {
        if (client.state != OW_STARTING && client.journal.next < last) {
            world_publish();
        }
        world_step();
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

static void a_cut_at_every_write_while_one_is_refused(void)
{
    bool cut = true;
    for (uint32_t at = 1; cut; at++) {
        for (int drops = 0; drops < 2; drops++) {
            world_connect();
            poison(2, OW_NOT_AUTHORIZED);
            world.drops = drops;
            board_power_on();
            board.tear = (enum tear)(at % TEARS);
            board.cut_at_write = at;
            cut = script_is_cut();
            board.cut_at_write = 0;
            board_power_on();
            if (!drops) {
                gateway.poison = 0;
            }
            CHECK(!script_is_cut());
            CHECK(client.journal.pending == 0, "write %u: %u", at, client.journal.pending);
            if (drops && world.produced >= 2) {
                check_all_but(2);
            } else {
                world_check(1);
            }
        }
    }
}

int main(void)
{
    RUN(a_final_refusal_lets_the_next_one_go);
    RUN(one_that_is_too_long_for_the_gateway_does_too);
    RUN(a_full_disk_is_waited_for);
    RUN(any_other_reason_is_final_after_some_tries);
    RUN(one_that_ends_connections_is_set_aside_after_some_tries);
    RUN(it_does_not_end_the_connections_that_follow);
    RUN(two_of_them_and_a_refused_one_let_the_rest_go);
    RUN(a_gateway_that_goes_blames_none);
    RUN(what_is_kept_gives_its_slot_away_when_it_is_needed);
    RUN(it_does_so_while_the_gateway_is_away_too);
    RUN(the_program_may_drop_it);
    RUN(what_is_kept_is_tried_again_at_each_connection);
    RUN(and_in_a_long_connection_about_hourly);
    RUN(freeing_a_slot_forgets_no_release);
    RUN(a_cut_at_every_write_while_one_is_refused);
    return 0;
}
