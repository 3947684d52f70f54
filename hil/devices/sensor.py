"""A simulated Uno with the example sketch for one kind of sensor, and the simulated sensor. In: the
sensor's kind. Out: the board's publications in the history, and a contradiction for each value that
differs from the value that the rig has given the sensor.
"""

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

from hil.boards.simulator import BUILD, SimulatedBoard
from hil.devices.sketch import SketchedBoard
from hil.judge import senml
from hil.observe.counters import wait_until

SKETCHES = {"ds18b20": "ds18b20", "dht22": "dht22", "tmp36": "thermometer"}
FOLDER = BUILD / "arduino" / "rig"
"""Folder of sketches that measure every 4 s instead of every minute."""
FAULT = ".fault"
STEPS, REFERENCE_MV, ZERO_MV = 1024, 5000, 500
WARMEST_MV = 1700
_ROUNDING = 0.01  # of a degree: the board sends tenths and sixteenths


class SensorBoard(SketchedBoard):
    """A board whose sensor has constant values, drawn from the seed over the sensor's range."""

    def __init__(self, *args: Any) -> None:
        self._faults: dict[int, int] = {}
        self._values: set[int] = set()
        super().__init__(*args)

    @property
    def kind(self) -> str:
        return self._bench.sensors[self.name]

    @property
    def _hex(self) -> str:
        return str(FOLDER / f"{SKETCHES[self.kind]}.hex")

    @property
    def _drawn(self) -> tuple[int, int]:
        """Return the sensor's value (1/16 °C for a DS18B20, 1/10 °C for a DHT22, mV for a TMP36),
        and the humidity in 0.1 % for a DHT22, otherwise 0.
        """
        rng = random.Random(f"{self._bench.seed}/{self.name}/sensor")
        if self.kind == "ds18b20":
            return rng.randint(-55 * 16, 125 * 16), 0
        if self.kind == "dht22":
            return rng.randint(-400, 800), rng.randint(1, 1000)
        return rng.randint(100, WARMEST_MV), 0

    @property
    def truth(self) -> dict[str, float]:
        """Return the true value of each quantity: temperature in °C, humidity in percent."""
        first, second = self._drawn
        if self.kind == "ds18b20":
            return {"temperature": first / 16}
        if self.kind == "dht22":
            return {"temperature": first / 10, "humidity": second / 10}
        return {"temperature": (first - ZERO_MV) / 10}

    @property
    def _tolerance(self) -> float:
        """Return the largest allowed error of a value. For the analogue sensor it is a little more
        than one step of the ADC.
        """
        return REFERENCE_MV / STEPS / 10 + 0.1 if self.kind == "tmp36" else _ROUNDING

    def _simulator(self, place: Path, adc_from: int) -> SimulatedBoard:
        first, second = self._drawn
        return SimulatedBoard(
            place,
            seed=self._bench.seed,
            drift=self._drift(place),
            ds18b20=first if self.kind == "ds18b20" else None,
            dht22=(first, second) if self.kind == "dht22" else None,
        )

    async def hold(self) -> None:
        await super().hold()
        await self._drive("well")

    async def put(self, state: str | int) -> int:
        await self._drive(state)
        self.look()
        return max((one.sequence for one in self.ledger.publications), default=0)

    async def _drive(self, state: str | int) -> None:
        if self.kind == "tmp36":
            await self.board.adc(0, self._drawn[0] if state == "well" else int(state))
        else:
            await self.board.command(f"sensor {self.kind} {state}")

    def heard(self, event: str, data: dict[str, Any]) -> None:
        super().heard(event, data)
        if event == "publish" and data.get("direction") == "up" and data["id"]:
            records = senml.decode(bytes.fromhex(data["payload"]))
            self._note(self._sent.sequence(data["id"]), records or ())

    def _note(self, sequence: int, records: tuple[senml.Record, ...]) -> None:
        for record in records:
            name = record.name.removeprefix(f"{self.name}:")
            if name.endswith(FAULT) and record.value is not None:
                self._faults[sequence] = int(record.value)
            elif name in self.truth:
                self._values.add(sequence)
                wrong = abs((record.value or 0) - self.truth[name]) > self._tolerance
                if wrong or record.value is None:
                    self.contradict(f"{name} is {self.truth[name]}, but was sent as {record.value}")

    def contradict(self, text: str) -> None:
        self._sent.contradict(text)

    async def says(self, number: int, after: int, within: float) -> int | None:
        return await self._first(
            lambda: [one for one, code in self._faults.items() if one > after and code == number],
            within,
        )

    async def has_value(self, after: int, within: float) -> int | None:
        return await self._first(lambda: self.values_between(after, 1 << 32), within)

    async def _first(self, found: Any, within: float) -> int | None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await wait_until(found)
        return min(found(), default=None)

    def values_between(self, after: int, before: int) -> list[int]:
        return sorted(one for one in self._values if after < one < before)
