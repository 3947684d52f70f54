/*
 * The packet that reports a lost publication. In: the report from the journal. Out: a message at
 * QoS 2 on `logs/NAME`, in text: `lost: SEQUENCE`.
 */
#ifndef OW_LOST_H
#define OW_LOST_H

#include "Onceway.h"

#if OW_SLOT_CHECK
/* Makes the packet in OW_SCRATCH bytes of scratch, topic included. */
void ow_lost_packet(const struct ow_mqtt *client, const struct ow_entry *report,
    struct ow_message *message, uint8_t *scratch);
#else
static inline void ow_lost_packet(const struct ow_mqtt *client, const struct ow_entry *report,
    struct ow_message *message, uint8_t *scratch)
{
    (void)client, (void)report, (void)message, (void)scratch;
}
#endif

#endif
