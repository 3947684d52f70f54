/* Memory images in files: mapped, so that every byte written is in the file at once and outlives
 * the death of this process. */
#ifndef SIM_IMAGES_H
#define SIM_IMAGES_H

#include <stddef.h>
#include <stdint.h>

/* Map the image `path` of `size` bytes; a new file is filled with 0xFF (erased). NULL path: memory
 * only. The file is locked (flock) while this process lives. After its bytes lie `guard` bytes of
 * `guard_byte`, which share little memory. Returns NULL after a message on standard error. */
uint8_t *image_map(const char *path, size_t size, size_t guard, uint8_t guard_byte);

/* Put an Intel HEX file into an image. Returns its lowest address, or -1 after a message on
 * standard error. */
long image_load_hex(uint8_t *image, size_t size, const char *path);

#endif
