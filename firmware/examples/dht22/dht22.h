/* A DHT22 (AM2302, its data sheet by Aosong): temperature and humidity over one line with a 10 kΩ
 * resistor to 5 V. The time between two falling edges gives a bit. An interrupt measures it, so the
 * serial line loses no byte. */
#ifndef DHT22_H
#define DHT22_H

#include <stdint.h>

#include "frame.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DHT22_CALL_MS 2    /* shortest time for which the line must be down to call the sensor */
#define DHT22_ANSWER_MS 10 /* longest time until the end of its answer */
#define DHT22_PAUSE_MS 2000 /* between two calls, and from power-on to the first */

/* Once, before the others. pin: of the Arduino, one with an external interrupt (2 or 3). */
void dht22_begin(uint8_t pin);

/* Pulls the line down. */
void dht22_call(void);

/* Releases the line, and listens. */
void dht22_listen(void);

/* Ends listening, and reads the answer as dht22_decode does. */
enum ow_sensor_fault dht22_read(int16_t *temperature, uint16_t *humidity);

#ifdef __cplusplus
}
#endif

#endif
