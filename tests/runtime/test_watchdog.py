"""Systemd's watchdog gets its messages while all parts of the gateway work, and none while a part
hangs. The gateway runs as a process with a socket like systemd's (sd_notify(3)).
"""

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from gateway.links import serial_port
from gateway.links.greeter import Greeter
from gateway.links.serial_port import SerialListener
from gateway.mqtt.packets import Connect, Publish
from gateway.runtime import watchdog as module
from gateway.runtime.watchdog import Watchdog, interval_s
from tests.links.board import until
from tests.service.process import GatewayProcess, spooling, start
from tests.service.test_bad_disk import build, faulty
from tests.service.wire import wire

INTERVAL_S = 4
HANGS_ON_SIGNAL = (
    "import signal, time; signal.signal(signal.SIGUSR1, lambda *_: time.sleep(600));"
    " from gateway.commands.main import main; main()"
)


class Supervisor:
    """The receiver of messages to systemd."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    async def hears(self, wanted: bytes, within: float = 30) -> bool:
        """Return whether this message arrives within `within` seconds."""
        end = time.monotonic() + within
        while (left := end - time.monotonic()) > 0:
            self._channel.settimeout(left)
            try:
                if await asyncio.to_thread(self._channel.recv, 1000) == wanted:
                    return True
            except TimeoutError:
                break
        return False

    async def would_end_it(self) -> bool:
        """Return whether systemd would end the gateway, because a whole interval passes without a
        message. Give up after 60 messages.
        """
        for _ in range(60):
            if not await self.hears(b"WATCHDOG=1", INTERVAL_S):
                return True
        return False


@contextmanager
def supervisor(path: Path) -> Iterator[Supervisor]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(path))
        yield Supervisor(channel)


@asynccontextmanager
async def watched(
    folder: Path, program: tuple[str, ...] = ("-m", "gateway"), **env: str
) -> AsyncIterator[tuple[GatewayProcess, Supervisor]]:
    with supervisor(folder / "notify") as systemd:
        env |= {
            "NOTIFY_SOCKET": str(folder / "notify"),
            "WATCHDOG_USEC": str(INTERVAL_S * 1_000_000),
        }
        running = await start(*spooling(folder / "data"), env=env, program=program)
        try:
            await running.ready()
            assert await systemd.hears(b"READY=1")
            for _ in range(3):
                assert await systemd.hears(b"WATCHDOG=1", INTERVAL_S)
            yield running, systemd
        finally:
            if running.process.returncode is None:
                await running.end(signal.SIGKILL)


async def test_a_loop_that_hangs_feeds_nothing_and_says_where_it_stands(tmp_path: Path) -> None:
    async with watched(tmp_path, ("-c", HANGS_ON_SIGNAL)) as (running, systemd):
        running.process.send_signal(signal.SIGUSR1)
        assert await systemd.would_end_it()
        assert await running.end(signal.SIGABRT) == -signal.SIGABRT  # the signal that systemd sends
        assert any("Fatal Python error: Aborted" in line for line in running.log)
        assert any("<lambda>" in line for line in running.log)


async def test_a_writer_that_hangs_in_its_disk_stops_the_feeding(tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    async with watched(tmp_path, **faulty(build("faults", tmp_path), plan)) as (running, systemd):
        plan.write_text("delay 600000")
        async with wire(running.port, Connect("c")) as publisher:
            publisher.send(Publish("t", b"x", 1, 7))
            assert await systemd.would_end_it()
            await running.logged("store's writer: no progress for")


async def test_a_disk_that_fails_is_no_reason_to_start_again(tmp_path: Path) -> None:
    """The gateway tries to write again each second. A restart would not repair the disk, but would
    disconnect all clients.
    """
    plan = tmp_path / "plan"
    async with watched(tmp_path, **faulty(build("faults", tmp_path), plan)) as (running, systemd):
        plan.write_text("eio")
        async with wire(running.port, Connect("c")) as publisher:
            publisher.send(Publish("t", b"x", 1, 7))
            await running.logged("the store accepts no data")
            for _ in range(2 * 4):
                assert await systemd.hears(b"WATCHDOG=1", INTERVAL_S)


async def test_a_part_that_stands_still_stops_the_feeding_until_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fed: list[str] = []
    monkeypatch.setattr(module, "notify", fed.append)
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    stands = {"links": 0.0}
    watchdog = Watchdog({"links": lambda: stands["links"]})
    await until(lambda: len(fed) > 2)
    stands["links"] = 7.0
    await until(lambda: "links: no progress for 7 s" in caplog.text)
    before = len(fed)
    await asyncio.sleep(0.2)  # time for eight checks of the watchdog
    assert len(fed) == before
    stands["links"] = 0.0
    await until(lambda: len(fed) > before)
    watchdog.close()


async def test_a_look_for_ports_that_fails_is_seen_and_the_next_one_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serial_port, "SCAN_INTERVAL", 0.01)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    listener = SerialListener(lambda transport: None, "/dev/none*", Greeter(1))  # type: ignore[arg-type, return-value]
    await listener.start()
    try:
        with monkeypatch.context() as broken:
            broken.setattr(serial_port.glob, "glob", lambda path: 1 // 0)
            await until(lambda: listener.stalled_s > 0.1)
        await until(lambda: listener.stalled_s < 0.05)
    finally:
        await listener.close()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "60000000"}, 60.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_only_the_asked_service_feeds_the_watchdog(
    environment: dict[str, str], expected: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variables may be meant for another process (sd_watchdog_enabled(3))."""
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert interval_s() == expected
