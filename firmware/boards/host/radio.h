/* The radio of the host's board, see radio.c. */
#ifndef RADIO_H
#define RADIO_H

#include "ow_config.h"

#if OW_LORA
#include <stdbool.h>

extern int radio_fd;
extern bool radio_is_rylr998; /* it adds eight bytes to each frame, as an RYLR998 does */
void radio_connect(const char *path, const char *name, const char *x, const char *y);
#endif

#endif
