/* The symbols of the library's options, which ow_mqtt.c has in a whole program (ow_options.h). */
#include "ow_config.h"

static void __attribute__((used)) define_options(void)
{
    OW_OPTIONS(OW_DEFINE, OW_DEFINE_WIDE)
}
