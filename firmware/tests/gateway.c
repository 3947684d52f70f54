#include "gateway.h"

#include <string.h>

#include "board.h"
#include "check.h"
#include "ow_bytes.h"
#include "ow_crc.h"

enum { CONTROL_HELLO = 0x80, CONTROL_WELCOME, CONTROL_WHO };
enum { MTU = 240, WINDOW = 4, DEVICE_MTU_AT = 12, REPEAT_MS = 100 };
enum {
    CONNECT = 1,
    PUBLISH = 3,
    PUBACK,
    PUBREC,
    PUBREL,
    PUBCOMP,
    SUBSCRIBE,
    UNSUBSCRIBE = 10,
    PINGREQ = 12,
    DISCONNECT = 14
};

struct gateway gateway;

void gateway_new(void)
{
    memset(&gateway, 0, sizeof gateway);
    gateway.alias_maximum = 8;
    gateway.receive_maximum = 8;
    gateway.maximum_qos = 2;
    gateway.maximum_packet = 200;
    gateway.refuse_reason = 0x97;
}

uint64_t gateway_utc_ms(void)
{
    return 1767225600000u + gateway.now + (int64_t)gateway.now * gateway.drift / 1000000;
}

/* --- link --- */

static void send_frame(ow_check seed, uint8_t control, const uint8_t *payload, uint8_t length)
{
    uint8_t body[256], encoded[260];
    unsigned end = 1, code = 0, run = 1;
    body[0] = control;
    if (length) {
        memcpy(body + 1, payload, length);
    }
    for (unsigned i = 0; i <= length; i++) {
        seed = ow_check_byte(seed, body[i]);
    }
    for (unsigned i = 0; i < sizeof seed; i++) { /* CRC-16 highest byte first, CRC-32 lowest */
        body[1 + length + i] = (uint8_t)(~seed >> 8 * (OW_KEYS ? i : sizeof seed - 1 - i));
    }
    for (unsigned i = 0; i < 1 + length + sizeof seed; i++) {
        if (body[i]) {
            encoded[end++] = body[i];
            run++;
        } else {
            encoded[code] = (uint8_t)run;
            code = end++;
            run = 1;
        }
    }
    encoded[code] = (uint8_t)run;
    encoded[end++] = 0;
    gateway_line(encoded, end);
}

static void send_who(void)
{
    uint8_t payload[3] = {OW_LINK_VERSION, (uint8_t)(gateway.boot >> 8), (uint8_t)gateway.boot};
    gateway.who_at = gateway.now;
    send_frame(OW_CHECK_INITIAL, CONTROL_WHO, payload, OW_KEYS ? 1 : 3);
}

static void send_stream(bool again)
{
    if (!gateway.linked || gateway.out_length == 0 || (gateway.out_frame && !again)) {
        return;
    }
    if (!gateway.out_frame) {
        gateway.out_frame = gateway.out_length < 56 ? (uint8_t)gateway.out_length : 56;
    }
    gateway.out_at = gateway.now;
    send_frame(gateway.seed, (uint8_t)(gateway.sending << 3 | gateway.expected), gateway.out,
        gateway.out_frame);
}

static void drop_link(void)
{
    gateway.ended = false;
    gateway.linked = gateway.connected = false;
    gateway.out_length = gateway.out_frame = gateway.packet_length = 0;
}

void gateway_start(void)
{
    gateway.running = true;
    gateway.boot++;
    gateway.handshake = 0;
    drop_link();
    send_who();
}

void gateway_kill(void)
{
    gateway.running = false;
    gateway.welcome[0] = 0;
    drop_link();
}

void gateway_close(void)
{
    drop_link();
    gateway.welcome[0] = 0;
    send_who();
}

/* The common part of both handshakes, from the incarnation on. */
static void welcome_fields(uint8_t *fields, const uint8_t *hello)
{
    gateway.incarnation = ow_get_u32(hello + 4);
    if (gateway.incarnation == 0) {
        gateway.incarnation = 0x1000u + gateway.handshake + ((uint32_t)gateway.boot << 16);
    }
    ow_put_u32(fields, gateway.incarnation);
    fields[4] = MTU;
    fields[5] = WINDOW;
    fields[6] = gateway.refuse_device;
    ow_put_u32(fields + 7, (uint32_t)(gateway_utc_ms() / 1000));
    gateway.next_sequence = ow_get_u32(hello + 8);
}

#if OW_KEYS

