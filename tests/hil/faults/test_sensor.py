"""Faults of sensors: the input that the rig sets, the report that the board must send, and the
values that contradict the fault.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from gateway.payload import senml
from hil.bench.bench import Bench
from hil.bench.files import load
from hil.bench.plan import plan
from hil.boards.exchange import Gateway, converse
from hil.boards.simulator import SimulatedBoard
from hil.devices.sensor import FOLDER, SKETCHES
from hil.faults import KINDS, AnyKind, Fault
from hil.faults.sensor import SensorKind
from tests.firmware.bare import named

SENSORS = {name: kind for name, kind in KINDS.items() if issubclass(kind, SensorKind)}
CASES = [(name, sensor) for name, kind in SENSORS.items() for sensor in sorted(kind.sensors)]
FAULT = Fault("b/x-1", "x", "b board", "x", "sampled b", 3)
NEWEST, TOLD, WELL, VALUE = 10, 12, 15, 16


class FakeSensor:
    """A board that reports a fault and its end, and sends the given values."""

    def __init__(
        self, number: int | None, well: int | None = WELL, values: tuple[int, ...] = (9, 11, VALUE)
    ) -> None:
        self.kind = "ds18b20"
        self.states: list[str | int] = []
        self.lies: list[str] = []
        self._said = {number: TOLD, 0: well}
        self._values = values

    async def put(self, state: str | int) -> int:
        self.states.append(state)
        return NEWEST

    async def says(self, number: int, after: int, within: float) -> int | None:
        return self._said.get(number)

    async def has_value(self, after: int, within: float) -> int | None:
        return next((one for one in self._values if one > after), None)

    def values_between(self, after: int, before: int) -> list[int]:
        return [one for one in self._values if after < one < before]

    def contradict(self, text: str) -> None:
        self.lies.append(text)


async def struck(sensor: FakeSensor) -> Any:
    kind: Any = TypeAdapter(AnyKind).validate_python({"kind": "bus-contention", "seconds": 0})
    system: Any = SimpleNamespace(sensor=lambda fault: sensor)
    return await kind.inject(FAULT, system)


async def test_a_reported_fault_without_values_has_happened() -> None:
    sensor = FakeSensor(7)
    evidence = await struck(sensor)
    assert evidence.data == {"fault_number": 7, "told": TOLD, "well": WELL}
    assert (sensor.states, sensor.lies) == (["contention", "well"], [])


@pytest.mark.parametrize(
    ("sensor", "text"),
    [
        (FakeSensor(None), "but fault 7 was not reported"),
        (FakeSensor(6), "but fault 7 was not reported"),
        (FakeSensor(7, None), "does not send values again"),
        (FakeSensor(7, values=(9,)), "does not send values again"),
        (FakeSensor(7, values=(12, VALUE)), "but publication 12 has a value"),
        (FakeSensor(7, values=(14, VALUE)), "but publication 14 has a value"),
    ],
)
async def test_silence_and_lies_of_a_board_contradict(sensor: FakeSensor, text: str) -> None:
    await struck(sensor)
    [said] = sensor.lies
    assert text in said


def test_each_fault_strikes_only_sensors_that_can_have_it() -> None:
    made = plan(load("sensors"))
    struck = {(fault.id.split("/")[1].rpartition("-")[0], fault.target) for fault in made.faults}
    assert struck == {(name, f"{sensor}-1") for name, sensor in CASES}
    for kind in SENSORS.values():
        assert kind.sensors == kind.states.keys()


@pytest.mark.parametrize(
    ("bench", "text"),
    [
        ({"boards": 1}, 'bus-contention needs a .* with sensor = "ds18b20"'),
        ({"board": [{"sensor": "dht22"}]}, "needs a .* with sensor"),
        ({"board": [{"sensor": "x"}]}, "ds18b20"),
        ({"board": [{"sensor": "dht22", "sketch": "a.hex"}]}, "either a `port`"),
        ({"board": [{"sensor": "dht22", "kind": "nano"}]}, "simulated Uno"),
    ],
)
def test_a_fault_without_its_sensor_is_refused(bench: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        Bench.model_validate({"title": "t", "fault": [{"kind": "bus-contention"}], **bench})


@pytest.mark.sim
@pytest.mark.parametrize(("name", "sensor"), CASES)
async def test_the_example_reports_each_fault_that_the_rig_drives(
    name: str, sensor: str, tmp_path: Path
) -> None:
    state, number = SENSORS[name].states[sensor]
    gateway = Gateway()
    async with SimulatedBoard(
        tmp_path / "board",
        firmware=named(FOLDER / f"{SKETCHES[sensor]}.hex", "uno", tmp_path),
        speed="step",
        ds18b20=320 if sensor == "ds18b20" else None,
        dht22=(200, 400) if sensor == "dht22" else None,
    ) as board:
        await (board.adc(0, int(state)) if sensor == "tmp36" else board.sensor(sensor, state))  # type: ignore[arg-type]
        await converse(board, gateway, completed=1, seconds=20)
    [(record, *_)] = [senml.decode(item.payload) for item in gateway.deliveries]
    assert (record.name, record.value) == ("roof-1:temperature.fault", number)
