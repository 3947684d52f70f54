"""The examples with every raw value of their sensors. They publish the true value, or no value and
a fault.
"""

import itertools
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.payload import senml

FIRMWARE = Path(__file__).parents[2] / "firmware"
HARNESS = Path(__file__).with_name("sketch.cpp")
LIBRARY = ("ow_bytes.c", "ow_senml.c", "ow_sensor.c", "ow_options.c")
RANGE = 4.0
Values = dict[str, float]


def thermometer(raw: int) -> Values | None:
    tenths = raw * 5000 // 1024 - 500
    return {"temperature": tenths / 10} if -405 <= tenths <= 1255 else None


def battery(raw: int) -> Values | None:
    return {"voltage": raw * 5 / 1024} if raw < 1023 else None


def ds18b20(raw: int) -> Values | None:
    return {"temperature": raw / 16} if -55 * 16 <= raw <= 125 * 16 else None


def dht22(raw: int) -> Values | None:
    fits = -400 <= raw <= 800 and abs(raw) <= 1000
    return {"temperature": raw / 10, "humidity": abs(raw) / 10} if fits else None


def measured(sketch: str, first: int, last: int, stride: int, folder: Path) -> dict[int, Values]:
    """Build an example and run it with raw values from `first` to `last`. Return the values of its
    first publication, by raw value. The values of a status are called NAME.fault. If the example
    publishes nothing, there are no values.
    """
    program, objects = folder / sketch, []
    for name in LIBRARY:
        objects.append(str(folder / f"{name}.o"))
        compile_c = ["gcc", "-O1", "-fshort-enums", f"-I{FIRMWARE / 'src'}", "-c"]
        subprocess.run([*compile_c, FIRMWARE / "src" / name, "-o", objects[-1]], check=True)
    source = FIRMWARE / "examples" / sketch / f"{sketch}.ino"
    options = [f'-DSKETCH="{source}"', f"-DFROM={first}", f"-DTO={last}", f"-DSTRIDE={stride}"]
    options += [f"-I{FIRMWARE / 'src'}", f"-I{source.parent}", "-std=gnu++11", "-fshort-enums"]
    subprocess.run(["g++", "-O1", "-w", *options, HARNESS, *objects, "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    found = {}
    for line in done.stdout.splitlines():
        raw, topic, payload = line.split()
        found[int(raw)] = {} if payload == "-" else _records(bytes.fromhex(payload))
        assert topic.endswith("/status") == any(name.endswith(".fault") for name in found[int(raw)])
    return found


def _records(payload: bytes) -> Values:
    if payload.startswith(b"{"):
        return {"opening": float(json.loads(payload)["opening"])}
    return {one.name.removeprefix("b:"): float(one.value or 0) for one in senml.decode(payload)}


@pytest.mark.parametrize(
    ("sketch", "true", "first", "last", "stride"),
    [
        ("thermometer", thermometer, 0, 1023, 1),
        ("battery", battery, 0, 1023, 1),
        ("ds18b20", ds18b20, -1000, 2100, 1),
        ("ds18b20", ds18b20, -32768, 32767, 61),
        ("dht22", dht22, -450, 1050, 1),
        ("dht22", dht22, -32768, 32767, 61),
    ],
)
def test_each_raw_value_gives_its_true_value_or_a_fault(
    sketch: str,
    true: Callable[[int], Values | None],
    first: int,
    last: int,
    stride: int,
    tmp_path: Path,
) -> None:
    found = measured(sketch, first, last, stride, tmp_path)
    assert len(found) == (last - first) // stride + 1
    names = {name for values in map(true, found) for name in values or {}}
    faults = {f"{name}.fault": RANGE for name in names}
    for raw, values in found.items():
        assert values == pytest.approx(true(raw) or faults, abs=1e-6), raw


def test_each_voltage_of_a_door_contact_is_a_state_or_a_fault(tmp_path: Path) -> None:
    """The circuit has a resistor of 10 kΩ to 5 V, and two resistors of 10 kΩ at the contact. Each
    has a tolerance of 5 %.
    """
    found = measured("own_payload", 0, 1023, 1, tmp_path)
    shorted, absent, opened = {"contact.fault": 2.0}, {"contact.fault": 1.0}, {"opening": 1.0}
    assert list(found.values()) == [shorted] * 256 + [{}] * 341 + [opened] * 256 + [absent] * 171
    for series, beside in itertools.product((9_500, 10_500), repeat=2):
        for pull in (9_500, 10_500):
            assert found[1024 * series // (series + pull)] == {}, "closed"
            assert found[1024 * (series + beside) // (series + beside + pull)] == opened
