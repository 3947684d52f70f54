#include "Onceway.h"

enum { READ_ERROR_S = 3 };

void ow_clock_poll(struct ow_clock *clock, const struct ow_mqtt *client)
{
    OW_CHECK_CALL();
    if (client->link.utc == clock->told || client->link.utc == 0) {
        return;
    }
    clock->told = client->link.utc;
    clock->told_at = client->uptime;
    if (clock->utc_at_start == 0) {
        clock->utc_at_start = client->utc_at_start;
        clock->learnt = client->uptime;
    }
}

uint32_t ow_clock_utc(const struct ow_clock *clock, uint32_t time)
{
    return ow_mqtt_utc(time, clock->utc_at_start);
}

static uint32_t error_after(uint32_t seconds)
{
    return READ_ERROR_S + (seconds + OW_CLOCK_PARTS - 1) / OW_CLOCK_PARTS;
}

uint32_t ow_clock_error(const struct ow_clock *clock, const struct ow_mqtt *client)
{
    OW_CHECK_CALL();
    return error_after(client->uptime - clock->told_at);
}

uint32_t ow_clock_error_before(const struct ow_clock *clock, uint32_t time)
{
    time &= ~OW_UPTIME_BIT;
    return error_after(time < clock->learnt ? clock->learnt - time : 0);
}
