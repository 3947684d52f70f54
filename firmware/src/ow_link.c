#include "ow_link.h"

#include <string.h>

#include "ow_bytes.h"
#include "ow_crc.h"

#define MASK (OW_LINK_TX_SIZE - 1)
#define PART (OW_LINK_TX_SIZE / OW_LINK_WINDOW)
/* so that a full window fits the ring */
#define FRAME_MAX (PART < OW_FRAME_PAYLOAD_MAX ? PART : OW_FRAME_PAYLOAD_MAX)
#define SEQUENCE(n) ((n) & 7u)

_Static_assert((OW_LINK_TX_SIZE & MASK) == 0 && OW_LINK_TX_SIZE <= 16384,
    "OW_LINK_TX_SIZE is a power of two, and no two parts of a packet overflow 16 bits");
_Static_assert(OW_LINK_WINDOW == 1 || OW_LINK_WINDOW == 2 || OW_LINK_WINDOW == 4,
    "OW_LINK_WINDOW must be 1, 2 or 4: a mask maps frame numbers to slots");
_Static_assert(OW_LINK_RX_MTU <= OW_FRAME_PAYLOAD_MAX, "OW_LINK_RX_MTU must be at most 240: the wire format ends there");

enum { TYPE_DATA = 0, TYPE_ACK = 1, TYPE_HANDSHAKE = 2, TYPE_TIME = 3 };
enum {
    CONTROL_ACK = 0x40,
    CONTROL_HELLO = 0x80,
    CONTROL_WELCOME = 0x81,
    CONTROL_WHO = 0x82,
    CONTROL_TIME = 0xC0
};
enum { NONCE_SIZE = 8, MAC_SIZE = 8 };
#if OW_KEYS
enum { WHO_SIZE = 1, NONCE_AT = 4, INCARNATION_AT = 12, MAC_AT = 23 };
#else
enum { WHO_SIZE = 3, SEED_SIZE = 7, INCARNATION_AT = 8 };
#endif
enum { MTU_AT = INCARNATION_AT + 4, WINDOW_AT, FLAGS_AT, UTC_AT };
enum { HELLO_PLAIN = 15, HELLO_FIXED = HELLO_PLAIN + (OW_KEYS ? NONCE_SIZE : 0) };
enum { HELLO_POWER_ON = 0x01, WELCOME_REFUSED = 0x01 };

void ow_link_init(struct ow_link *link)
{
    memset(link, 0, sizeof *link);
    link->encoder.ring = link->ring;
    link->encoder.mask = MASK;
    link->attempt = 0xFF; /* the first greeting is attempt 0 */
}

/* --- timers --- */

static void start_timer(struct ow_link *link, uint16_t now, uint16_t timeout)
{
    link->timer_start = now;
    link->timeout = timeout;
    link->timer_on = true;
}

static bool expired(const struct ow_link *link, uint16_t now)
{
    return link->timer_on && (uint16_t)(now - link->timer_start) >= link->timeout;
}

/* 0.75 … 1.25 of it, so that boards that were switched on together do not stay in step. */
static uint16_t jittered(struct ow_link *link, uint16_t wait)
{
    link->random = ow_crc_byte(link->random, link->attempt);
    return (uint16_t)(wait - (wait >> 2) + (link->random & (wait >> 1)));
}

static uint16_t retransmission_timeout(const struct ow_link *link)
{
    if (link->smoothed == 0) {
        return OW_LINK_RTO_FIRST_MS;
    }
    /* variation is kept in 1/4 ms, so this is four times it */
    uint16_t timeout = (uint16_t)((link->smoothed >> 3) + link->variation);
    if (timeout < OW_LINK_RTO_MIN_MS) {
        return OW_LINK_RTO_MIN_MS;
    }
    return timeout > OW_LINK_RTO_MAX_MS ? OW_LINK_RTO_MAX_MS : timeout;
}

static void take_sample(struct ow_link *link, uint16_t sample)
{
    if (sample > OW_LINK_RTO_MAX_MS) {
        sample = OW_LINK_RTO_MAX_MS;
    }
    if (link->smoothed == 0) {
        link->smoothed = (uint16_t)((sample << 3) | 1u);
        link->variation = (uint16_t)(sample << 1);
        return;
    }
    uint16_t mean = (uint16_t)(link->smoothed >> 3);
    uint16_t error = sample > mean ? sample - mean : mean - sample;
    link->smoothed = (uint16_t)(link->smoothed - mean + sample);
    link->variation = (uint16_t)(link->variation - (link->variation >> 2) + error);
}

static uint16_t doubled(uint16_t wait, uint16_t limit)
{
    return wait > limit / 2 ? limit : (uint16_t)(wait * 2);
}

/* --- sessions --- */

