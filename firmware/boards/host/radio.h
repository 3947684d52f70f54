/* The radio of the host's board, see radio.c. */
#ifndef RADIO_H
#define RADIO_H

#include "ow_config.h"

#if OW_LORA
extern int radio_fd;
void radio_connect(const char *path, const char *name, const char *x, const char *y);
#endif

#endif
