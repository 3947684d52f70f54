#include "ow_sensor.h"

static bool is_near(int16_t one, int16_t other, uint16_t step)
{
    uint16_t apart = one > other ? (uint16_t)one - (uint16_t)other : (uint16_t)other - (uint16_t)one;
    return apart <= step;
}

static bool counts(struct ow_sensor *sensor, int16_t value, uint16_t step)
{
    if (sensor->known && is_near(value, sensor->value, step)) {
        return true;
    }
    if (sensor->doubts && is_near(value, sensor->doubted, step)) {
        return true;
    }
    sensor->doubts = true;
    sensor->doubted = value;
    return false;
}

bool ow_sensor_judge(struct ow_sensor *sensor, const struct ow_sensor_limits *limits,
    enum ow_sensor_fault fault, int32_t value)
{
    if (fault == OW_SENSOR_WELL && (value < limits->least || value > limits->most)) {
        fault = OW_SENSOR_RANGE;
    }
    if (fault != OW_SENSOR_WELL) {
        sensor->doubts = false; /* only values that follow one another can be near each other */
    } else if (counts(sensor, (int16_t)value, limits->step)) {
        sensor->value = (int16_t)value;
        sensor->known = true;
        sensor->doubts = false;
        sensor->failed = 0;
        sensor->fault = OW_SENSOR_WELL;
        return true;
    } else {
        fault = OW_SENSOR_UNSTEADY;
    }
    if (++sensor->failed < limits->tries) {
        return false;
    }
    sensor->failed = 0;
    sensor->known = false; /* a value after a fault needs confirmation */
    sensor->fault = (uint8_t)fault;
    return true;
}

enum ow_sensor_news ow_sensor_due(const struct ow_sensor *sensor)
{
    if (sensor->fault != sensor->told) {
        return OW_SENSOR_STATUS;
    }
    return sensor->fault == OW_SENSOR_WELL ? OW_SENSOR_VALUE : OW_SENSOR_NOTHING;
}
