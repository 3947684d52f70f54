#include "ow_pack.h"

#include <string.h>

#include "ow_bytes.h"
#include "ow_packet.h"

enum { PACKED = 0x08, WITH_PUBREL = 0x04, ALIAS = 0x03, ALIASES = 4, PACKED_SIZE = 3 };
enum { PUBREL_SIZE = 4, PUBREL_HEADER = OW_PUBREL << 4 | 2, PUBLISH_HEADER = OW_PUBLISH << 4 | 4 };
enum { QOS = 0x06, QOS_1 = 0x02, LONG = 0x80 };

#define LONG_PACKETS (OW_TURN_MTU > 129) /* Remaining Length may take two bytes */

static uint8_t header_size(const uint8_t *bytes)
{
    return LONG_PACKETS && bytes[1] & LONG ? 3 : 2;
}

uint8_t ow_pack_size(const uint8_t *bytes, uint8_t length)
{
    if (length < 2 || bytes[0] < OW_PACK_PLAIN) {
        return 0;
    }
    uint16_t size = (uint16_t)(bytes[1] + 2);
    if (LONG_PACKETS && bytes[1] & LONG) {
        size -= LONG;
        if (length < 3 || bytes[2] & LONG) {
            return 0;
        }
        size = (uint16_t)(size + 1 + (uint16_t)(bytes[2] << 7));
    }
    return size <= length ? (uint8_t)size : 0;
}

static uint16_t before(uint16_t id)
{
    return id == 1 ? 0xFFFF : (uint16_t)(id - 1);
}

/* After the fixed header of a PUBLISH with an alias and nothing else: empty topic, identifier,
 * properties. */
static bool can_be_packed(const uint8_t *packet, uint8_t size)
{
    const uint8_t *rest = packet + header_size(packet);
    return packet[0] == PUBLISH_HEADER && rest + 8 <= packet + size && rest[0] == 0 &&
           rest[1] == 0 && (rest[2] || rest[3]) && rest[4] == 3 && rest[5] == 0x23 &&
           rest[6] == 0 && (uint8_t)(rest[7] - 1) < ALIASES;
}

uint8_t ow_pack_turn(uint8_t *bytes, uint8_t length)
{
    uint8_t at = 0, size, last = 0, before_last = 0;
    if (length == 2 && bytes[0] == OW_PINGREQ << 4) {
        return 0;
    }
    while (at < length && (size = ow_pack_size(bytes + at, (uint8_t)(length - at)))) {
        before_last = last;
        last = at;
        at = (uint8_t)(at + size);
    }
    uint8_t *publish = bytes + last;
    if (at != length || at == 0 || !can_be_packed(publish, (uint8_t)(length - last))) {
        return length;
    }
    const uint8_t *rest = publish + header_size(publish);
    uint16_t id = ow_get_u16(rest + 2);
    uint8_t form = (uint8_t)(PACKED | (rest[7] - 1));
    uint8_t payload = (uint8_t)(length - (uint8_t)(rest + 8 - bytes));
    const uint8_t *pubrel = bytes + before_last;
    uint8_t *to = publish;
    if (before_last < last && pubrel[0] == PUBREL_HEADER && pubrel[1] == 2 &&
        ow_get_u16(pubrel + 2) == before(id)) {
        form |= WITH_PUBREL;
        to = bytes + before_last;
    }
    memmove(to + PACKED_SIZE, rest + 8, payload);
    to[0] = form;
    ow_put_u16(to + 1, id);
    return (uint8_t)(to - bytes + PACKED_SIZE + payload);
}

static uint8_t put(uint8_t *packet, enum ow_packet_type type, uint16_t id)
{
    packet[0] = (uint8_t)(type << 4);
    packet[1] = 2;
    ow_put_u16(packet + 2, id);
    return OW_ANSWER_SIZE;
}

/* The answer to a packet that is not packed; 0: the packet has another answer, or none. */
static uint8_t answer_plain(const uint8_t *from, uint8_t size, uint8_t *packet)
{
    const uint8_t *rest = from + header_size(from);
    if (from[0] == PUBREL_HEADER && size >= PUBREL_SIZE) {
        return put(packet, OW_PUBCOMP, ow_get_u16(rest));
    }
    if (from[0] >> 4 != OW_PUBLISH || !(from[0] & QOS)) {
        return 0;
    }
    uint16_t topic = ow_get_u16(rest);
    return rest + 2 + topic + 2 <= from + size
               ? put(packet, (from[0] & QOS) == QOS_1 ? OW_PUBACK : OW_PUBREC,
                     ow_get_u16(rest + 2 + topic))
               : 0;
}

uint8_t ow_pack_answer(struct ow_answers *answers, uint8_t *packet)
{
    if (answers->at == 0 && answers->length && answers->turn[0] == OW_PACK_ASK_TIME) {
        answers->at++;
    }
    if (answers->at == answers->length && !answers->any) {
        answers->any = true;
        packet[0] = OW_PINGRESP << 4;
        packet[1] = 0;
        return 2;
    }
    answers->any = true;
    while (answers->at < answers->length) {
        const uint8_t *from = answers->turn + answers->at;
        uint8_t left = (uint8_t)(answers->length - answers->at);
        if (from[0] & PACKED && from[0] < OW_PACK_PLAIN) {
            uint16_t id = ow_get_u16(from + 1);
            if (from[0] & WITH_PUBREL && !answers->half) {
                answers->half = true;
                return put(packet, OW_PUBCOMP, before(id));
            }
            answers->at = answers->length;
            return put(packet, OW_PUBREC, id);
        }
        uint8_t size = ow_pack_size(from, left);
        if (size == 0) {
            break;
        }
        answers->at = (uint8_t)(answers->at + size);
        uint8_t length = answer_plain(from, size, packet);
        if (length) {
            return length;
        }
    }
    return 0;
}
