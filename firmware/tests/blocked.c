/* A program whose loop takes longer than the watchdog waits, as sketches with `delay(3000)` do: each
 * start polls once. */
#include <stddef.h>

#include "ow_hal.h"
#include "Onceway.h"
#include "ow_sketch.h"

enum { DELAY_MS = 3000 };

static struct ow_mqtt client;

static void connected(void *user, bool session_present)
{
    (void)user;
    (void)session_present;
}

static const struct ow_application application = {.connected = connected};

void setup(void)
{
    ow_mqtt_begin(&client, &application, NULL);
}

void loop(void)
{
    ow_mqtt_poll(&client);
    uint16_t start = ow_hal_millis();
    while ((uint16_t)(ow_hal_millis() - start) < DELAY_MS) {
    }
}
