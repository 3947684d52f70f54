#include "ow_identity.h"

#include <string.h>

#ifdef __AVR__
#include <avr/pgmspace.h>
#endif

#include "ow_bytes.h"
#include "ow_config.h"
#include "ow_crc.h"
#include "ow_hal.h"

enum { LENGTH_AT = 5, NAME_AT = 6, KEY_AT = 29, KEY_SIZE = 16, SIZE = 47 };

#ifdef __AVR__
/* The signature by which provisioning recognises a firmware and its identity page's address. */
static const uint8_t signature[] PROGMEM = {'O', 'W', 'F', 'W', 1,
    ((OW_IDENTITY_PAGE + 0ul) >> 16) & 0xFF, (OW_IDENTITY_PAGE >> 8) & 0xFF,
    OW_IDENTITY_PAGE & 0xFF};
#define KEEP_SIGNATURE() __asm__ volatile("" : : "x"(signature))
#else
#define KEEP_SIGNATURE() (void)0
#endif

bool ow_identity_read(char *name, uint8_t *key)
{
    uint8_t page[SIZE];
    KEEP_SIGNATURE();
    ow_hal_identity_read(page, SIZE);
    uint8_t length = page[LENGTH_AT];
    if (memcmp(page, "OWID\1", LENGTH_AT) != 0 || ow_crc(OW_CRC_INITIAL, page, SIZE) != 0 ||
        length > OW_NAME_MAX) {
        length = 0;
    }
    memcpy(name, page + NAME_AT, length);
    name[length] = '\0';
    if (key) {
        memset(key, 0, KEY_SIZE);
        memcpy(key, page + KEY_AT, length ? KEY_SIZE : 0);
    }
    return length > 0;
}

enum { RADIO_AT = 48, RADIO_SIZE = 17, LEAST_FACTOR = 7 };

bool ow_identity_radio(struct ow_radio_plan *plan)
{
    uint8_t page[RADIO_AT + RADIO_SIZE];
    const uint8_t *radio = page + RADIO_AT;
    memset(plan, 0, sizeof *plan);
    plan->factor = LEAST_FACTOR; /* without a channel, too: a frame of factor 0 never ends */
    ow_hal_identity_read(page, sizeof page);
    if (memcmp(radio, "OWLR\1", LENGTH_AT) != 0 ||
        ow_crc(OW_CRC_INITIAL, radio, RADIO_SIZE) != 0) {
        return false;
    }
    plan->network = radio[5];
    plan->device = radio[6];
    plan->factor = radio[7];
    plan->power = radio[8];
    plan->silence = ow_get_u16(radio + 9);
    plan->channel = ow_get_u32(radio + 11);
    return true;
}
