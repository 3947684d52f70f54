#include "ow_lost.h"

#include <string.h>

#if OW_SLOT_CHECK

void ow_lost_packet(const struct ow_mqtt *client, struct ow_message *message)
{
    static const uint8_t text[4] = "lost";
    message->topic = client->logs;
    message->topic_length = (uint16_t)(sizeof client->logs + strlen(client->name));
    message->payload = text;
    message->size = sizeof text;
    message->qos = 2;
}

#endif