enum { HELLO_SIZE = 31, WELCOME_SIZE = 31, NONCE_AT = 4, CODE_AT = 23, CODE_SIZE = 8 };

/* CMAC under the key of every board here, which is zero. */
static void seal(
    uint8_t *code, uint8_t label, const uint8_t *bytes, uint8_t length, const uint8_t *hello,
    uint8_t hello_length)
{
    static const uint8_t key[OW_KEY_SIZE];
    struct ow_cmac cmac;
    ow_cmac_begin(&cmac, key);
    ow_cmac_put(&cmac, &label, 1);
    ow_cmac_put(&cmac, bytes, length);
    ow_cmac_put(&cmac, hello, hello_length);
    ow_cmac_end(&cmac);
    memcpy(code, cmac.block, sizeof cmac.block);
}

static void begin_session(const uint8_t *hello, uint8_t length)
{
    uint8_t *w = gateway.welcome, code[OW_KEY_SIZE];
    seal(code, CONTROL_HELLO, NULL, 0, hello, (uint8_t)(length - CODE_SIZE));
    CHECK(memcmp(code, hello + length - CODE_SIZE, CODE_SIZE) == 0, "HELLO proves nothing");
    ow_put_u32(w + NONCE_AT, board_random());
    ow_put_u32(w + NONCE_AT + 4, ++gateway.handshake);
    welcome_fields(w + 12, hello);
    seal(code, CONTROL_WELCOME, w, CODE_AT, hello, length);
    memcpy(w + CODE_AT, code, CODE_SIZE);
    seal(code, 0x01, w + NONCE_AT, 8, hello, length);
    gateway.seed = ow_get_u32(code);
}

#else

enum { HELLO_SIZE = 15, WELCOME_SIZE = 19 };

static void begin_session(const uint8_t *hello, uint8_t length)
{
    (void)length;
    ow_put_u16(gateway.welcome + 4, gateway.boot);
    ow_put_u16(gateway.welcome + 6, gateway.handshake++);
    welcome_fields(gateway.welcome + 8, hello);
    gateway.seed = ow_crc(0xFFFF, gateway.welcome + 1, 7);
}

#endif

static void take_hello(const uint8_t *payload, uint8_t length)
{
    uint8_t *w = gateway.welcome;
    CHECK(length >= HELLO_SIZE && payload[0] == OW_LINK_VERSION, "HELLO of %u bytes", length);
    bool repeated = w[0] && memcmp(w + 1, payload + 1, 3) == 0;
    if (!repeated) {
        drop_link();
        w[0] = OW_LINK_VERSION;
        memcpy(w + 1, payload + 1, 3);
        begin_session(payload, length);
        gateway.expected = gateway.sending = 0;
        gateway.linked = true;
    }
    send_frame(OW_CHECK_INITIAL, CONTROL_WELCOME, w, WELCOME_SIZE);
}

/* --- MQTT --- */

static void send_packet(const uint8_t *bytes, unsigned length)
{
    CHECK(gateway.out_length + length <= sizeof gateway.out);
    memcpy(gateway.out + gateway.out_length, bytes, length);
    gateway.out_length = (uint16_t)(gateway.out_length + length);
}

void gateway_send(const uint8_t *bytes, unsigned length)
{
    send_packet(bytes, length);
}

static void send_ack(uint8_t header, uint16_t id, uint8_t reason)
{
    uint8_t packet[5] = {header, reason ? 3 : 2, (uint8_t)(id >> 8), (uint8_t)id, reason};
    send_packet(packet, reason ? 5 : 4);
}

static void send_message(bool dup)
{
    uint16_t id = gateway.message_id;
    uint8_t packet[128] = {
        dup ? 0x3C : 0x34, 9, 0, 2, 'c', 'm', (uint8_t)(id >> 8), (uint8_t)id, 0};
    unsigned extra = gateway.properties ? gateway.properties[0] : 0;
    if (extra) {
        memcpy(packet + 8, gateway.properties, 1 + extra);
    }
    ow_put_u16(packet + 9 + extra, id);
    packet[1] = (uint8_t)(9 + extra);
    send_packet(packet, 11 + extra);
}

static void go_on_with_message(void)
{
    if (gateway.message_id && gateway.message_received) {
        send_ack(0x62, gateway.message_id, 0);
    } else if (gateway.message_id) {
        send_message(true);
    }
}

void gateway_command(uint16_t id)
{
    CHECK(gateway.connected && gateway.message_id == 0);
    gateway.message_id = id;
    gateway.message_received = false;
    send_message(false);
}

