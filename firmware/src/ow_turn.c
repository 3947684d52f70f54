#include "ow_turn.h"

#include <string.h>

#include "ow_airtime.h"
#include "ow_bytes.h"
#include "ow_packet.h"

enum { ANSWER = 0x40, HELLO = 0x81, WELCOME = 0xC1, WHO = 0xC2, LOW = 0x3F };
enum label {
    LABEL_SESSION = 0x02,
    LABEL_HELLO = 0x03,
    LABEL_WELCOME = 0x04,
    LABEL_WHO = 0x05,
    LABEL_NONCE = 0x06
};
enum { NONCE_SIZE = 8, CODE_SIZE = OW_CCM_TAG };
enum { HELLO_PLAIN = 17, HELLO_SIZE = HELLO_PLAIN + NONCE_SIZE + CODE_SIZE };
enum { WELCOME_NONCE = 3, WELCOME_INCARNATION = 11, WELCOME_MTU = 15, WELCOME_UTC = 16 };
enum { WELCOME_PROVEN = 20, WELCOME_SIZE = WELCOME_PROVEN + CODE_SIZE };
enum { WHO_SIZE = OW_CCM_HEADER + CODE_SIZE };
enum { HELLO_POWER_ON = 0x01 };

_Static_assert(OW_TURN_MTU <= 248, "OW_TURN_MTU must be at most 248: a radio sends 255 bytes");
_Static_assert(OW_TURN_FRAME >= HELLO_SIZE, "OW_TURN_MTU is too small for a greeting");
_Static_assert(!OW_LORA || OW_TURN_QUEUE >= OW_SEND_SIZE, "OW_TURN_QUEUE must be at least OW_TURN_MTU - 1: a longer packet would wait for ever");
_Static_assert(OW_TURN_QUEUE <= 255 && OW_TURN_QUEUE >= HELLO_SIZE + 4, "OW_TURN_QUEUE must hold a greeting, and lengths have 8 bits");

/* --- time --- */

static uint16_t draw(struct ow_turn *turn)
{
    turn->random = (uint16_t)(turn->random * 25173u + 13849u);
    return turn->random;
}

/* A random part of it; span: less than 2^24. */
static OW_ONE_COPY uint32_t part_of(struct ow_turn *turn, uint32_t span)
{
    return span * (draw(turn) >> 8) >> 8;
}

static void pass(uint32_t *left, uint16_t elapsed)
{
    *left = *left > elapsed ? *left - elapsed : 0;
}

static uint32_t silence_after(const struct ow_turn *turn, uint8_t length)
{
    return (uint32_t)ow_airtime_ms(turn->plan.factor, length) * turn->plan.silence;
}

void ow_turn_init(struct ow_turn *turn, const struct ow_radio_plan *plan, uint16_t now)
{
    memset(turn, 0, sizeof *turn);
    turn->plan = *plan;
    turn->now = now;
    turn->attempt = 0xFFFF; /* the first greeting is attempt 0 */
    turn->silent = silence_after(turn, OW_TURN_FRAME);
}

/* --- sessions --- */

void ow_turn_close(struct ow_turn *turn)
{
    turn->state = OW_TURN_IDLE;
    turn->cause = OW_TURN_CLOSED;
    if (turn->phase != OW_TURN_SENDING) { /* else the radio still has the frame */
        turn->phase = OW_TURN_RESTING;
    }
    turn->used = turn->cut = turn->length = turn->tries = 0;
    turn->turn_due = turn->ask_time = turn->asks_time = turn->done = false;
}

static OW_ONE_COPY enum ow_turn_event down(struct ow_turn *turn, enum ow_turn_cause cause)
{
    ow_turn_close(turn);
    turn->cause = cause;
    turn->counts.downs++;
    return OW_TURN_DOWN;
}

/* The first `size` bytes of CMAC(key, label, bytes); what belongs to WELCOME covers HELLO, too. */
static void prove(struct ow_turn *turn, enum label label, const uint8_t *bytes, uint8_t length,
    uint8_t *out, uint8_t size)
{
    struct ow_cmac cmac;
    uint8_t first = label;
    ow_cmac_begin(&cmac, turn->key);
    ow_cmac_put(&cmac, &first, 1);
    ow_cmac_put(&cmac, bytes, length);
    if (label == LABEL_SESSION || label == LABEL_WELCOME) {
        ow_cmac_put(&cmac, turn->queue, HELLO_SIZE);
    }
    ow_cmac_end(&cmac);
    memcpy(out, cmac.block, size);
}

