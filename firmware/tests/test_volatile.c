/* Without persistence: what a program keeps in RAM until the next power cut, and what it sends once
 * and does not keep at all. */
#include "check.h"
#include "ow_bytes.h"
#include "world.h"

static uint8_t payload[OW_JOURNAL_SOURCE];

/* As world_produce, through ow_mqtt_publish. */
static enum ow_result publish(uint8_t qos)
{
    struct ow_message message = {.topic = "t",
        .topic_length = 1,
        .payload = payload,
        .size = sizeof payload,
        .qos = qos,
        .alias = 1};
    ow_put_u32(payload, client.journal.next);
    ow_put_u32(payload + 4, client.journal.next * 2654435761u);
    return ow_mqtt_publish(&client, &message);
}

static void connect_a_device_that_keeps_nothing(void)
{
    world_new();
    world.keeps_nothing = true;
    world_boot();
    CHECK(world_until(world_online, 1000));
    world_run(100);
}

static bool nothing_open(void)
{
    return ow_mqtt_settled(&client) && client.ids.out[0].step == 0;
}

/* --- in RAM --- */

static void a_reconnect_takes_up_what_is_in_ram(void)
{
    world_connect();
    while (!world_produce()) {
        world_step();
    }
    world_run(2);
    gateway_kill();
    gateway_start();
    CHECK(world_until(world_quiet, 5000));
    CHECK(world.session_present && world.produced == 1);
    world_check(1);
}

static void a_power_cut_takes_it_away_and_makes_a_new_device(void)
{
    world_connect();
    gateway_kill();
    while (client.journal.pending < OW_JOURNAL_SLOTS) {
        world_produce();
        world_step();
    }
    CHECK(!world_produce());
    uint32_t incarnation = client.journal.incarnation;
    world_boot();
    CHECK_EQUAL(client.journal.pending, 0);
    gateway_start();
    CHECK(world_until(world_online, 5000));
    world_run(100);
    CHECK(gateway.clean_start && client.journal.incarnation != incarnation,
        "else sequences would be used again");
}

/* --- sent once --- */

static void each_is_sent_once_and_released(void)
{
    connect_a_device_that_keeps_nothing();
    for (uint8_t i = 1; i <= 20; i++) {
        CHECK_EQUAL(publish(1 + i % 2), OW_SENT_ONCE);
        CHECK_EQUAL(publish(2), OW_BUSY);
        CHECK(!ow_mqtt_settled(&client));
        CHECK(world_until(nothing_open, 1000));
        CHECK_EQUAL(world.released[i], 1);
    }
    world_check(1);
    CHECK(gateway.publishes == 20 && gateway.dups == 0 && world.answers[OW_PUBLISH] == 0);
    CHECK_EQUAL(ow_mqtt_publish_source(&client, payload), OW_CANNOT_KEEP);
    gateway_kill();
    gateway_start();
    world_run(1);
    CHECK_EQUAL(publish(2), OW_OFFLINE);
}

/* The connection breaks after every millisecond of the exchange. */
static void a_lost_connection_loses_it_and_that_is_said(void)
{
    uint32_t lost = 0, arrived = 0;
    for (uint8_t qos = 1; qos <= 2; qos++) {
        for (uint32_t at = 0; at < 40; at++) {
            connect_a_device_that_keeps_nothing();
            world.delay = 8;
            CHECK_EQUAL(publish(qos), OW_SENT_ONCE);
            world_run(at);
            uint32_t connected = world.connected;
            gateway_kill();
            gateway_start();
            while (world.connected == connected) {
                world_step();
            }
            world_run(200);
            CHECK(!world.session_present && gateway.clean_start);
            CHECK(world.released[1] + world.answered[1] == 1, "QoS %u, %u ms", qos, at);
            CHECK(gateway.publishes <= 1 && gateway.dups == 0 && gateway.routed[1] <= 1);
            CHECK(gateway.routed[1] || world.answered[1]);
            CHECK(!world.answered[1] || world.answer == OW_UNSPECIFIED_ERROR);
            lost += world.answered[1];
            arrived += world.released[1];
            CHECK_EQUAL(publish(2), OW_SENT_ONCE);
            CHECK(world_until(nothing_open, 1000));
            CHECK_EQUAL(gateway.routed[2], 1);
        }
    }
    CHECK(lost > 10 && arrived > 10, "%u lost, %u arrived", lost, arrived);
}

static void a_refused_one_is_not_tried_again(void)
{
    connect_a_device_that_keeps_nothing();
    gateway.refuse = 1;
    CHECK_EQUAL(publish(2), OW_SENT_ONCE);
    world_run(OW_RETRY_S * 2000);
    CHECK(world.answers[OW_PUBLISH] == 1 && world.answer == OW_QUOTA_EXCEEDED);
    CHECK(gateway.publishes == 1 && world_online());
}

int main(void)
{
    RUN(a_reconnect_takes_up_what_is_in_ram);
    RUN(a_power_cut_takes_it_away_and_makes_a_new_device);
    RUN(each_is_sent_once_and_released);
    RUN(a_lost_connection_loses_it_and_that_is_said);
    RUN(a_refused_one_is_not_tried_again);
    return 0;
}
