/* The link against tests/vectors/link.txt, and built with keys against keys.txt, whose values come
 * from other programs. Built with the largest sizes of the wire format. */
#include "ow_bytes.h"
#include "ow_crc.h"
#include "ow_frame.h"
#include "ow_link.h"
#include "vectors.h"

static struct ow_link link;

static void feed(
    const uint8_t *frame, unsigned length, enum ow_link_event wanted)
{
    for (unsigned i = 0; i < length; i++) {
        enum ow_link_event event = ow_link_receive(&link, frame[i], 0);
        CHECK(event == (i + 1 == length ? wanted : OW_LINK_NOTHING), "event %d at byte %u of: %s",
            event, i, line);
    }
}

static void sends(const uint8_t *frame, unsigned length)
{
    for (unsigned i = 0; i < length; i++) {
        int16_t byte = ow_link_transmit(&link, 0);
        if (i == 0 && byte == 0) {
            byte = ow_link_transmit(&link, 0); /* a leading delimiter */
        }
        CHECK(byte == frame[i], "byte %u is %d in: %s", i, byte, line);
    }
}

/* A link in the middle of a session. */
static void in_session(ow_check seed)
{
    ow_link_init(&link);
    link.state = OW_LINK_OPEN;
    link.seed = seed;
    link.peer_mtu = 240;
    link.peer_window = 4;
}

static void check_data(bool ack)
{
    uint8_t frame[512], payload[256], length;
    unsigned frame_length = bytes("frame", frame);
    unsigned size = ack ? 0 : bytes("payload", payload);
    in_session((ow_check)number("seed"));

    link.expected = ack ? 0 : (uint8_t)number("seq");
    feed(frame, frame_length, ack ? OW_LINK_NOTHING : OW_LINK_DATA);
    CHECK_EQUAL(link.counts.broken, 0);
    if (!ack) {
        const uint8_t *got = ow_link_payload(&link, &length);
        CHECK_EQUAL(length, size);
        CHECK(memcmp(got, payload, size) == 0, "%s", line);
    }

    in_session((ow_check)number("seed"));
    link.expected = (uint8_t)number("ack");
    link.ack_due = ack;
    link.base = ack ? 0 : (uint8_t)number("seq");
    for (unsigned i = 0; i < size; i++) {
        ow_link_put(&link, payload[i]);
    }
    sends(frame, frame_length);
}

/* Greets as the line says. */
static void greet(const char *incarnation, const char *flags)
{
    static char name[32];
    strcpy(name, text("device"));
    struct ow_greeting greeting = {.name = name,
        .boot = (uint16_t)number("boot"),
        .incarnation = (uint32_t)number(incarnation),
        .next_sequence = (uint32_t)number("next_sequence"),
        .power_on = number(flags) & 1};
    ow_link_init(&link);
    link.attempt = (uint8_t)(number("attempt") - 1);
#if OW_KEYS
    greeting.entropy = (uint32_t)number("entropy");
    CHECK_EQUAL(bytes("key", link.key), OW_KEY_SIZE);
#endif
    ow_link_greet(&link, &greeting);
}

static void check_time(bool told)
{
    uint8_t frame[64], length;
    unsigned frame_length = bytes("frame", frame);
    in_session((ow_check)number("seed"));
    if (told) {
        feed(frame, frame_length, OW_LINK_TIME);
        const uint8_t *answer = ow_link_payload(&link, &length);
        CHECK_EQUAL(length, OW_LINK_TIME_SIZE);
        CHECK_EQUAL(ow_get_u32(answer), number("utc"));
        CHECK_EQUAL(answer[4], number("part"));
    } else {
        ow_link_ask_time(&link);
        sends(frame, frame_length);
    }
}

static void check_hello(void)
{
    uint8_t frame[512];
    unsigned length = bytes("frame", frame);
    greet("incarnation", "flags");
#if !OW_KEYS
    /* The sizes are fixed when the firmware is built: patch them where they stand in the
     * message. */
    link.ring[12] = (uint8_t)number("mtu");
    link.ring[13] = (uint8_t)number("window");
#endif
    sends(frame, length);
}

static void check_welcome(void)
{
    uint8_t frame[512];
    unsigned length = bytes("frame", frame);
    bool refused = number("flags") & 1;
#if OW_KEYS
    greet("own", "hello_flags");
#else
    struct ow_greeting greeting = {"s1", (uint16_t)number("boot"), 0, 1, true};
    ow_link_init(&link);
    link.attempt = (uint8_t)(number("attempt") - 1);
    ow_link_greet(&link, &greeting);
#endif
    feed(frame, length, refused ? OW_LINK_DOWN : OW_LINK_UP);
    if (refused) {
        CHECK_EQUAL(link.cause, OW_LINK_REFUSED);
        return;
    }
    CHECK_EQUAL(link.incarnation, number("incarnation"));
    CHECK_EQUAL(link.utc, number("utc"));
#if OW_KEYS
    CHECK_EQUAL(link.seed, number("seed"));
    CHECK(link.ack_due, "the gateway's challenge is answered");
#endif
    CHECK_EQUAL(link.peer_mtu, number("mtu"));
    CHECK_EQUAL(link.peer_window, number("window"));
}