static void put_header(const struct ow_turn *turn, uint8_t *frame, uint8_t kind)
{
    frame[0] = turn->plan.network;
    frame[1] = turn->plan.device;
    frame[2] = kind;
}

/* Each HELLO differs: a WELCOME that an attacker held back, with its old time, fits no later HELLO.
 * The new nonce is made from the bytes in its place: the owner's entropy, or the previous nonce. */
static OW_ONE_COPY void renew(struct ow_turn *turn)
{
    uint8_t *hello = turn->queue;
    turn->attempt++;
    ow_put_u16(hello + 5, turn->attempt);
    prove(turn, LABEL_NONCE, hello, HELLO_PLAIN + 4, hello + HELLO_PLAIN, NONCE_SIZE);
    prove(turn, LABEL_HELLO, hello, HELLO_SIZE - CODE_SIZE, hello + HELLO_SIZE - CODE_SIZE,
        CODE_SIZE);
}

void ow_turn_greet(struct ow_turn *turn, const struct ow_turn_greeting *greeting)
{
    uint8_t *hello = turn->queue;
    ow_turn_close(turn);
    turn->state = OW_TURN_GREETING;
    turn->incarnation = greeting->incarnation;
    put_header(turn, hello, HELLO);
    ow_put_u16(hello + 3, greeting->boot);
    ow_put_u32(hello + 7, greeting->incarnation);
    ow_put_u32(hello + 11, greeting->next_sequence);
    hello[15] = OW_TURN_MTU;
    hello[16] = greeting->power_on ? HELLO_POWER_ON : 0;
    ow_put_u32(hello + HELLO_PLAIN, greeting->entropy);
    renew(turn);
    turn->random ^= ow_get_u16(hello + HELLO_PLAIN);
    turn->used = HELLO_SIZE;
    if (turn->phase == OW_TURN_RESTING) { /* boards with one power switch must not stay in step */
        turn->phase = OW_TURN_WAITING;
        turn->left = part_of(turn, OW_TURN_HELLO_FIRST_MS);
    }
}

static enum ow_turn_event welcome(struct ow_turn *turn)
{
    const uint8_t *frame = turn->frame;
    uint32_t incarnation = ow_get_u32(frame + WELCOME_INCARNATION);
    uint8_t code[CODE_SIZE];
    prove(turn, LABEL_WELCOME, frame, WELCOME_PROVEN, code, CODE_SIZE);
    if (!ow_ccm_equal(code, frame + WELCOME_PROVEN) || incarnation == 0 ||
        frame[WELCOME_MTU] == 0 || (turn->incarnation && incarnation != turn->incarnation)) {
        turn->counts.broken++; /* perhaps the answer to an earlier HELLO */
        return OW_TURN_NOTHING;
    }
    prove(turn, LABEL_SESSION, frame + WELCOME_NONCE, NONCE_SIZE, turn->session, OW_KEY_SIZE);
    turn->incarnation = incarnation;
    turn->utc = ow_get_u32(frame + WELCOME_UTC);
    turn->peer_mtu = frame[WELCOME_MTU] < OW_TURN_MTU ? frame[WELCOME_MTU] : OW_TURN_MTU;
    turn->state = OW_TURN_OPEN;
    turn->phase = OW_TURN_RESTING;
    turn->counter = 0;
    turn->tries = turn->used = 0;
    return OW_TURN_UP;
}

/* --- turns --- */

static bool waits(uint8_t header)
{
    uint8_t type = header >> 4;
    return type >= OW_PUBACK && type <= OW_PUBCOMP;
}

/* Packets were put that need a turn. */
static bool asked(const struct ow_turn *turn)
{
    uint8_t waiting = 0, size;
    for (uint8_t at = 0; at < turn->used; at = (uint8_t)(at + size)) {
        size = ow_pack_size(turn->queue + at, (uint8_t)(turn->used - at));
        if (size == 0) {
            return false; /* a packet is being put */
        }
        waiting++;
        if (!waits(turn->queue[at]) || waiting > 1) {
            return true;
        }
    }
    return turn->turn_due;
}

