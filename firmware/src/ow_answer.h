/*
 * Answers to commands, as a source of 8 bytes in the journal, which is the payload, too:
 *
 *     answer:4 length:4   ow_mqtt_answer's argument, and the length of the Correlation Data
 *     correlation[3]
 *     number:i32
 *
 * A command is obeyed once, and its answer is in the journal before the identifier of the command.
 * If the power goes between the two, the command comes again, and its answer is the newer one.
 */
#ifndef OW_ANSWER_H
#define OW_ANSWER_H

#include "Onceway.h"

#if OW_ANSWERS

/* Whether an answer still has to go into the journal. */
bool ow_answer_waits(const struct ow_mqtt *client);

/* Puts a waiting answer into the journal. True: an answer waits, or has just been put. */
bool ow_answer_keep(struct ow_mqtt *client);

/* The packet of an answer; it refers to its source. */
void ow_answer_packet(
    const struct ow_mqtt *client, const uint8_t *source, struct ow_message *message);

#else

static inline bool ow_answer_waits(const struct ow_mqtt *client)
{
    (void)client;
    return false;
}

static inline bool ow_answer_keep(struct ow_mqtt *client)
{
    (void)client;
    return false;
}

static inline void ow_answer_packet(
    const struct ow_mqtt *client, const uint8_t *source, struct ow_message *message)
{
    (void)client, (void)source, (void)message;
}

#endif

#endif
