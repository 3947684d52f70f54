/*
 * The values of the options with which the library was built; see ow_options.h.
 */
#include "ow_config.h"

/* without a size, so that it costs nothing */
const char ow_library_options[0] = {};

/* Never called. */
static void __attribute__((used)) define_options(void)
{
    OW_OPTIONS(OW_DEFINE, OW_DEFINE_WIDE)
}