/* Makes a TURN of the packets at the head of the queue. */
static void cut(struct ow_turn *turn)
{
    uint8_t whole = 0, size;
    uint8_t room = (uint8_t)(turn->peer_mtu - turn->ask_time);
    while (whole < turn->used &&
           (size = ow_pack_size(turn->queue + whole, (uint8_t)(turn->used - whole))) &&
           whole + size <= room) {
        whole = (uint8_t)(whole + size);
    }
    turn->cut = ow_pack_turn(turn->queue, whole);
    memmove(turn->queue + turn->cut, turn->queue + whole, (uint8_t)(turn->used - whole));
    turn->used = (uint8_t)(turn->used - whole + turn->cut);
    turn->asks_time = turn->ask_time;
    turn->ask_time = turn->turn_due = false;
}

/* The same bytes each time, until the counter moves on. */
static uint8_t seal(struct ow_turn *turn)
{
    uint8_t at = OW_CCM_HEADER;
    put_header(turn, turn->frame, turn->counter & LOW);
    if (turn->asks_time) {
        turn->frame[at++] = OW_PACK_ASK_TIME;
    }
    memcpy(turn->frame + at, turn->queue, turn->cut);
    uint8_t length = (uint8_t)(at + turn->cut + OW_CCM_TAG);
    ow_ccm_seal(turn->session, OW_UP, turn->counter, turn->frame, length);
    prove(turn, LABEL_WHO, turn->frame, length, turn->code, CODE_SIZE);
    return length;
}

uint8_t ow_turn_send(struct ow_turn *turn)
{
    bool again = turn->phase == OW_TURN_WAITING;
    if (turn->silent || turn->length || turn->state == OW_TURN_IDLE ||
        (!again && turn->phase != OW_TURN_RESTING) || (again && turn->left)) {
        return 0;
    }
    uint8_t length = HELLO_SIZE;
    if (turn->state == OW_TURN_GREETING) {
        memcpy(turn->frame, turn->queue, HELLO_SIZE);
    } else {
        if (!again) {
            if (!asked(turn)) {
                return 0;
            }
            cut(turn);
        }
        length = seal(turn);
    }
    turn->counts.repeats += again && turn->state == OW_TURN_OPEN;
    turn->phase = OW_TURN_SENDING;
    turn->left = length;
    return length;
}

void ow_turn_sent(struct ow_turn *turn, uint16_t now)
{
    ow_turn_tick(turn, now);
    turn->silent = silence_after(turn, (uint8_t)turn->left);
    if (turn->state == OW_TURN_IDLE) { /* closed meanwhile */
        turn->phase = OW_TURN_RESTING;
        return;
    }
    turn->phase = OW_TURN_LISTENING;
    turn->left = OW_TURN_WINDOW_MS + ow_airtime_ms(turn->plan.factor, OW_TURN_FRAME);
}

bool ow_turn_listens(const struct ow_turn *turn)
{
    return turn->phase == OW_TURN_LISTENING;
}

/* Nothing arrived: when to try again. */
static enum ow_turn_event unanswered(struct ow_turn *turn)
{
    turn->phase = OW_TURN_WAITING;
    if (turn->state == OW_TURN_GREETING) {
        uint32_t wait = OW_TURN_HELLO_FIRST_MS << turn->tries;
        turn->left = wait + part_of(turn, wait / 2);
        turn->tries += turn->tries < OW_TURN_HELLO_DOUBLINGS;
        renew(turn);
        return OW_TURN_NOTHING;
    }
    if (++turn->tries == OW_TURN_TRIES) {
        return down(turn, OW_TURN_NO_ANSWER);
    }
    uint8_t length = (uint8_t)(turn->cut + turn->asks_time + OW_CCM_OVERHEAD);
    uint8_t shift = turn->tries < 4 ? turn->tries : 4;
    /* the law's silence goes on meanwhile; boards that it lets go together must part after it */
    turn->left = turn->silent +
                 part_of(turn, (uint32_t)ow_airtime_ms(turn->plan.factor, length) << shift);
    return OW_TURN_NOTHING;
}

enum ow_turn_event ow_turn_tick(struct ow_turn *turn, uint16_t now)
{
    uint16_t elapsed = (uint16_t)(now - turn->now);
    turn->now = now;
    pass(&turn->silent, elapsed);
    if (turn->phase == OW_TURN_SENDING || turn->phase == OW_TURN_RESTING) {
        return OW_TURN_NOTHING;
    }
    pass(&turn->left, elapsed);
    return turn->phase == OW_TURN_LISTENING && turn->left == 0 ? unanswered(turn)
                                                               : OW_TURN_NOTHING;
}

