/* The board's half of the turn link as it runs on boards, for Python. */
#include <stddef.h>
#include <string.h>

#include "ow_turn.h"

size_t turn_size(void) { return sizeof(struct ow_turn); }

void turn_begin(struct ow_turn *turn, const uint8_t *key, uint8_t network, uint8_t device,
    uint8_t factor, uint16_t silence, uint16_t now)
{
    struct ow_radio_plan plan = {
        .network = network, .device = device, .factor = factor, .silence = silence};
    ow_turn_init(turn, &plan, now);
    memcpy(turn->key, key, OW_KEY_SIZE);
}

void turn_greet(struct ow_turn *turn, uint16_t boot, uint32_t incarnation, uint32_t next_sequence,
    uint32_t entropy)
{
    struct ow_turn_greeting greeting = {boot, incarnation, next_sequence, true, entropy};
    ow_turn_greet(turn, &greeting);
}

int turn_receive(struct ow_turn *turn, const uint8_t *frame, uint8_t length)
{
    memcpy(turn->frame, frame, length < OW_TURN_FRAME ? length : OW_TURN_FRAME);
    return ow_turn_receive(turn, length);
}

/* Puts packets if they have room. */
bool turn_put(struct ow_turn *turn, const uint8_t *bytes, uint8_t length)
{
    if (length > ow_turn_room(turn)) {
        return false;
    }
    for (uint8_t i = 0; i < length; i++) {
        ow_turn_put(turn, bytes[i]);
    }
    return true;
}

const uint8_t *turn_frame(const struct ow_turn *turn) { return turn->frame; }
const uint8_t *turn_session(const struct ow_turn *turn) { return turn->session; }
int turn_state(const struct ow_turn *turn) { return turn->state; }
int turn_cause(const struct ow_turn *turn) { return turn->cause; }
uint16_t turn_counter(const struct ow_turn *turn) { return turn->counter; }
uint16_t turn_attempt(const struct ow_turn *turn) { return turn->attempt; }
uint32_t turn_incarnation(const struct ow_turn *turn) { return turn->incarnation; }
uint32_t turn_utc(const struct ow_turn *turn) { return turn->utc; }
void turn_set_counter(struct ow_turn *turn, uint16_t counter) { turn->counter = counter; }

/* Milliseconds until something happens by itself; 60,000 at most. */
uint32_t turn_wait(const struct ow_turn *turn)
{
    uint32_t wait = turn->silent;
    if (turn->phase == OW_TURN_LISTENING) {
        wait = turn->left;
    } else if (turn->phase == OW_TURN_WAITING && turn->left > wait) {
        wait = turn->left;
    }
    return wait < 60000 ? wait : 60000;
}
