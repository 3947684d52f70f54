/* Times that are kept in 4 bytes: for the program, and for the log, which ow_mqtt.c writes to. */
#include "Onceway.h"

/* A kept time below this is one from 2038 on: January 2021 in UTC seconds. */
#define ERA 0x60000000ul

uint32_t ow_mqtt_time(const struct ow_mqtt *client)
{
    OW_CHECK_CALL();
    return client->utc_at_start ? (client->utc_at_start + client->uptime) & ~OW_UPTIME_BIT
                                : client->uptime | OW_UPTIME_BIT;
}

uint32_t ow_mqtt_utc(uint32_t time, uint32_t utc_at_start)
{
    if (!(time & OW_UPTIME_BIT)) {
        return time < ERA ? time | OW_UPTIME_BIT : time;
    }
    return utc_at_start ? utc_at_start + (time & ~OW_UPTIME_BIT) : 0;
}