/* --- answers --- */

enum ow_turn_event ow_turn_receive(struct ow_turn *turn, uint8_t length)
{
    const uint8_t *frame = turn->frame;
    if (turn->phase != OW_TURN_LISTENING || length < OW_CCM_OVERHEAD || length > OW_TURN_FRAME ||
        frame[0] != turn->plan.network || frame[1] != turn->plan.device) {
        return OW_TURN_NOTHING; /* for another board, or of an earlier turn */
    }
    if (turn->state == OW_TURN_GREETING) {
        return frame[2] == WELCOME && length == WELCOME_SIZE ? welcome(turn) : OW_TURN_NOTHING;
    }
    if (turn->state != OW_TURN_OPEN) {
        return OW_TURN_NOTHING;
    }
    if (frame[2] == WHO && length == WHO_SIZE && ow_ccm_equal(frame + OW_CCM_HEADER, turn->code)) {
        return down(turn, OW_TURN_GATEWAY_GONE);
    }
    if (frame[2] != (ANSWER | (turn->counter & LOW)) ||
        !ow_ccm_open(turn->session, OW_DOWN, turn->counter, turn->frame, length)) {
        turn->counts.broken++;
        return OW_TURN_NOTHING;
    }
    turn->phase = OW_TURN_RESTING;
    turn->at = OW_CCM_HEADER;
    turn->length = (uint8_t)(length - OW_CCM_TAG);
    turn->done = false;
    return OW_TURN_DATA;
}

/* The TURN is answered: the next one may be cut. */
static void finish(struct ow_turn *turn)
{
    turn->used = (uint8_t)(turn->used - turn->cut);
    memmove(turn->queue, turn->queue + turn->cut, turn->used);
    turn->cut = turn->length = turn->tries = 0;
    turn->asks_time = false;
    if (++turn->counter == 0) {
        down(turn, OW_TURN_WORN); /* the owner sees it when it next reads the state */
    }
}

/* A form that is no packet; false: there is no such form. */
static bool take_form(struct ow_turn *turn)
{
    const uint8_t *form = turn->frame + turn->at;
    if (*form == OW_PACK_DONE) {
        turn->done = true;
        turn->answers = (struct ow_answers){.turn = turn->queue, .length = turn->cut};
        turn->at++;
    } else if (*form == OW_PACK_MORE) {
        turn->turn_due = true;
        turn->at++;
    } else if (*form == OW_PACK_TIME && turn->length - turn->at >= OW_PACK_TIME_SIZE) {
        if (turn->tries == 0) { /* else it may be as old as the first copy */
            turn->utc = ow_get_u32(form + 1);
            turn->utc_part = form[5];
            turn->utc_fresh = true;
        }
        turn->at += OW_PACK_TIME_SIZE;
    } else {
        return false;
    }
    return true;
}

const uint8_t *ow_turn_packet(struct ow_turn *turn, uint8_t *length)
{
    while (turn->length) {
        if (turn->done) {
            *length = ow_pack_answer(&turn->answers, turn->packet);
            if (*length) {
                return turn->packet;
            }
            turn->done = false;
        }
        const uint8_t *packet = turn->frame + turn->at;
        if (turn->at < turn->length && *packet >= OW_PACK_PLAIN) {
            *length = ow_pack_size(packet, (uint8_t)(turn->length - turn->at));
            if (*length) {
                turn->at = (uint8_t)(turn->at + *length);
                return packet;
            }
        }
        if (turn->at == turn->length) {
            finish(turn);
        } else if (*packet >= OW_PACK_PLAIN || !take_form(turn)) {
            /* its content would stay lost: MQTT begins again, and asks again */
            down(turn, OW_TURN_PROTOCOL);
        }
    }
    return NULL;
}

/* --- what the owner asks for --- */

uint8_t ow_turn_room(const struct ow_turn *turn)
{
    return turn->state == OW_TURN_OPEN ? (uint8_t)(OW_TURN_QUEUE - turn->used) : 0;
}

OW_ONE_COPY void ow_turn_put(struct ow_turn *turn, uint8_t byte)
{
    turn->queue[turn->used++] = byte;
}

void ow_turn_poll(struct ow_turn *turn)
{
    turn->turn_due = true;
}

void ow_turn_ask_time(struct ow_turn *turn)
{
    turn->ask_time = true;
}
