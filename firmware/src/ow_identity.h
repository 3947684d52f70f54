/* The identity page in flash (firmware/README.md): written by provisioning, read here. */
#ifndef OW_IDENTITY_H
#define OW_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#define OW_NAME_MAX 23

/* Copies the device's name, closed by a zero, into `name` (OW_NAME_MAX + 1 bytes). An unprovisioned
 * or damaged page: false, and an empty name. */
bool ow_identity_name(char *name);

#endif
