#include "ow_answer.h"

#include <string.h>

#include "ow_bytes.h"
#include "ow_flow.h"

#if OW_ANSWERS

enum { CORRELATION_AT = 1, NUMBER_AT = 4, MOST_CORRELATION = NUMBER_AT - CORRELATION_AT };

/* The topic name is in one piece: client->logs and client->name. */
static OW_ONE_COPY uint8_t topic_length(const struct ow_mqtt *client)
{
    return (uint8_t)(sizeof client->logs + strlen(client->name));
}

void ow_mqtt_answer(struct ow_mqtt *client, const struct ow_message *command,
    enum ow_answer answer, int32_t number)
{
    OW_CHECK_CALL();
    const uint8_t *response = command->response, *correlation = command->correlation;
    uint8_t *source = client->answer, length = correlation ? *correlation : 0;
    if (!response || *response != topic_length(client) || length > MOST_CORRELATION ||
        memcmp(response + 1, client->logs, *response) != 0) {
        return;
    }
    source[0] = (uint8_t)(answer << 4 | length);
    memcpy(source + CORRELATION_AT, correlation + 1, length);
    ow_put_u32(source + NUMBER_AT, (uint32_t)number);
}

bool ow_answer_waits(const struct ow_mqtt *client)
{
    return client->answer[0];
}

bool ow_answer_keep(struct ow_mqtt *client)
{
    bool waits = ow_answer_waits(client);
    if (!waits) {
        return false;
    }
    if (!ow_flow_keeps(client)) {
        struct ow_message message = {0};
        ow_answer_packet(client, client->answer, &message);
        if (ow_flow_send_once(client, &message) != OW_BUSY) {
            client->answer[0] = 0;
        }
    } else if (ow_mqtt_publish_source(client, client->answer) == OW_ACCEPTED) {
        ow_journal_mark_answer(&client->journal);
        client->answer[0] = 0;
    }
    return true;
}

void ow_answer_packet(
    const struct ow_mqtt *client, const uint8_t *source, struct ow_message *message)
{
    message->topic = client->logs;
    message->topic_length = topic_length(client);
    message->correlation = source;
    message->payload = source;
    message->size = OW_JOURNAL_SOURCE;
    message->qos = 2;
}

#endif
