#include "ow_identity.h"

#include <string.h>

#include "ow_crc.h"
#include "ow_hal.h"

enum { LENGTH_AT = 5, NAME_AT = 6, SIZE = 47 };

bool ow_identity_name(char *name)
{
    uint8_t page[SIZE];
    ow_hal_identity_read(page, SIZE);
    uint8_t length = page[LENGTH_AT];
    if (memcmp(page, "OWID\1", LENGTH_AT) != 0 || ow_crc(OW_CRC_INITIAL, page, SIZE) != 0 ||
        length > OW_NAME_MAX) {
        length = 0;
    }
    memcpy(name, page + NAME_AT, length);
    name[length] = '\0';
    return length > 0;
}
