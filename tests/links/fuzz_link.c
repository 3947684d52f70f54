/*
 * Fuzz target for the device side of the link: an input is a list of operations, so that it also
 * gets past CRC and handshake.
 *
 *     clang -fsanitize=fuzzer,address,undefined -Ifirmware/src tests/links/fuzz_link.c
 *     firmware/src/ow_{link,frame,crc,cmac,bytes}.c
 *
 * fuzz_main.c drives the same target without libFuzzer.
 */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "ow_bytes.h"
#include "ow_crc.h"
#include "ow_link.h"

enum { RAW, FRAME, HANDSHAKE, WAIT, TRANSMIT, PUT, WELCOME, GREET, OPERATIONS };
static const struct ow_greeting greeting = {
    .name = "sensor-1", .boot = 7, .incarnation = 1, .next_sequence = 2, .power_on = true};
static uint16_t now;

static void check(const struct ow_link *link)
{
    assert(link->used <= OW_LINK_TX_SIZE);
    assert(link->cut <= link->used);
    assert(link->flight <= OW_LINK_WINDOW);
    assert(link->sent <= link->flight);
    assert(link->base < 8 && link->expected < 8);
    assert(ow_link_room(link) <= OW_LINK_TX_SIZE);
}

static void receive(struct ow_link *link, uint8_t byte)
{
    uint8_t length;
    enum ow_link_event event = ow_link_receive(link, byte, now);
    check(link);
    if (event == OW_LINK_DATA) {
        assert(link->state == OW_LINK_OPEN);
        const uint8_t *payload = ow_link_payload(link, &length);
        assert(length > 0 && length <= OW_FRAME_BODY - OW_FRAME_OVERHEAD);
        /* they can be read */
        assert(payload[0] == payload[0] && payload[length - 1] == payload[length - 1]);
    } else if (event == OW_LINK_DOWN) {
        ow_link_greet(link, &greeting);
    }
}

/* Feeds a frame whose CRC is right. */
static void receive_frame(
    struct ow_link *link, ow_check seed, uint8_t control, const uint8_t *payload, uint8_t length)
{
    static uint8_t ring[256];
    struct ow_frame_encoder encoder = {.ring = ring, .mask = sizeof ring - 1};
    memcpy(ring, payload, length);
    ow_frame_begin(&encoder, seed, control, 0, length, false);
    while (encoder.busy) {
        receive(link, ow_frame_encode(&encoder));
    }
}

static void welcome(struct ow_link *link, uint8_t sizes)
{
    uint8_t payload[OW_FRAME_WELCOME] = {OW_LINK_VERSION};
    uint8_t *incarnation = payload + (OW_KEYS ? 12 : 8);
    ow_put_u16(payload + 1, link->boot);
    payload[3] = link->attempt;
    incarnation[3] = 1;
    incarnation[4] = sizes & 0x0F ? 240 : (uint8_t)(sizes >> 4);
    incarnation[5] = sizes & 0x07;
#if OW_KEYS
    if (link->state == OW_LINK_GREETING && sizes & 0x80) { /* with a proof */
        static const uint8_t label = 0x81;
        struct ow_cmac cmac;
        ow_cmac_begin(&cmac, link->key);
        ow_cmac_put(&cmac, &label, 1);
        ow_cmac_put(&cmac, payload, sizeof payload - 8);
        ow_cmac_put(&cmac, link->ring, (uint8_t)link->used);
        ow_cmac_end(&cmac);
        memcpy(payload + sizeof payload - 8, cmac.block, 8);
    }
#endif
    receive_frame(link, OW_CHECK_INITIAL, 0x81, payload, sizeof payload);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ow_link link;
    ow_link_init(&link);
    ow_link_greet(&link, &greeting);
    now = 0;
    while (size >= 2) {
        uint8_t operation = data[0] % OPERATIONS;
        uint8_t argument = data[1];
        data += 2;
        size -= 2;
        uint8_t length = argument < size ? argument : (uint8_t)size;
        switch (operation) {
        case RAW:
            for (uint8_t i = 0; i < length; i++) {
                receive(&link, data[i]);
            }
            data += length;
            size -= length;
            break;
        case FRAME:
        case HANDSHAKE:
            if (length > 1) {
                uint8_t payload_length = (uint8_t)(length - 1) < OW_FRAME_PAYLOAD_MAX
                                             ? (uint8_t)(length - 1)
                                             : OW_FRAME_PAYLOAD_MAX;
                bool handshake = operation == HANDSHAKE;
                uint8_t control = handshake ? (uint8_t)(0x80 | (data[0] & 3)) : data[0];
                receive_frame(&link, handshake ? (ow_check)OW_CHECK_INITIAL : link.seed, control, data + 1,
                    payload_length);
                data += length;
                size -= length;
            }
            break;
        case WAIT:
            now = (uint16_t)(now + argument * 8u);
            if (ow_link_tick(&link, now) == OW_LINK_DOWN) {
                ow_link_greet(&link, &greeting);
            }
            break;
        case TRANSMIT:
            for (uint8_t i = 0; i < argument && ow_link_transmit(&link, now) >= 0; i++) {
                check(&link);
            }
            break;
        case PUT:
            for (uint8_t i = 0; i < argument && ow_link_room(&link) > 0; i++) {
                ow_link_put(&link, i);
            }
            break;
        case WELCOME:
            welcome(&link, argument);
            break;
        case GREET:
            ow_link_greet(&link, &greeting);
            break;
        }
        check(&link);
    }
    return 0;
}
