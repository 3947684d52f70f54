/*
 * The packet that reports a lost publication: the message `lost` at QoS 2 on `logs/NAME`, under the
 * publication's sequence.
 */
#ifndef OW_LOST_H
#define OW_LOST_H

#include "Onceway.h"

#if OW_SLOT_CHECK
void ow_lost_packet(const struct ow_mqtt *client, struct ow_message *message);
#else
static inline void ow_lost_packet(const struct ow_mqtt *client, struct ow_message *message)
{
    (void)client, (void)message;
}
#endif

#endif
