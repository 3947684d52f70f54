/* Maxim's 1-Wire bus with one DS18B20 on it (DS18B20 data sheet). The data line needs 4.7 kΩ to
 * 5 V; the sensor has its own supply. */
#ifndef ONEWIRE_H
#define ONEWIRE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DS18B20_CONVERSION_MS 750 /* at 12 bits */

/* Once, before the others. pin: of the Arduino. */
void onewire_begin(uint8_t pin);

/* Starts a measurement. False: nobody answers. */
bool ds18b20_convert(void);

/* The last measurement in sixteenths of a degree Celsius. False: nobody answers, or a bit was lost
 * on the way. 85 degrees is what it tells when its power was away since. */
bool ds18b20_read(int16_t *sixteenths);

#ifdef __cplusplus
}
#endif

#endif
