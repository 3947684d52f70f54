#include "frame.h"

#include <stdbool.h>

enum { SIGN = 0x8000, MOST_HUMIDITY = 1000, MOST_BELOW_ZERO = 400 };
enum { DHT11_MOST_PERCENT = 100, DHT11_MOST_DEGREES = 60, DHT11_MOST_TENTHS = 9 };

/* Whole percents, whole degrees, and tenths of a degree that newer ones have; one whose sign is in
 * the tenths is a DHT11, too. */
static bool is_dht11(const uint8_t *bytes)
{
    return bytes[0] > MOST_HUMIDITY >> 8 && bytes[0] <= DHT11_MOST_PERCENT &&
           bytes[1] <= DHT11_MOST_TENTHS && bytes[2] <= DHT11_MOST_DEGREES &&
           (bytes[3] & ~(SIGN >> 8)) <= DHT11_MOST_TENTHS;
}

enum ow_sensor_fault dht22_decode(const uint8_t *bytes, int16_t *temperature, uint16_t *humidity)
{
    uint8_t sum = 0, any = 0;
    for (uint8_t i = 0; i < DHT22_BYTES - 1; i++) {
        sum = (uint8_t)(sum + bytes[i]);
        any |= bytes[i];
    }
    if (sum != bytes[DHT22_BYTES - 1] || !any) {
        return OW_SENSOR_GARBLED; /* zeros have the right sum, and no weather has these values */
    }
    if (is_dht11(bytes)) {
        return OW_SENSOR_OTHER;
    }
    uint16_t raw = (uint16_t)(bytes[2] << 8 | bytes[3]);
    uint16_t magnitude = raw & (uint16_t)~SIGN;
    *humidity = (uint16_t)(bytes[0] << 8 | bytes[1]);
    *temperature = raw & SIGN && magnitude <= MOST_BELOW_ZERO ? (int16_t)-magnitude : (int16_t)raw;
    return OW_SENSOR_WELL;
}
