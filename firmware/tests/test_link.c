/* After the handshake both ends of the link do the same: two of them in memory, over a line that
 * loses, corrupts, inserts and delays. */
#include "board.h"
#include "check.h"
#include "ow_link.h"

enum { STREAM = 20000, LINE = 4096 };

struct end {
    struct ow_link link;
    uint32_t written, read; /* bytes of its stream; the peer's */
    uint8_t line[LINE];     /* to this end */
    uint16_t head, tail;
    bool down;
};

static struct end ends[2];
static uint16_t lose, corrupt, insert; /* per 10,000 bytes */
static uint16_t now;

/* The stream of an end is a sequence that never repeats within a window. */
static uint8_t stream_byte(unsigned end, uint32_t index)
{
    return (uint8_t)((index * 2654435761u) >> 24 ^ (end ? 0x5A : 0));
}

static void open_both(void)
{
    memset(ends, 0, sizeof ends);
    for (unsigned i = 0; i < 2; i++) {
        ow_link_init(&ends[i].link);
        ends[i].link.state = OW_LINK_OPEN;
        ends[i].link.seed = 0xBEEF;
        ends[i].link.peer_mtu = OW_LINK_RX_MTU;
        ends[i].link.peer_window = OW_LINK_WINDOW;
    }
}

static void put_on_line(struct end *to, uint8_t byte)
{
    if (board_random() % 10000 < lose) {
        return;
    }
    if (board_random() % 10000 < insert) {
        to->line[to->head++ % LINE] = (uint8_t)board_random();
    }
    if (board_random() % 10000 < corrupt) {
        byte ^= (uint8_t)(1u << board_random() % 8);
    }
    to->line[to->head++ % LINE] = byte;
}

static void take(unsigned which, uint8_t byte)
{
    struct end *end = &ends[which];
    enum ow_link_event event = ow_link_receive(&end->link, byte, now);
    uint8_t length;
    if (event == OW_LINK_DATA) {
        const uint8_t *payload = ow_link_payload(&end->link, &length);
        for (uint8_t i = 0; i < length; i++) {
            CHECK(payload[i] == stream_byte(!which, end->read), "byte %u", end->read);
            end->read++;
        }
    }
    end->down |= event == OW_LINK_DOWN;
}

static void step(uint32_t forth, uint32_t back, unsigned bytes_per_ms)
{
    now++;
    for (unsigned i = 0; i < 2; i++) {
        struct end *end = &ends[i];
        int16_t byte;
        while (
            end->written < (i ? back : forth) && ow_link_room(&end->link) && board_random() % 100) {
            ow_link_put(&end->link, stream_byte(i, end->written++));
        }
        end->down |= ow_link_tick(&end->link, now) == OW_LINK_DOWN;
        for (unsigned n = 0; n < bytes_per_ms && (byte = ow_link_transmit(&end->link, now)) >= 0;
            n++) {
            put_on_line(&ends[!i], (uint8_t)byte);
        }
        for (unsigned n = 0; n < bytes_per_ms && end->tail != end->head; n++) {
            take(i, end->line[end->tail++ % LINE]);
        }
    }
}

static uint32_t exchange(uint32_t forth, uint32_t back, uint32_t limit)
{
    open_both();
    for (uint32_t steps = 1; steps <= limit; steps++) {
        step(forth, back, 11);
        CHECK(!ends[0].down && !ends[1].down, "given up after %u ms", steps);
        if (ends[0].read == back && ends[1].read == forth && ow_link_drained(&ends[0].link) &&
            ow_link_drained(&ends[1].link)) {
            return steps;
        }
    }
    CHECK(false, "read %u and %u", ends[0].read, ends[1].read);
    return 0;
}

static void a_clean_line_is_used_well(void)
{
    lose = corrupt = insert = 0;
    double one_way = STREAM / (11.0 * exchange(STREAM, 0, 60000));
    double both_ways = STREAM / (11.0 * exchange(STREAM, STREAM, 60000));
    CHECK_EQUAL(ends[0].link.counts.repeats + ends[1].link.counts.repeats, 0);
    printf("  window %d: %.2f of the line rate one way, %.2f each way at once\n", OW_LINK_WINDOW,
        one_way, both_ways);
    CHECK(one_way > 0.85, "%.2f", one_way);
}

static void a_bad_line_carries_them_too(void)
{
    lose = insert = 20;
    corrupt = 40;
    exchange(STREAM, STREAM, 600000);
    CHECK(ends[0].link.counts.repeats > 10 && ends[1].link.counts.broken > 10);
}

static void many_short_schedules(void)
{
    for (int i = 0; i < 300; i++) {
        lose = (uint16_t)(board_random() % 25);
        corrupt = (uint16_t)(board_random() % 25);
        insert = (uint16_t)(board_random() % 25);
        exchange(1 + board_random() % 400, 1 + board_random() % 400, 600000);
    }
}

static void a_frame_that_comes_twice_is_taken_once(void)
{
    uint8_t frame[80];
    unsigned length = 0;
    int16_t byte;
    lose = corrupt = insert = 0;
    open_both();
    ow_link_put(&ends[0].link, stream_byte(0, 0));
    while ((byte = ow_link_transmit(&ends[0].link, now)) >= 0) {
        frame[length++] = (uint8_t)byte;
    }
    for (unsigned again = 0; again < 3; again++) {
        for (unsigned i = 0; i < length; i++) {
            take(1, frame[i]);
        }
        CHECK_EQUAL(ends[1].read, 1);
        CHECK(ends[1].link.ack_due, "each copy is acknowledged");
        ends[1].link.ack_due = false;
    }
}

static void silence_is_given_up_after_eight_expiries(void)
{
    lose = 10000;
    corrupt = insert = 0;
    open_both();
    now = 65000; /* the clock wraps on the way */
    uint32_t steps = 0;
    while (!ends[0].down) {
        step(10, 10, 11);
        CHECK(++steps < 10000);
    }
    CHECK_EQUAL(ends[0].link.cause, OW_LINK_NO_ANSWER);
    CHECK_EQUAL(ends[0].link.counts.repeats, OW_LINK_EXPIRIES_MAX - 1);
    CHECK(steps > 3000, "%u ms", steps);
}

static void the_timeout_follows_the_round_trip(void)
{
    lose = corrupt = insert = 0;
    exchange(STREAM, STREAM, 60000);
    CHECK(ends[0].link.smoothed >> 3 >= 5 && ends[0].link.smoothed >> 3 <= 40, "%u ms",
        ends[0].link.smoothed >> 3);
}

int main(void)
{
    RUN(a_clean_line_is_used_well);
    RUN(a_bad_line_carries_them_too);
    RUN(many_short_schedules);
    RUN(a_frame_that_comes_twice_is_taken_once);
    RUN(silence_is_given_up_after_eight_expiries);
    RUN(the_timeout_follows_the_round_trip);
    return 0;
}
