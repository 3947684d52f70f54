#include "ow_lost.h"

#include <string.h>

#if OW_SLOT_CHECK

void ow_lost_packet(const struct ow_mqtt *client, const struct ow_entry *report,
    struct ow_message *message, uint8_t *scratch)
{
    static const char words[] = "lost: ";
    char *topic = (char *)scratch;
    uint8_t *end = scratch + OW_SCRATCH, *at = end;
    uint32_t sequence = ow_get_u32(report->source);
    strcpy(topic, "logs/");
    strcat(topic, client->name);
    do {
        *--at = (uint8_t)('0' + sequence % 10);
        sequence /= 10;
    } while (sequence);
    at -= sizeof words - 1;
    memcpy(at, words, sizeof words - 1);
    message->topic = topic;
    message->topic_length = (uint16_t)strlen(topic);
    message->payload = at;
    message->size = (uint16_t)(end - at);
    message->qos = 2;
}

#endif