static void take_connect(const uint8_t *body)
{
    static const uint8_t head[] = {0, 4, 'M', 'Q', 'T', 'T', 5};
    CHECK(memcmp(body, head, sizeof head) == 0 && !gateway.connected);
    gateway.clean_start = body[7] & 2;
    if (gateway.clean_start || gateway.forget_session) {
        gateway.session = gateway.forget_session = false;
        memset(gateway.held, 0, sizeof gateway.held);
        gateway.message_id = 0;
    }
    uint8_t packet[18] = {0x20, 14, gateway.session, 0, 11, 0x21, 0, gateway.receive_maximum, 0x22,
        0, gateway.alias_maximum, 0x27, 0, 0, 0, gateway.maximum_packet};
    if (gateway.maximum_qos < 2) {
        packet[1] = 16;
        packet[4] = 13;
        packet[16] = 0x24;
        packet[17] = gateway.maximum_qos;
    }
    const uint8_t *connack = gateway.connack ? gateway.connack : packet;
    gateway.connack = NULL;
    if (!gateway.lose_connack) {
        send_packet(connack, connack[1] + 2u);
    }
    if (body[7] & 4) {
        const uint8_t *will = body + 10 + 14 + 2 + body[25] + 1;
        snprintf(gateway.will, sizeof gateway.will, "%.*s=%.*s", will[1], (const char *)will + 2,
            will[3 + will[1]], (const char *)will + 4 + will[1]);
    }
    if (gateway.session && !gateway.lose_connack) {
        go_on_with_message();
    }
    gateway.lose_connack = false;
    gateway.connects++;
    gateway.session = gateway.connected = true;
    gateway.topic[0] = '\0';
    gateway.open_count = gateway.rec_count = 0;
    gateway.last_id = 0;
}

/* The full sequence whose low 16 bits are `id`, near the one that the device announced. */
static uint32_t sequence_of(uint16_t id)
{
    return gateway.next_sequence +
           (uint32_t)(int32_t)(int16_t)(id - (uint16_t)gateway.next_sequence);
}

/* Receive Maximum counts from PUBLISH, or a PUBREL that comes first, to PUBCOMP [MQTT-4.9.0-1]. */
static void open_id(uint16_t id)
{
    gateway.open[gateway.open_count++] = id;
    CHECK(gateway.open_count <= gateway.receive_maximum, "%u in flight", gateway.open_count);
    gateway.most_open =
        gateway.open_count > gateway.most_open ? gateway.open_count : gateway.most_open;
}

static bool close_id(uint16_t id)
{
    for (unsigned i = 0; i < gateway.open_count; i++) {
        if (gateway.open[i] == id) {
            gateway.open_count--;
            memmove(gateway.open + i, gateway.open + i + 1,
                (gateway.open_count - i) * sizeof gateway.open[0]);
            return true;
        }
    }
    return false;
}

