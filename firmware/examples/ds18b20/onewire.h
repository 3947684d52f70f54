/* Maxim's 1-Wire bus with one DS18B20 on it (DS18B20 data sheet). The data line needs 4.7 kΩ to
 * 5 V; the sensor has its own supply. */
#ifndef ONEWIRE_H
#define ONEWIRE_H

#include <stdint.h>

#include "scratchpad.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DS18B20_CONVERSION_MS 750 /* at 12 bits */

/* Once, before the others. pin: of the Arduino. */
void onewire_begin(uint8_t pin);

/* Starts a measurement. A result other than OW_SENSOR_WELL is the reason why it failed. */
enum ow_sensor_fault ds18b20_convert(void);

/* Reads the measurement that ds18b20_convert began, in sixteenths of a degree Celsius, set if the
 * result is OW_SENSOR_WELL. 85 degrees may be a measurement: if they are the sensor's
 * value after a power loss, the result is OW_SENSOR_UNMEASURED. */
enum ow_sensor_fault ds18b20_read(int16_t *sixteenths);

#ifdef __cplusplus
}
#endif

#endif
