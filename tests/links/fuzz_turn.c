/*
 * Fuzz target for the board's half of the turn link: an input is a list of operations, so that it
 * also gets past greeting and encryption.
 *
 *     clang -fsanitize=fuzzer,address,undefined -Ifirmware/src tests/links/fuzz_turn.c
 *     firmware/src/ow_{turn,ccm,pack,cmac,airtime,bytes}.c
 */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "ow_bytes.h"
#include "ow_packet.h"
#include "ow_turn.h"

enum { RAW, ANSWER, FORGED, WELCOME, WAIT, SEND, PUT, POLL, GREET, OPERATIONS };
static const struct ow_radio_plan plan = {
    .network = 7, .device = 3, .factor = 9, .silence = 10};
static const struct ow_turn_greeting greeting = {7, 1, 2, true, 99};
static uint16_t now;

static void check(const struct ow_turn *turn)
{
    assert(turn->used <= OW_TURN_QUEUE);
    assert(turn->cut <= turn->used && turn->cut <= OW_TURN_MTU);
    assert(turn->length <= OW_TURN_FRAME && turn->at <= OW_TURN_FRAME);
    assert(ow_turn_room(turn) <= OW_TURN_QUEUE);
}

static void receive(struct ow_turn *turn, uint8_t length)
{
    enum ow_turn_event event = ow_turn_receive(turn, length);
    uint8_t size;
    check(turn);
    if (event == OW_TURN_DATA) {
        const uint8_t *packet;
        unsigned count = 0;
        while ((packet = ow_turn_packet(turn, &size))) {
            assert(size >= 2 && packet[0] >= OW_PACK_PLAIN && packet[size - 1] == packet[size - 1]);
            assert(++count <= 2 * OW_TURN_FRAME * OW_TURN_QUEUE);
        }
        assert(turn->length == 0);
    }
    if (turn->state == OW_TURN_IDLE) {
        ow_turn_greet(turn, &greeting);
    }
    check(turn);
}

static void send(struct ow_turn *turn)
{
    uint8_t before[OW_TURN_FRAME];
    bool again = turn->phase == OW_TURN_WAITING && turn->tries;
    uint16_t counter = turn->counter;
    uint8_t length = ow_turn_send(turn);
    if (length == 0) {
        return;
    }
    assert(length >= OW_CCM_OVERHEAD && length <= OW_TURN_FRAME);
    assert(!again || counter == turn->counter);
    memcpy(before, turn->frame, length);
    if (turn->state == OW_TURN_OPEN) {
        assert(ow_ccm_open(turn->session, OW_UP, turn->counter, before, length));
    }
    ow_turn_sent(turn, now);
}

/* A frame that the gateway might have made. */
static uint8_t answer(struct ow_turn *turn, const uint8_t *content, uint8_t length)
{
    uint8_t *frame = turn->frame;
    length = length < OW_TURN_MTU ? length : OW_TURN_MTU;
    frame[0] = plan.network;
    frame[1] = plan.device;
    frame[2] = (uint8_t)(0x40 | (turn->counter & 0x3F));
    memcpy(frame + OW_CCM_HEADER, content, length);
    length = (uint8_t)(length + OW_CCM_OVERHEAD);
    ow_ccm_seal(turn->session, OW_DOWN, turn->counter, frame, length);
    return length;
}

static void welcome(struct ow_turn *turn, uint8_t mtu)
{
    static const uint8_t label = 0x04;
    uint8_t *frame = turn->frame;
    struct ow_cmac cmac;
    memset(frame, 1, 20);
    frame[0] = plan.network;
    frame[1] = plan.device;
    frame[2] = 0xC1;
    ow_put_u32(frame + 11, greeting.incarnation);
    frame[15] = mtu;
    ow_cmac_begin(&cmac, turn->key);
    ow_cmac_put(&cmac, &label, 1);
    ow_cmac_put(&cmac, frame, 20);
    ow_cmac_put(&cmac, turn->queue, 29);
    ow_cmac_end(&cmac);
    memcpy(frame + 20, cmac.block, 4);
    receive(turn, 24);
}

/* A packet as the client makes them, or one with an alias that can be packed. */
static void put(struct ow_turn *turn, uint8_t argument)
{
    static const uint8_t kinds[] = {0x62, 0x40, 0x50, 0x70, 0x34, 0x3C, 0x82, 0xC0};
    uint8_t packet[48] = {kinds[argument & 7]};
    uint8_t size = packet[0] == 0xC0 ? 2 : 4;
    if (packet[0] == 0x34 || packet[0] == 0x3C || packet[0] == 0x82) {
        size = (uint8_t)(10 + (argument >> 3));
    }
    packet[1] = (uint8_t)(size - 2);
    if (size > 4) {
        packet[5] = (uint8_t)(argument >> 5);
        packet[6] = 3;
        packet[7] = 0x23;
        packet[9] = (uint8_t)(argument >> 4);
    } else {
        packet[3] = (uint8_t)(argument >> 5) - 1;
    }
    for (uint8_t i = 0; size <= ow_turn_room(turn) && i < size; i++) {
        turn->queue[turn->used + i] = packet[i];
    }
    if (size <= ow_turn_room(turn)) {
        turn->used = (uint8_t)(turn->used + size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ow_turn turn;
    now = 0;
    ow_turn_init(&turn, &plan, now);
    ow_turn_greet(&turn, &greeting);
    while (size >= 2) {
        uint8_t operation = data[0] % OPERATIONS;
        uint8_t argument = data[1];
        data += 2;
        size -= 2;
        uint8_t length = argument < size ? argument : (uint8_t)size;
        switch (operation) {
        case RAW:
            memcpy(turn.frame, data, length < OW_TURN_FRAME ? length : OW_TURN_FRAME);
            receive(&turn, argument);
            break;
        case ANSWER:
        case FORGED:
            if (turn.state == OW_TURN_OPEN) {
                uint8_t sealed = answer(&turn, data, length);
                if (operation == FORGED) {
                    turn.frame[argument % sealed] ^= (uint8_t)(1u << (argument & 7));
                }
                receive(&turn, sealed);
            }
            break;
        case WELCOME:
            if (turn.state == OW_TURN_GREETING && turn.phase == OW_TURN_LISTENING) {
                welcome(&turn, argument);
            }
            break;
        case WAIT:
            now = (uint16_t)(now + argument * 200u);
            if (ow_turn_tick(&turn, now) == OW_TURN_DOWN) {
                ow_turn_greet(&turn, &greeting);
            }
            break;
        case SEND:
            send(&turn);
            break;
        case PUT:
            if (turn.state == OW_TURN_OPEN) {
                put(&turn, argument);
            }
            break;
        case POLL:
            ow_turn_poll(&turn);
            if (argument & 1) {
                ow_turn_ask_time(&turn);
            }
            break;
        case GREET:
            if (argument == 0) {
                ow_turn_greet(&turn, &greeting);
            }
            break;
        }
        if (operation == RAW || operation == ANSWER || operation == FORGED) {
            data += length;
            size -= length;
        }
        check(&turn);
    }
    return 0;
}