static void take_publish(uint8_t flags, const uint8_t *body, unsigned length)
{
    unsigned at = 2u + ow_get_u16(body);
    unsigned qos = flags >> 1 & 3;
    CHECK(qos <= gateway.maximum_qos && length + 2 <= gateway.maximum_packet, "QoS %u, %u bytes",
        qos, length);
    bool alias_only = at == 2;
    char topic[sizeof gateway.topic] = "";
    memcpy(topic, alias_only ? (const uint8_t *)gateway.topic : body + 2,
        alias_only ? strlen(gateway.topic) : at - 2);
    gateway.retained += flags & 1;
    uint16_t id = 0;
    if (qos) {
        id = ow_get_u16(body + at);
        at += 2;
    }
    if (alias_only) {
        CHECK(body[at] == 3 && gateway.alias_maximum, "a PUBLISH without topic");
    }
    const uint8_t *properties = body + at;
    if (properties[0] && properties[1] == 0x23) {
        strcpy(gateway.topic, topic);
    }
    at += 1u + body[at];
    if (qos == 0 && strncmp(topic, "logs/", 5) == 0) {
        CHECK(gateway.log_lines < GATEWAY_LOG, "too many lines");
        snprintf(gateway.log[gateway.log_lines++], sizeof gateway.log[0], "%.*s",
            (int)(length - at), (const char *)body + at);
        return;
    }
    if (strcmp(topic, "logs/s1") == 0) {
        gateway.answers++;
        CHECK(length - at == 8 && properties[0] < sizeof gateway.beside);
        memcpy(gateway.answer, body + at, 8);
        memcpy(gateway.beside, properties, 1u + properties[0]);
    } else {
        CHECK(strcmp(topic, "t") == 0, "topic is '%s'", topic);
    }
    if (qos == 0) {
        gateway.qos0++;
        return;
    }
    CHECK_EQUAL(length - at, 8);
    CHECK(gateway.last_id == 0 || gateway.refused || (int16_t)(id - gateway.last_id) > 0,
        "%u after %u", id, gateway.last_id);
    gateway.last_id = id;
    open_id(id);
    gateway.publishes++;
    gateway.dups += flags >> 3;
    uint32_t of_id = sequence_of(id);
    bool poison = of_id == gateway.poison || of_id == gateway.poison_too;
    if (poison && gateway.poison_ends) {
        send_packet((const uint8_t[]){0xE0, 1, gateway.refuse_reason}, 3);
        gateway.ends++;
        gateway.ended = gateway.refused = true;
        return;
    }
    if (gateway.refuse || poison) {
        gateway.refuse -= !poison;
        gateway.refused = true;
        close_id(id);
        send_ack(qos == 2 ? 0x50 : 0x40, id, gateway.refuse_reason);
        return;
    }
    if (qos == 2) {
        gateway.recs[gateway.rec_count++] = id;
    } else {
        close_id(id);
    }
    if (!(gateway.held[id / 8] & 1 << id % 8)) {
        uint32_t sequence = sequence_of(id);
        CHECK(sequence < GATEWAY_SEQUENCES, "%u", sequence);
        CHECK(gateway.routed[sequence] == 0 || memcmp(gateway.source[sequence], body + at, 8) == 0,
            "sequence %u used twice", sequence);
        gateway.routed[sequence]++;
        memcpy(gateway.source[sequence], body + at, 8);
        if (qos == 2) {
            gateway.held[id / 8] |= (uint8_t)(1 << id % 8);
        }
    }
    send_ack(qos == 2 ? 0x50 : 0x40, id, 0);
}

static void take_pubrel(uint16_t id)
{
    bool held = gateway.held[id / 8] & 1 << id % 8;
    gateway.pubrels++;
    if (!close_id(id)) {
        open_id(id);
        close_id(id);
    } else {
        /* [MQTT-4.6.0-4] */
        CHECK(gateway.recs[0] == id, "PUBREL of %u before %u", id, gateway.recs[0]);
        gateway.rec_count--;
        memmove(gateway.recs, gateway.recs + 1, gateway.rec_count * sizeof gateway.recs[0]);
    }
    gateway.unknown_pubrels += !held;
    gateway.refused |= !held;
    gateway.held[id / 8] &= (uint8_t) ~(1 << id % 8);
    send_ack(0x70, id, held ? 0 : 0x92);
}

static void take_packet(uint8_t header, const uint8_t *body, unsigned length)
{
    uint8_t type = header >> 4;
    uint16_t id = length >= 2 ? ow_get_u16(body) : 0;
    if (gateway.mute || gateway.ended) {
        return;
    }
    CHECK(gateway.connected == (type != CONNECT), "packet type %u", type);
    if (type == CONNECT) {
        take_connect(body);
    } else if (type == PUBLISH) {
        take_publish(header & 15, body, length);
    } else if (type == PUBREL) {
        if (!gateway.silent_pubrel) {
            take_pubrel(id);
        }
    } else if (type == PUBREC) {
        CHECK_EQUAL(id, gateway.message_id);
        gateway.message_received = true;
        send_ack(0x62, id, 0);
    } else if (type == PUBCOMP) {
        CHECK_EQUAL(id, gateway.message_id);
        gateway.pubcomps[length > 2]++;
        gateway.message_id = 0;
    } else if (type == SUBSCRIBE) {
        uint8_t packet[] = {0x90, 4, body[0], body[1], 0, 2};
        send_packet(packet, sizeof packet);
        gateway.subscribes++;
    } else if (type == UNSUBSCRIBE) {
        uint8_t packet[] = {0xB0, 4, body[0], body[1], 0, 0};
        send_packet(packet, sizeof packet);
        gateway.unsubscribes++;
    } else if (type == PUBACK) {
        gateway.pubacks++;
    } else if (type == PINGREQ) {
        send_packet((const uint8_t[]){0xD0, 0}, 2);
    } else if (type == DISCONNECT) {
        gateway.disconnects++;
        gateway.disconnect_reason = length ? body[0] : 0;
        gateway.connected = false;
    } else {
        CHECK(false, "packet type %u", type);
    }
}

