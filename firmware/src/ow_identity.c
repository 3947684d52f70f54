#include "ow_identity.h"

#include "ow_crc.h"
#include "ow_hal.h"

enum { VERSION_AT = 4, LENGTH_AT = 5, NAME_AT = 6, CRC_AT = 45, END = 47 };

bool ow_identity_name(char *name)
{
    static const char head[5] = {'O', 'W', 'I', 'D', 1};
    uint16_t crc = OW_CRC_INITIAL;
    bool good = true;
    for (uint8_t i = 0; i < END; i++) {
        uint8_t byte = ow_hal_identity_read(i);
        crc = ow_crc_byte(crc, byte);
        if (i <= VERSION_AT && byte != (uint8_t)head[i]) {
            good = false;
        }
    }
    uint8_t length = ow_hal_identity_read(LENGTH_AT);
    if (!good || crc != 0 || length > OW_NAME_MAX) {
        length = 0;
    }
    for (uint8_t i = 0; i < length; i++) {
        name[i] = (char)ow_hal_identity_read((uint8_t)(NAME_AT + i));
    }
    name[length] = '\0';
    return length > 0;
}
