"""A real Home Assistant with a gateway: entities appear, values change, and a dead board becomes
unavailable. Its user has the rights that `gateway/docs/home-assistant.md` asks for.
"""

import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.access.users import Users
from gateway.boards.admission import FILE
from provisioning.identity import Identity
from provisioning.registry import Registry
from tests.links.board import Pty, until
from tests.mirror.home_assistant import (
    FIRST_START_S,
    HomeAssistant,
    State,
    install,
    interpreter,
)
from tests.service.boards import Sensor, configuration
from tests.service.process import GatewayProcess, free_port, gateway

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

USER, PASSWORD = "home-assistant", "correct horse"
KEY = bytes(range(16))
TEXT = f"""
[home_assistant]
expire_after_s = 0

[[acl]]
users = ["{USER}"]
read = ["homeassistant/#", "readings/#"]
write = ["homeassistant/status", "commands/+", "commands/+/update"]

[[acl]]
users = [""]
read = ["commands/#"]
write = ["sensors/#"]
"""


@pytest.fixture
def lines() -> Iterator[list[Pty]]:
    found = [Pty(), Pty()]
    yield found
    for line in found:
        if line.master >= 0:
            os.close(line.master)


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[HomeAssistant]:
    if (python := interpreter()) is None:
        pytest.skip("Home Assistant needs Python 3.13, which Debian 13 has, and this machine not")
    install(python)
    found = HomeAssistant(tmp_path / "home")
    yield found
    await found.end(signal.SIGKILL)


async def greet(running: GatewayProcess, lines: list[Pty]) -> list[Sensor]:
    sensors = [Sensor(lines[0], "roof-1", KEY), Sensor(lines[1], "cellar-2", KEY)]
    for sensor in sensors:
        await sensor.connect()
    return sensors


def failed(state: State | None) -> bool:
    """Return whether the state of an update entity says that the update has failed."""
    return state is not None and str(state["attributes"].get("release_summary")).startswith(
        "The update failed"
    )


async def test_boards_are_devices_of_a_real_home_assistant(
    tmp_path: Path, lines: list[Pty], home: HomeAssistant
) -> None:
    (tmp_path / "data").mkdir()
    Users(tmp_path / "data" / "users").add(USER, PASSWORD)
    registry = Registry(tmp_path / "data" / FILE)
    for name, line in zip(("roof-1", "cellar-2"), lines, strict=True):
        registry.finish(registry.begin(Identity(name, KEY), "uno", line.path), "ab" * 32)
    file = configuration(tmp_path, lines, TEXT)
    file.write_text(file.read_text().replace("127.0.0.1:0", f"127.0.0.1:{free_port()}"))
    async with gateway(tmp_path, "--config", str(file)) as running:
        roof, cellar = await greet(running, lines)
        await roof.measure(3.25)
        await cellar.measure(21.5, "temperature", "Cel")
        await home.start(FIRST_START_S)
        await home.begin()
        said = await home.add_mqtt(running.port, USER, "wrong")
        assert said["errors"] == {"base": "cannot_connect"}
        said = await home.add_mqtt(running.port, USER, PASSWORD)
        assert said["type"] == "create_entry", said

        voltage = await home.is_("sensor.roof_1_adc0", "3.25")
        assert voltage["attributes"]["unit_of_measurement"] == "V"
        assert voltage["attributes"]["quality"] == "synchronised"
        await home.is_("sensor.cellar_2_temperature", "21.5")
        await home.is_("binary_sensor.site_1_problem", "off")
        update = await home.is_("update.roof_1_firmware", "on")
        assert update["attributes"]["installed_version"] == "ab" * 6
        await home.call("update/install", "update.roof_1_firmware")
        await running.logged(": to be updated, as the user ")
        await home.until("update.roof_1_firmware", failed)

        await roof.connect()  # the update used the port, so the board greets again
        await roof.measure(3.5)
        await home.is_("sensor.roof_1_adc0", "3.5")
        await cellar.measure(40.0, "humidity", "%RH")
        await home.is_("sensor.cellar_2_humidity", "40.0")

        await roof.subscribe("commands/roof-1")
        await home.call("button/press", "button.roof_1_identify")
        await until(lambda: b"identify" in roof.board.received)
        await home.call("number/set_value", "number.roof_1_interval", value=15)
        await until(lambda: b"interval 15 s" in roof.board.received)

        roof.unplug()
        await home.is_("sensor.roof_1_adc0", "unavailable")
        await home.is_("sensor.cellar_2_humidity", "40.0")

        await home.end()
        await cellar.measure(41.0, "humidity", "%RH")
        await home.start()  # the gateway sends everything again at Home Assistant's birth message
        await home.is_("sensor.cellar_2_humidity", "41.0")
        await home.is_("sensor.roof_1_adc0", "unavailable")

        registry.revoke("roof-1")
        await home.until("sensor.roof_1_adc0", lambda found: found is None)
        assert home.complaints() == []
        await running.end(signal.SIGKILL)
        await home.is_("sensor.cellar_2_humidity", "unavailable")
    async with gateway(tmp_path, "--config", str(file)):
        await home.until(
            "binary_sensor.site_1_problem",
            lambda found: found is not None and found["state"] in ("on", "off"),
        )