static void take_stream(const uint8_t *bytes, unsigned length)
{
    CHECK(gateway.packet_length + length <= sizeof gateway.packet);
    memcpy(gateway.packet + gateway.packet_length, bytes, length);
    gateway.packet_length = (uint16_t)(gateway.packet_length + length);
    while (gateway.packet_length >= 2) {
        unsigned head = gateway.packet[1] & 0x80 ? 3 : 2;
        unsigned size =
            (gateway.packet[1] & 0x7Fu) | (head == 3 ? (unsigned)gateway.packet[2] << 7 : 0);
        if (gateway.packet_length < head + size) {
            break;
        }
        take_packet(gateway.packet[0], gateway.packet + head, size);
        gateway.packet_length = (uint16_t)(gateway.packet_length - head - size);
        memmove(gateway.packet, gateway.packet + head + size, gateway.packet_length);
    }
}

/* --- frames that come in --- */

static void take_question(void)
{
    uint64_t utc = gateway_utc_ms();
    gateway.asked_time++;
    if (!gateway.tells_no_time) {
        ow_put_u32(gateway.time, (uint32_t)(utc / 1000));
        gateway.time[4] = (uint8_t)(utc % 1000 * 256 / 1000);
        gateway.time_at = gateway.now + gateway.answers_late;
    }
}

static void take_session_frame(uint8_t control, const uint8_t *payload, uint8_t length)
{
    uint8_t ack = control & 7;
    if (gateway.out_frame && ack == ((gateway.sending + 1) & 7)) {
        gateway.sending = ack;
        gateway.out_length = (uint16_t)(gateway.out_length - gateway.out_frame);
        memmove(gateway.out, gateway.out + gateway.out_frame, gateway.out_length);
        gateway.out_frame = 0;
    }
    if (length && (control >> 3) == gateway.expected) {
        gateway.expected = (gateway.expected + 1) & 7;
        take_stream(payload, length);
    }
    if (length && (gateway.out_frame || gateway.out_length == 0)) {
        send_frame(gateway.seed, 0x40 | gateway.expected, NULL, 0);
    }
    send_stream(false);
}

static void take_body(void)
{
    uint8_t control = gateway.body[0], length = (uint8_t)(gateway.body_length - OW_FRAME_OVERHEAD);
    bool handshake = control >> 6 == 2;
    if (gateway.body_length < OW_FRAME_OVERHEAD || (!handshake && !gateway.linked)) {
        if (gateway.body_length >= OW_FRAME_OVERHEAD && gateway.now - gateway.who_at >= 200) {
            send_who();
        }
        return;
    }
    ow_check check = handshake ? (ow_check)OW_CHECK_INITIAL : gateway.seed;
    for (unsigned i = 0; i < gateway.body_length; i++) {
        check = ow_check_byte(check, gateway.body[i]);
    }
    if (check != OW_CHECK_RESIDUE) {
        return;
    }
    if (handshake) {
        take_hello(gateway.body + 1, length);
    } else if (control >> 6 == 3) {
        take_question();
    } else {
        take_session_frame(control, gateway.body + 1, length);
    }
}

void gateway_receive(uint8_t byte)
{
    if (!gateway.running) {
        return;
    }
    if (byte == 0) {
        if (gateway.started && !gateway.bad && gateway.run == 0) {
            take_body();
        }
        gateway.started = gateway.bad = gateway.run = gateway.body_length = 0;
        return;
    }
    if (!gateway.started) {
        gateway.started = 1;
        gateway.run = (uint8_t)(byte - 1);
        return;
    }
    if (gateway.run == 0) {
        gateway.run = byte;
        byte = 0;
    }
    gateway.run--;
    gateway.body[gateway.body_length] = byte;
    gateway.bad |= gateway.body_length == 250;
    gateway.body_length = (uint8_t)(gateway.body_length + !gateway.bad);
}

void gateway_tick(uint32_t now)
{
    gateway.now = now;
    if (gateway.running && gateway.linked && gateway.time_at && now >= gateway.time_at) {
        gateway.time_at = 0;
        send_frame(gateway.seed, 0xC0, gateway.time, sizeof gateway.time);
    }
    if (gateway.running && gateway.linked) {
        send_stream(gateway.out_frame && now - gateway.out_at >= REPEAT_MS);
    }
}