void ow_link_close(struct ow_link *link)
{
    link->state = OW_LINK_IDLE;
    link->cause = OW_LINK_CLOSED;
    link->timer_on = false;
    link->hello_due = false;
}

static void empty_buffers(struct ow_link *link)
{
    link->start = link->used = link->cut = 0;
    link->base = link->flight = link->sent = 0;
    link->expected = 0;
    link->repeated = link->ack_due = link->timing = link->timer_on = false;
    link->expiries = 0;
    ow_frame_cut(&link->encoder);
}

#if OW_KEYS

/* Labels of CMACs under the device's key: the first byte that is covered. For HELLO and WELCOME it is
 * the control byte. */
enum { LABEL_NONCE = 0x00, LABEL_SESSION = 0x01 };

/* CMAC(key, label, bytes, HELLO as far as it is in the ring). */
static void seal(
    struct ow_link *link, struct ow_cmac *cmac, uint8_t label, const uint8_t *bytes, uint8_t length)
{
    ow_cmac_begin(cmac, link->key);
    ow_cmac_put(cmac, &label, 1);
    ow_cmac_put(cmac, bytes, length);
    ow_cmac_put(cmac, link->ring, (uint8_t)link->used);
    ow_cmac_end(cmac);
}

/* Whether this WELCOME is of a gateway that has our key, and for this very HELLO. In constant
 * time. */
static bool proves(struct ow_link *link, const uint8_t *payload)
{
    struct ow_cmac cmac;
    uint8_t different = 0;
    seal(link, &cmac, CONTROL_WELCOME, payload, MAC_AT);
    for (uint8_t i = 0; i < MAC_SIZE; i++) {
        different |= cmac.block[i] ^ payload[MAC_AT + i];
    }
    return different == 0;
}

static ow_check session_seed(struct ow_link *link, const uint8_t *payload)
{
    struct ow_cmac cmac;
    seal(link, &cmac, LABEL_SESSION, payload + NONCE_AT, NONCE_SIZE);
    return ow_get_u32(cmac.block);
}

#else

static ow_check session_seed(struct ow_link *link, const uint8_t *payload)
{
    (void)link;
    return ow_crc(OW_CRC_INITIAL, payload + 1, SEED_SIZE);
}

#endif

void ow_link_greet(struct ow_link *link, const struct ow_greeting *greeting)
{
    uint8_t *hello = link->ring; /* where it is made, too: this costs no stack */
    uint8_t name_length = (uint8_t)strlen(greeting->name);
    empty_buffers(link);
    link->state = OW_LINK_GREETING;
    link->boot = greeting->boot;
    link->incarnation = greeting->incarnation;
    link->attempt++;
    link->random ^= ow_crc(greeting->boot, (const uint8_t *)greeting->name, name_length);
    hello[0] = OW_LINK_VERSION;
    ow_put_u16(hello + 1, greeting->boot);
    hello[3] = link->attempt;
    ow_put_u32(hello + 4, greeting->incarnation);
    ow_put_u32(hello + 8, greeting->next_sequence);
    hello[12] = OW_LINK_RX_MTU;
    hello[13] = OW_LINK_WINDOW;
    hello[14] = greeting->power_on ? HELLO_POWER_ON : 0;
#if OW_KEYS
    struct ow_cmac cmac;
    ow_put_u32(hello + HELLO_PLAIN, greeting->entropy);
    link->used = HELLO_PLAIN + 4;
    seal(link, &cmac, LABEL_NONCE, NULL, 0);
    memcpy(hello + HELLO_PLAIN, cmac.block, NONCE_SIZE);
#endif
    memcpy(hello + HELLO_FIXED, greeting->name, name_length);
    link->used = (ow_size)(HELLO_FIXED + name_length);
#if OW_KEYS
    seal(link, &cmac, CONTROL_HELLO, NULL, 0);
    memcpy(hello + link->used, cmac.block, MAC_SIZE);
    link->used = (ow_size)(link->used + MAC_SIZE);
#endif
    link->timeout = OW_LINK_HELLO_FIRST_MS;
    link->hello_due = true;
}

static enum ow_link_event down(struct ow_link *link, enum ow_link_cause cause)
{
    ow_link_close(link);
    link->cause = cause;
    link->counts.downs++;
    return OW_LINK_DOWN;
}

