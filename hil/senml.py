"""What the sensor's payload says. In: SenML-CBOR (RFC 8428) of one record. Out: the sample in it, or None for anything else."""

from typing import NamedTuple

import cbor2

BASE_NAME, BASE_TIME, NAME, VALUE = -2, -3, 0, 2  # labels, RFC 8428 table 4
FULL_SCALE = 5.0  # V, reference of the Uno's ADC
ADC_STEPS = 1024
CLOCK_UNKNOWN = 0x8000_0000  # top bit of a ledger's time: seconds since the board's start (firmware/README.md)


class Sample(NamedTuple):
    """name: device and channel, e.g. `uno-1:adc0`. value: V. time: UTC seconds, None if the board did not know it."""

    name: str
    value: float
    time: int | None


def expected(device: str, channel: int, raw: int, time: int) -> Sample:
    """What the payload of a journalled reading must say. raw: ADC reading 0…1023; time: as journalled."""
    return Sample(f"{device}:adc{channel}", raw * FULL_SCALE / ADC_STEPS, None if time & CLOCK_UNKNOWN else time)


def decode(payload: bytes) -> Sample | None:
    try:
        [record] = cbor2.loads(payload)
        return Sample(record[BASE_NAME] + record[NAME], float(record[VALUE]), record.get(BASE_TIME))
    except (cbor2.CBORDecodeError, LookupError, TypeError, ValueError):
        return None
