/* The identity page in flash (firmware/JOURNAL.md): written by provisioning, read here. */
#ifndef OW_IDENTITY_H
#define OW_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "ow_radio.h"

#define OW_NAME_MAX 23

/* Copies the device's name, closed by a zero, into `name` (OW_NAME_MAX + 1 bytes), and its key into
 * `key` (16 bytes) unless that is NULL. An unprovisioned or damaged page: false, an empty name, and
 * a key of zeros, which proves nothing. */
bool ow_identity_read(char *name, uint8_t *key);

/* Copies the page's radio settings. False, and zeros: there are none, or they are damaged. */
bool ow_identity_radio(struct ow_radio_plan *plan);

#endif
