"""Faults of sensors, as boards report them: a record `NAME.fault` in a status
(`firmware/README.md`).

SenML has no record without a value (RFC 8428, section 4.3), so a quantity without a value is
reported as a number under another name. From then on NAME has no value, until NAME.fault is 0 or a
value arrives.
"""

FAULT = ".fault"
WORDS = (
    "has values again",
    "has no value: no sensor answers. Check the sensor, its wires and its supply",
    "has no value: the sensor's line is shorted to ground. Check the wires",
    "has no value: the sensor's answers are damaged. Check the wires, their length and the supply",
    "has no value: the measured value is out of range. Check the sensor and its wires",
    "has no value: no two values in a row are near each other. Check for a loose wire",
    "has no value: a sensor of another kind answers. Connect the kind that the sketch is for",
    "has no value: more than one sensor answers on the bus. Connect only one",
    "has no value: the sensor does not measure. Check its supply",
)
"""Texts about a sensor. The index is the number of the fault in `firmware/src/ow_sensor.h`."""
GOOD = "good"
OTHER_FAULT = "unknown fault"
QUALITIES = (
    GOOD,
    "absent",
    "shorted",
    "garbled",
    "out of range",
    "unsteady",
    "other sensor",
    "several sensors",
    "not measured",
)
"""Words of the tables' column `quality`, by number of the fault."""


def words(number: int) -> str:
    """Return the meaning of a fault, and what to do."""
    if 0 <= number < len(WORDS):
        return WORDS[number]
    return f"has no value: its sensor has fault {number}, which this gateway does not know"
