"""A driver with Home Assistant's integration `mqtt`, without Home Assistant's web page. The driver
runs in the Python environment that `tests/mirror/home_assistant.py` makes. It publishes each
message once, with the function that automations use.
"""

import asyncio
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from homeassistant import auth, bootstrap, config_entries, core, loader
from homeassistant.components import mqtt
from homeassistant.components.mqtt import client as integration
from homeassistant.exceptions import HomeAssistantError
from homeassistant.setup import async_setup_component
from options import options, say

WINDOW = 10
integration.RECONNECT_INTERVAL_SECONDS = 1  # the default is 10
of = options()


def entry() -> dict[str, Any]:
    """Return the settings that a user enters in the integration's dialog."""
    found = {"broker": "127.0.0.1", "port": of.port, "discovery": False, "client_id": of.id}
    found["protocol"] = "5" if of.version == 5 else "3.1.1"
    if of.web:
        found |= {"transport": "websockets", "ws_path": "/mqtt", "ws_headers": {}}
    if of.tls:
        found |= {"certificate": Path(of.ca).read_text(), "tls_insecure": False}
    return found


async def start(folder: str) -> core.HomeAssistant:
    home = core.HomeAssistant(folder)
    loader.async_setup(home)
    home.config_entries = config_entries.ConfigEntries(home, {})
    await bootstrap.async_load_base_functionality(home)
    home.auth = await auth.auth_manager_from_config(home, [{"type": "homeassistant"}], [])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    page = {"server_host": "127.0.0.1", "server_port": port}
    await async_setup_component(home, "http", {"http": page})
    await home.config_entries.async_add(
        config_entries.ConfigEntry(
            data=entry(),
            discovery_keys=MappingProxyType({}),
            domain="mqtt",
            minor_version=2,
            options={},
            source="user",
            subentries_data=(),
            title="broker",
            unique_id=None,
            version=1,
        )
    )
    await home.async_start()
    await mqtt.async_wait_for_mqtt_client(home)
    return home


async def publish(home: core.HomeAssistant) -> None:
    failures = []

    async def some(numbers: Iterator[int]) -> None:
        for number in numbers:
            try:
                await mqtt.async_publish(home, of.topic, str(number), of.qos)
            except HomeAssistantError as error:
                failures.append(str(error))

    numbers = iter(range(of.count))
    try:
        async with asyncio.timeout(of.within_s), asyncio.TaskGroup() as group:
            for _ in range(WINDOW):
                group.create_task(some(numbers))
    except TimeoutError:
        failures.append("time is up")
    say(f"not published: {failures[0]}" if failures else "published")


@contextmanager
def place() -> Iterator[str]:
    """Yield a new configuration folder for Home Assistant. The integration's temporary files, such
    as certificates, are in it as well.
    """
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        Path(folder, "configuration.yaml").touch()
        yield folder


async def main() -> None:
    with place() as folder:
        home = await start(folder)
        if of.does == "subscribe":
            await mqtt.async_subscribe(home, of.topic, lambda one: say(one.payload), of.qos)
            await asyncio.sleep(4)  # time to send SUBSCRIBE, on a busy machine
            say("ready")
            await asyncio.Event().wait()
        await publish(home)
        sys.stdout.flush()
        await asyncio.sleep(1)
        await home.async_stop(force=True)


asyncio.run(main())
