"""Messages about boards follow Home Assistant's MQTT documentation: the device discovery payload,
and the options of the platforms sensor, binary sensor, button, number and update. If an option is
unknown, Home Assistant silently ignores the option or refuses the whole message.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mirror.discovery import (
    _UNITS,
    LEAST_EXPIRY_S,
    expiry_s,
    identifier,
    of_board,
    of_gateway,
    page_of,
)
from gateway.mirror.last import LastReadings
from gateway.payload.readings import Reading

NOW = 1_767_225_600_000_000

STATUS = Path(__file__).parents[2] / "firmware" / "README.md"
DEVICE = {"identifiers", "name", "manufacturer", "model", "sw_version", "via_device"} | {
    "configuration_url"
}
AVAILABILITY = {"availability", "availability_mode"}
TOP = {"device", "origin", "components"} | AVAILABILITY
COMMON = {"platform", "unique_id", "name", "device_class", "entity_category", "qos"}
STATE = {"state_topic", "value_template"}
COMMAND = {"command_topic", "command_template", "retain"}
PLATFORMS = {
    "sensor": STATE
    | {"unit_of_measurement", "state_class", "expire_after", "json_attributes_topic"},
    "binary_sensor": STATE | {"expire_after", "json_attributes_topic"},
    "button": COMMAND | {"payload_press"},
    "number": COMMAND | STATE | {"min", "max", "step", "mode", "unit_of_measurement"},
    "update": STATE | COMMAND | {"payload_install"},
}
NEEDED = {
    "sensor": {"state_topic"},
    "binary_sensor": {"state_topic"},
    "button": {"command_topic"},
    "number": {"command_topic"},
    "update": {"state_topic"},
}
TABLES = json.loads(Path(__file__).with_name("sensor_tables.json").read_text())
"""Home Assistant's tables of device classes (`sensor_tables.py`)."""


def check(message: Any) -> None:
    """Check that a discovery message is as documented."""
    json.dumps(message, allow_nan=False)
    assert message.keys() <= TOP
    assert {"device", "origin", "components"} <= message.keys()
    assert message["device"].keys() <= DEVICE
    assert message["device"]["identifiers"]
    assert message["origin"].keys() >= {"name"}
    assert message.get("availability_mode", "latest") in ("all", "any", "latest")
    check_availability(message)
    components = message["components"]
    assert len({item["unique_id"] for item in components.values()}) == len(components)
    for item in components.values():
        platform = item["platform"]
        if "availability" in item:
            check_availability(item)
        assert item.keys() <= COMMON | AVAILABILITY | PLATFORMS[platform]
        assert item.keys() >= NEEDED[platform] | {"unique_id", "name"}
        assert item.get("entity_category") in (None, "diagnostic", "config")
        assert platform in ("button", "number") or item.get("entity_category") != "config"
        kind = item.get("device_class")
        if platform in ("sensor", "number") and kind is not None:
            assert item.get("unit_of_measurement") in TABLES["units"][kind]
        if platform == "sensor" and kind is not None and "state_class" in item:
            assert item["state_class"] in TABLES["state_classes"][kind]


def check_availability(item: Any) -> None:
    for found in item["availability"]:
        assert {"topic"} <= found.keys() <= {"topic", "value_template"}


def board(folder: Path, *readings: Reading, **more: Any) -> Any:
    last = LastReadings(folder)
    for reading in readings:
        last.take("roof-1", reading)
    message = of_board("site-1", "roof-1", last.of("roof-1"), "readings", **more)
    check(message)
    return message


def reading(name: str, value: float | str | bool, unit: str | None = None) -> Reading:
    return Reading(name, value, unit, NOW, "synchronised", None, NOW)


def test_a_quantity_without_a_value_is_unavailable_and_not_its_board(tmp_path: Path) -> None:
    fault = Reading("temperature.fault", 1, None, NOW, "synchronised", None, NOW, True)
    message = board(tmp_path, reading("temperature", 20.5, "Cel"), reading("voltage", 3.3), fault)
    temperature = message["components"]["temperature"]
    assert temperature["availability"][:2] == message["availability"]
    assert temperature["availability"][2] == {
        "topic": "readings/roof-1/temperature.fault",
        "value_template": "{{ 'offline' if value_json.value else 'online' }}",
    }
    assert temperature["availability_mode"] == "all"
    others = [item for item in message["components"].values() if item is not temperature]
    assert not any("availability" in item for item in others)


@pytest.mark.parametrize("unit", _UNITS)
def test_each_unit_is_one_that_home_assistant_takes(tmp_path: Path, unit: str) -> None:
    """`check` compares the reading's device class, unit and state class with Home Assistant's
    tables.
    """
    component = board(tmp_path, reading("x", 1.5, unit))["components"]["x"]
    assert component["state_class"] in ("measurement", "total")
    assert _UNITS[unit][1] == component.get("device_class")


