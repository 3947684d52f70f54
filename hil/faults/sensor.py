"""Faults of a sensor: a broken wire, a short circuit, a sensor of another kind, two sensors on one
bus. In: a board with its sensor's example sketch; the rig has drawn the sensor's true values. Out:
whether the board reports the fault, sends no value meanwhile, and has values again afterwards.
"""

import asyncio
import time
from typing import ClassVar, Literal

from pydantic import Field

from hil.faults.base import Kind, Seconds
from hil.faults.fault import Evidence, Fault
from hil.faults.under_test import SystemUnderTest

TOLD_WITHIN = 60.0  # s; a board of the rig measures every 4 s, in a fault four times, 2 s apart
WELL = 0


class SensorKind(Kind):
    """A fault of a board's sensor. states: by kind of sensor, the state into which the simulated
    sensor is put (firmware/sim/README.md; millivolts for an analogue sensor), and the number of the
    fault that the board must then report (firmware/SENSORS.md).
    """

    part: ClassVar[str] = "board"
    needs_traffic: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    states: ClassVar[dict[str, tuple[str | int, int]]]
    seconds: Seconds = Field(default=12.0, ge=0, le=600)
    """Seconds from the board's report until the repair. Meanwhile the board must send no value."""

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        sensor = system.sensor(fault)
        state, number = self.states[sensor.kind]
        begun = time.monotonic()
        before = await sensor.put(state)
        reported = await sensor.says(number, before, TOLD_WITHIN)
        if reported is None:
            sensor.contradict(f"{self.text}, but fault {number} was not reported")
            return None
        after = time.monotonic() - begun
        await asyncio.sleep(self.seconds)
        await sensor.put("well")
        well = await sensor.says(WELL, reported, TOLD_WITHIN)
        value = well and await sensor.has_value(well, TOLD_WITHIN)
        if well is None or value is None:
            sensor.contradict(f"{self.text} is over, but the sensor does not send values again")
            return None
        # one measurement may have been under way when the fault began
        if lies := sensor.values_between(before + 1, well):
            sensor.contradict(f"{self.text}, but publication {lies[0]} has a value")
        return Evidence(
            f"fault {number} was reported after {after:.1f} s as publication {reported}, and values"
            f" arrived again after publication {well}",
            {"fault_number": number, "told": reported, "well": well},
        )


class SensorOpen(SensorKind):
    """The sensor's wire is broken. An analogue input reads 0 V; other sensors do not answer."""

    text: ClassVar[str] = "sensor open"
    states: ClassVar = {"ds18b20": ("open", 1), "dht22": ("open", 1), "tmp36": (0, 4)}
    sensors: ClassVar = frozenset({"ds18b20", "dht22", "tmp36"})
    kind: Literal["sensor-open"]


class SensorShorted(SensorKind):
    """A short circuit of the sensor's line: to ground, or to 5 V for an analogue sensor."""

    text: ClassVar[str] = "sensor shorted"
    states: ClassVar = {"ds18b20": ("shorted", 2), "dht22": ("shorted", 2), "tmp36": (5000, 4)}
    sensors: ClassVar = frozenset({"ds18b20", "dht22", "tmp36"})
    kind: Literal["sensor-shorted"]


class SensorSwapped(SensorKind):
    """A sensor of another kind answers: a DS18S20, or a DHT11."""

    text: ClassVar[str] = "sensor swapped"
    states: ClassVar = {"ds18b20": ("swapped", 6), "dht22": ("swapped", 6)}
    sensors: ClassVar = frozenset({"ds18b20", "dht22"})
    kind: Literal["sensor-swapped"]


class BusContention(SensorKind):
    """A second sensor, 20 degrees warmer, is on the bus."""

    text: ClassVar[str] = "two sensors on a bus"
    states: ClassVar = {"ds18b20": ("contention", 7)}
    sensors: ClassVar = frozenset({"ds18b20"})
    kind: Literal["bus-contention"]
