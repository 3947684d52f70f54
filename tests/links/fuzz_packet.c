/*
 * Fuzz target for the device's readers of MQTT packets: an input is a packet's header byte and what
 * follows its Remaining Length.
 *
 *     clang -fsanitize=fuzzer,address,undefined -Ifirmware/src tests/links/fuzz_packet.c
 *     firmware/src/ow_{packet_read,bytes}.c
 */
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "ow_packet.h"

/* What a message points at lies inside the packet, and what was refused is an error of MQTT 5. */
static void read_publish(uint8_t flags, const uint8_t *bytes, uint8_t length)
{
    struct ow_message message;
    uint16_t id;
    uint8_t error = ow_read_publish(flags, bytes, length, &message, &id);
    assert(error == OW_SUCCESS || error == OW_MALFORMED_PACKET || error == OW_PROTOCOL_ERROR ||
           error == OW_TOPIC_ALIAS_INVALID);
    if (error == OW_SUCCESS) {
        const uint8_t *topic = (const uint8_t *)message.topic;
        assert(topic >= bytes && topic + message.topic_length <= message.payload);
        assert(message.payload + message.size == bytes + length);
        assert(message.qos < 3 && message.topic_length > 0 && (message.qos == 0 || id));
    }
}

static void read_connack(const uint8_t *bytes, uint8_t length)
{
    struct ow_connack connack = {.keep_alive = 60};
    uint8_t error = ow_read_connack(bytes, length, &connack);
    assert(error == OW_SUCCESS || error == OW_MALFORMED_PACKET || error == OW_PROTOCOL_ERROR ||
           error == OW_TOPIC_ALIAS_INVALID);
    assert(error ||
           (connack.receive_maximum && connack.maximum_packet_size && connack.maximum_qos <= 2));
    assert(error || !connack.session_present || connack.reason == OW_SUCCESS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint16_t id;
    uint8_t reason;
    if (size == 0 || size > 128) {
        return 0;
    }
    uint8_t type = data[0] >> 4;
    uint8_t length = (uint8_t)(size - 1);
    uint8_t *bytes = malloc(length); /* of the exact size: a byte too far is found */
    memcpy(bytes, data + 1, length);
    if (type == OW_PUBLISH) {
        read_publish(data[0] & 15, bytes, length);
    } else if (type == OW_CONNACK) {
        read_connack(bytes, length);
    } else {
        uint8_t error = ow_read_ack(type, bytes, length, &id, &reason);
        assert(error == OW_SUCCESS || error == OW_MALFORMED_PACKET || error == OW_PROTOCOL_ERROR ||
               error == OW_TOPIC_ALIAS_INVALID);
        assert(error || (length >= 2 && id));
    }
    free(bytes);
    return 0;
}