def test_records_of_a_status_have_names(tmp_path: Path) -> None:
    names = re.findall(
        r"`(\w+)`",
        "".join(
            line.partition(" | ")[0]
            for line in STATUS.read_text().splitlines()
            if line[:3] == "| `"
        ),
    )
    named = {"boot", "cause", "denied", "worn", "life", "aside", "bad", "again"}
    assert named <= {*names}, "the firmware's guide has another table"
    readings = [replace(reading(name, 1.0), status=True) for name in sorted(named)]
    components = board(tmp_path, *readings)["components"]
    for name in named:
        assert " " in components[name]["name"] or components[name]["name"] == "Starts"
    assert board(tmp_path, reading("cause", 1.0))["components"]["cause"]["name"] == "cause"


def test_devices_link_to_the_page(tmp_path: Path) -> None:
    message = board(tmp_path, reading("a", 1.0), page="http://pi:8080/")
    assert message["device"]["configuration_url"] == "http://pi:8080/#/board/roof-1"
    own = of_gateway("site-1", "readings", "http://pi:8080")
    check(own)
    assert own["device"]["configuration_url"] == "http://pi:8080"
    assert page_of("https://pi", "a/b c") == "https://pi/#/board/a%2Fb%20c"


def test_the_gateway_is_a_device() -> None:
    message = of_gateway("site-1", "readings")
    check(message)
    assert message["device"]["identifiers"] == ["onceway_site-1"]


def test_a_board_is_a_device_behind_it(tmp_path: Path) -> None:
    message = board(tmp_path, reading("adc0", 1.5, "V"), model="Arduino Uno R3", firmware="ab" * 32)
    assert message["device"] == {
        "identifiers": ["onceway_site-1_roof-1"],
        "name": "roof-1",
        "manufacturer": "Onceway",
        "model": "Arduino Uno R3",
        "sw_version": "ab" * 6,
        "via_device": "onceway_site-1",
    }
    assert message["availability"] == [
        {"topic": "readings/$state"},
        {"topic": "readings/roof-1/$state"},
    ]
    assert message["components"].keys() == {
        "adc0",
        "command_identify",
        "command_reboot",
        "command_interval",
        "update_firmware",
    }
    update = message["components"]["update_firmware"]
    assert update["availability"] == message["availability"][:1], "shown while the board is silent"


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (1.5, "V", {"platform": "sensor", "device_class": "voltage", "state_class": "measurement"}),
        (1.5, "Cel", {"device_class": "temperature", "unit_of_measurement": "°C"}),
        (1.5, "%RH", {"device_class": "humidity", "unit_of_measurement": "%"}),
        (1.5, "kWh", {"device_class": "energy", "state_class": "total"}),
        (1.5, "odd", {"unit_of_measurement": "odd"}),
        (1.5, None, {"state_class": "measurement"}),
        (True, None, {"platform": "binary_sensor"}),
        ("open", None, {"platform": "sensor"}),
    ],
)
def test_a_value_is_shown_as_what_it_is(
    tmp_path: Path, value: float | str | bool, unit: str | None, expected: dict[str, str]
) -> None:
    component = board(tmp_path, reading("x", value, unit))["components"]["x"]
    assert component.items() >= expected.items()
    assert ("state_class" in component) == (type(value) is float)
    assert ("unit_of_measurement" in component) == (unit is not None)


def test_a_value_expires_after_three_of_the_longest_gaps(tmp_path: Path) -> None:
    last = LastReadings(tmp_path)
    for minutes in (0, 1, 2):
        last.take(
            "roof-1", Reading("a", 1.0, None, NOW, "unknown", None, NOW + minutes * 60_000_000)
        )
    series = last.of("roof-1")["a"]
    assert expiry_s(series) == LEAST_EXPIRY_S
    day = Reading("a", 1.0, None, NOW, "unknown", None, NOW + 86_400_000_000)
    last.take("roof-1", day)
    assert 3 * 86_000 < expiry_s(series) <= 6 * 86_400
    assert board(tmp_path, day)["components"]["a"]["expire_after"] == LEAST_EXPIRY_S
    assert "expire_after" not in board(tmp_path, day, expire_after_s=0)["components"]["a"]
    assert board(tmp_path, day, expire_after_s=7)["components"]["a"]["expire_after"] == 7


@given(st.lists(st.text(min_size=1, max_size=20), min_size=2, max_size=2, unique=True))
def test_identifiers_fit_into_discovery_topics_and_differ(names: list[str]) -> None:
    found = [identifier("site-1", name) for name in names]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", one) for one in found)
    assert found[0] != found[1]


def test_no_reading_stands_where_a_command_does(tmp_path: Path) -> None:
    message = board(tmp_path, reading("command_identify", 1.0), reading("update_firmware", 1.0))
    assert message["components"]["command_identify"]["platform"] == "button"
    assert len(message["components"]) == 5