static enum ow_link_event welcome(struct ow_link *link, const uint8_t *payload)
{
    if (ow_get_u16(payload + 1) != link->boot || payload[3] != link->attempt) {
        return OW_LINK_NOTHING; /* for an earlier HELLO */
    }
#if OW_KEYS
    if (link->state == OW_LINK_OPEN) {
        link->ack_due = true; /* repeated: the gateway has not heard from this session */
    }
#else
    ow_check seed = session_seed(link, payload);
    if (link->state == OW_LINK_OPEN && seed != link->seed) {
        /* a late copy of HELLO reached a gateway that has started again */
        return down(link, OW_LINK_GATEWAY_GONE);
    }
#endif
    if (link->state != OW_LINK_GREETING) {
        return OW_LINK_NOTHING;
    }
    if (payload[FLAGS_AT] & WELCOME_REFUSED) {
        return down(link, OW_LINK_REFUSED); /* a gateway that refuses may have no key */
    }
    uint32_t incarnation = ow_get_u32(payload + INCARNATION_AT);
    if (payload[MTU_AT] == 0 || payload[WINDOW_AT] == 0 || incarnation == 0 ||
#if OW_KEYS
        !proves(link, payload) ||
#endif
        (link->incarnation && incarnation != link->incarnation)) {
        link->counts.broken++; /* perhaps the answer to a HELLO that the gateway misread */
        return OW_LINK_NOTHING;
    }
#if OW_KEYS /* before the ring, which has the HELLO that it follows from, is emptied */
    ow_check seed = session_seed(link, payload);
#endif
    empty_buffers(link);
    link->seed = seed;
    link->hello_due = false;
    link->ack_due = OW_KEYS; /* our answer to the gateway's challenge */
    link->state = OW_LINK_OPEN;
    link->incarnation = incarnation;
    link->peer_mtu = payload[MTU_AT] < FRAME_MAX ? payload[MTU_AT] : FRAME_MAX;
    link->peer_window = payload[WINDOW_AT] < OW_LINK_WINDOW ? payload[WINDOW_AT] : OW_LINK_WINDOW;
    link->utc = ow_get_u32(payload + UTC_AT);
    return OW_LINK_UP;
}

static enum ow_link_event handshake(struct ow_link *link, uint8_t control, const uint8_t *payload)
{
    if (control == CONTROL_WELCOME && link->payload_length == OW_FRAME_WELCOME &&
        payload[0] == OW_LINK_VERSION) {
        return welcome(link, payload);
    }
    if (control == CONTROL_WHO && link->payload_length == WHO_SIZE) {
        if (link->state == OW_LINK_OPEN) {
            return down(link, OW_LINK_GATEWAY_GONE);
        }
        /* the gateway has answered: no need to wait for the timer */
        link->hello_due = link->state == OW_LINK_GREETING;
        return OW_LINK_NOTHING;
    }
    link->counts.broken++;
    return OW_LINK_NOTHING;
}

/* --- data --- */

static void step_back(struct ow_link *link)
{
    link->sent = 0;
    link->timing = false; /* Karn: no sample from a frame that was sent twice */
    link->counts.repeats++;
}

static void acknowledged(struct ow_link *link, uint8_t next, bool alone, uint16_t now)
{
    uint8_t frames = SEQUENCE(next - link->base);
    if (frames > link->flight) {
        return; /* older than the last acknowledgement */
    }
    if (frames == 0) {
        if (alone && link->flight && link->sent && !link->repeated) {
            link->repeated = true;
            step_back(link);
        }
        return;
    }
    if (link->timing && SEQUENCE(link->timed - link->base) < frames) {
        take_sample(link, (uint16_t)(now - link->timed_at));
        link->timing = false;
    }
    for (uint8_t i = 0; i < frames; i++) {
        ow_size length = link->lengths[link->base & (OW_LINK_WINDOW - 1)];
        link->start = (ow_size)(link->start + length) & MASK;
        link->used = (ow_size)(link->used - length);
        link->cut = (ow_size)(link->cut - length);
        link->base = SEQUENCE(link->base + 1);
    }
    link->flight = (uint8_t)(link->flight - frames);
    link->sent = link->sent > frames ? (uint8_t)(link->sent - frames) : 0;
    link->repeated = false;
    link->expiries = 0;
    link->timer_on = false;
    if (link->flight) {
        start_timer(link, now, retransmission_timeout(link));
    }
}

static enum ow_link_event session_frame(struct ow_link *link, uint8_t control, uint16_t now)
{
    uint8_t type = control >> 6;
    if (type == TYPE_TIME && link->payload_length == OW_LINK_TIME_SIZE) {
        return OW_LINK_TIME;
    }
    if ((type == TYPE_DATA) != (link->payload_length > 0) || type > TYPE_ACK) {
        link->counts.broken++;
        return OW_LINK_NOTHING;
    }
    acknowledged(link, SEQUENCE(control), type == TYPE_ACK, now);
    if (type == TYPE_ACK) {
        return OW_LINK_NOTHING;
    }
    link->ack_due = true;
    if (SEQUENCE(control >> 3) != link->expected) {
        return OW_LINK_NOTHING;
    }
    link->expected = SEQUENCE(link->expected + 1);
    return OW_LINK_DATA;
}

