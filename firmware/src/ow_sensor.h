/*
 * A filter between a sensor and the journal, so that wrong values are not sent as right ones.
 *
 * In: each measurement, or the fault that its driver found. Out: the value to publish, or the fault
 * to report. A value counts if it lies in the sensor's range and near the last one that counted. A
 * first value, or one that jumps, counts when the next measurement is near it. After a given number
 * of failed measurements in a row the sensor has no value, and the reason is a fault.
 *
 * A fault is a record NAME.fault in a status, see firmware/SENSORS.md: SenML has no record without
 * a value (RFC 8428, section 4.3). A program without a call of it pays nothing.
 */
#ifndef OW_SENSOR_H
#define OW_SENSOR_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers are sent and stored in journals, so new ones go to the end. */
enum ow_sensor_fault {
    OW_SENSOR_WELL,
    OW_SENSOR_ABSENT,    /* no answer: no sensor, or its wire is broken */
    OW_SENSOR_SHORTED,   /* the line stays down: a short circuit to ground */
    OW_SENSOR_GARBLED,   /* the answer is damaged or incomplete */
    OW_SENSOR_RANGE,     /* the value is outside the sensor's range */
    OW_SENSOR_UNSTEADY,  /* no two values in a row are near each other */
    OW_SENSOR_OTHER,     /* another kind of sensor answers */
    OW_SENSOR_SEVERAL,   /* more than one sensor answers */
    OW_SENSOR_UNMEASURED, /* it has not measured: its supply is missing or fails */
    OW_SENSOR_FAULTS
};

/* Of one quantity, in the unit of the driver. */
struct ow_sensor_limits {
    int16_t least, most;
    uint16_t step; /* the largest step between two values in a row that needs no confirmation */
    uint8_t tries; /* measurements in a row without a value that make a fault; at least 2 */
};

/* Zeros at the start. */
struct ow_sensor {
    int16_t value;   /* the last one that counted */
    int16_t doubted; /* the last one that was not near it */
    uint8_t fault;   /* enum ow_sensor_fault, as judged last */
    uint8_t told;    /* the fault that went into the journal last */
    uint8_t failed;  /* measurements in a row without a value */
    bool known;      /* `value` is one */
    bool doubts;     /* `doubted` is one */
};

/**
 * Judges a measurement.
 *
 * @param fault  the driver's result; the value is ignored if there is a fault
 * @param value  may exceed 16 bits: it is compared before it is narrowed
 * @return true: the judgement stands, in `value` and `fault`; false: measure again
 */
bool ow_sensor_judge(struct ow_sensor *sensor, const struct ow_sensor_limits *limits,
    enum ow_sensor_fault fault, int32_t value);

enum ow_sensor_news { OW_SENSOR_NOTHING, OW_SENSOR_STATUS, OW_SENSOR_VALUE };

/** @return what is to be published after a judgement; a changed fault goes before the value */
enum ow_sensor_news ow_sensor_due(const struct ow_sensor *sensor);

/** Records that the fault is in the journal. Call it when a status was OW_ACCEPTED. */
static inline void ow_sensor_told(struct ow_sensor *sensor)
{
    sensor->told = sensor->fault;
}

#ifdef __cplusplus
}
#endif

#endif
