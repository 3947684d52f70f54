/* The health of a board, collected for the program from the parts that count. */
#include "Onceway.h"

void ow_mqtt_health(const struct ow_mqtt *client, struct ow_health *health)
{
    OW_CHECK_CALL();
    uint16_t aside = (uint16_t)(client->kept + client->dropped);
    *health = (struct ow_health){
        .next_sequence = client->journal.next,
        .left = ow_journal_left(&client->journal),
        .boot = client->journal.boot,
        .broken = client->link.counts.broken,
        .repeats = client->link.counts.repeats,
        .pending = client->journal.pending,
        .worn = client->journal.worn,
        .aside = aside < 0xFF ? (uint8_t)aside : 0xFF,
        .memory_missing = ow_journal_missing(&client->journal),
    };
}