enum ow_link_event ow_link_receive(struct ow_link *link, uint8_t byte, uint16_t now)
{
    uint8_t length = ow_frame_decode(&link->decoder, byte, &link->counts.broken);
    if (length == 0) {
        return OW_LINK_NOTHING;
    }
    const uint8_t *body = link->decoder.body;
    bool is_handshake = body[0] >> 6 == TYPE_HANDSHAKE;
    if (!is_handshake && link->state != OW_LINK_OPEN) {
        return OW_LINK_NOTHING; /* from a session that has ended */
    }
    ow_check check = is_handshake ? (ow_check)OW_CHECK_INITIAL : link->seed;
    if (ow_check_bytes(check, body, length) != OW_CHECK_RESIDUE) {
        link->counts.broken++;
        return OW_LINK_NOTHING;
    }
    link->payload_length = (uint8_t)(length - OW_FRAME_OVERHEAD);
    return is_handshake ? handshake(link, body[0], body + 1) : session_frame(link, body[0], now);
}

const uint8_t *ow_link_payload(const struct ow_link *link, uint8_t *length)
{
    *length = link->payload_length;
    return link->decoder.body + 1;
}

enum ow_link_event ow_link_tick(struct ow_link *link, uint16_t now)
{
    if (!expired(link, now)) {
        return OW_LINK_NOTHING;
    }
    if (link->state == OW_LINK_GREETING) {
        link->timer_on = false;
        link->timeout = doubled(link->timeout, OW_LINK_HELLO_MAX_MS);
        link->hello_due = true;
        return OW_LINK_NOTHING;
    }
    if (++link->expiries == OW_LINK_EXPIRIES_MAX) {
        return down(link, OW_LINK_NO_ANSWER);
    }
    start_timer(link, now, doubled(link->timeout, OW_LINK_RTO_MAX_MS));
    step_back(link);
    return OW_LINK_NOTHING;
}

/* --- sending --- */

static void send_data(struct ow_link *link, uint16_t now)
{
    ow_size offset = link->start;
    uint8_t number = link->base;
    for (uint8_t i = 0; i < link->sent; i++) {
        offset = (ow_size)(offset + link->lengths[number & (OW_LINK_WINDOW - 1)]);
        number = SEQUENCE(number + 1);
    }
    uint8_t *length = &link->lengths[number & (OW_LINK_WINDOW - 1)];
    bool repeat = link->sent < link->flight;
    if (!repeat) {
        ow_size rest = (ow_size)(link->used - link->cut);
        *length = rest < link->peer_mtu ? (uint8_t)rest : link->peer_mtu;
        link->cut = (ow_size)(link->cut + *length);
        link->flight++;
        if (!link->timing) {
            link->timing = true;
            link->timed = number;
            link->timed_at = now;
        }
    }
    link->sent++;
    if (!link->timer_on) {
        start_timer(link, now, retransmission_timeout(link));
    }
    link->ack_due = false;
    ow_frame_begin(&link->encoder, link->seed, (uint8_t)(number << 3 | link->expected), offset,
        *length, repeat);
}

static bool next_frame(struct ow_link *link, uint16_t now)
{
    if (link->state == OW_LINK_GREETING && link->hello_due) {
        link->hello_due = false;
        ow_frame_begin(&link->encoder, OW_CHECK_INITIAL, CONTROL_HELLO, 0, (uint8_t)link->used, true);
        start_timer(link, now, jittered(link, link->timeout));
        return true;
    }
    if (link->state != OW_LINK_OPEN) {
        return false;
    }
    if (link->hello_due) {
        link->hello_due = false;
        ow_frame_begin(&link->encoder, link->seed, CONTROL_TIME, 0, 0, false);
        return true;
    }
    if (link->sent < link->flight || (link->flight < link->peer_window && link->used > link->cut)) {
        send_data(link, now);
        return true;
    }
    if (link->ack_due) {
        link->ack_due = false;
        ow_frame_begin(&link->encoder, link->seed, CONTROL_ACK | link->expected, 0, 0, false);
        return true;
    }
    return false;
}

int16_t ow_link_transmit(struct ow_link *link, uint16_t now)
{
    if (!link->encoder.busy && !next_frame(link, now)) {
        return -1;
    }
    return ow_frame_encode(&link->encoder);
}

void ow_link_ask_time(struct ow_link *link)
{
    link->hello_due = true;
}

ow_size ow_link_room(const struct ow_link *link)
{
    return link->state == OW_LINK_OPEN ? (ow_size)(OW_LINK_TX_SIZE - link->used) : 0;
}

void ow_link_put(struct ow_link *link, uint8_t byte)
{
    link->ring[(link->start + link->used) & MASK] = byte;
    link->used++;
}

bool ow_link_drained(const struct ow_link *link)
{
    return link->used == 0;
}