#if OW_KEYS

/* Each bit of a WELCOME that is another makes it none. */
static void check_forged_welcomes(void)
{
    uint8_t frame[512];
    unsigned length = bytes("frame", frame);
    for (unsigned bit = 8; bit < 8 * (length - 1); bit++) {
        greet("own", "hello_flags");
        struct ow_frame_decoder decoder = {0};
        struct ow_frame_encoder encoder = {.ring = decoder.body + 1, .mask = 0xFF};
        uint16_t broken = 0;
        uint8_t size = 0;
        for (unsigned i = 0; i < length; i++) {
            size = ow_frame_decode(&decoder, frame[i], &broken);
        }
        unsigned at = bit / 8 % (OW_FRAME_WELCOME);
        if (at == 18 && bit % 8 == 0) {
            continue; /* who refuses proves nothing */
        }
        decoder.body[1 + at] ^= (uint8_t)(1u << bit % 8);
        ow_frame_begin(&encoder, OW_CHECK_INITIAL, decoder.body[0], 0, (uint8_t)(size - 5), false);
        while (encoder.busy) {
            CHECK_EQUAL(ow_link_receive(&link, ow_frame_encode(&encoder), 0), OW_LINK_NOTHING);
        }
        CHECK_EQUAL(link.state, OW_LINK_GREETING);
    }
}

static void check_cmac(void)
{
    uint8_t key[OW_KEY_SIZE], message[256], mac[OW_KEY_SIZE];
    struct ow_cmac cmac;
    CHECK_EQUAL(bytes("key", key), sizeof key);
    CHECK_EQUAL(bytes("mac", mac), sizeof mac);
    unsigned length = bytes("message", message);
    for (unsigned split = 0; split <= length; split++) {
        ow_cmac_begin(&cmac, key);
        ow_cmac_put(&cmac, message, (uint8_t)split);
        ow_cmac_put(&cmac, message + split, (uint8_t)(length - split));
        ow_cmac_end(&cmac);
        CHECK(memcmp(cmac.block, mac, sizeof mac) == 0, "%s", line);
    }
}

#endif

static void check_crc32(void)
{
    uint8_t buffer[256];
    unsigned length = bytes("bytes", buffer);
    uint32_t crc = (uint32_t)number("init");
    for (unsigned i = 0; i < length; i++) {
        crc = ow_crc32_byte(crc, buffer[i]);
    }
    CHECK_EQUAL(crc, number("crc"));
}

static void check_who(void)
{
    uint8_t frame[512];
    in_session(0x1234);
    feed(frame, bytes("frame", frame), OW_LINK_DOWN);
    CHECK_EQUAL(link.cause, OW_LINK_GATEWAY_GONE);
}

static void check_bad(void)
{
    uint8_t frame[1024];
    in_session((ow_check)number("seed"));
    feed(frame, bytes("frame", frame), OW_LINK_NOTHING);
    CHECK(
        link.counts.broken == (strcmp(text("frame"), "0100") ? 1 : link.counts.broken), "%s", line);
    CHECK(!link.ack_due && link.expected == 0 && link.state == OW_LINK_OPEN, "%s", line);
}

static void check_seed(void)
{
    uint16_t boot = (uint16_t)number("boot"), gateway_boot = (uint16_t)number("gateway_boot"),
             handshake = (uint16_t)number("handshake");
    uint8_t counters[] = {(uint8_t)(boot >> 8), (uint8_t)boot, (uint8_t)number("attempt"),
        (uint8_t)(gateway_boot >> 8), (uint8_t)gateway_boot, (uint8_t)(handshake >> 8),
        (uint8_t)handshake};
    CHECK_EQUAL(ow_crc(OW_CRC_INITIAL, counters, sizeof counters), number("seed"));
}

int main(int argc, char **argv)
{
    CHECK(argc == 2, "usage: test_vectors FILE");
    FILE *file = fopen(argv[1], "r");
    CHECK(file, "cannot open %s", argv[1]);
    unsigned count = 0;
    while (fgets(line, sizeof line, file)) {
        uint8_t buffer[256];
        if (line[0] == '#' || line[0] == '\n') {
            continue;
        }
        count++;
        if (is("crc")) {
            unsigned length = bytes("bytes", buffer);
            CHECK_EQUAL(ow_crc((uint16_t)number("init"), buffer, (uint8_t)length), number("crc"));
        } else if (is("seed")) {
            check_seed();
        } else if (is("data") || is("ack")) {
            check_data(is("ack"));
        } else if (is("time")) {
            check_time(strstr(line, "utc="));
        } else if (is("hello")) {
            check_hello();
        } else if (is("welcome") || is("refusal")) {
            check_welcome();
#if OW_KEYS
            if (is("welcome")) {
                check_forged_welcomes();
            }
        } else if (is("cmac")) {
            check_cmac();
#endif
        } else if (is("crc32")) {
            check_crc32();
        } else if (is("who")) {
            check_who();
        } else if (is("bad")) {
            check_bad();
        } else {
            CHECK(false, "unknown kind: %s", line);
        }
    }
    fclose(file);
    CHECK(count > 30, "only %u vectors", count);
    printf("  %u vectors\n", count);
    return 0;
}
