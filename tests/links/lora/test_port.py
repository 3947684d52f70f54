"""A radio at a port: a modem that is missing or vanishes, the record of its airtime, and warnings
before its channel is full.
"""

import asyncio
import errno
import logging
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from gateway.links.lora import port
from gateway.links.lora.airtime import LONGEST, Modulation
from gateway.links.lora.exchange import Radio
from gateway.links.lora.frames import Hello, Welcome
from gateway.links.lora.ledger_file import Ledgers
from gateway.links.lora.plan import most_heard
from gateway.links.lora.port import CALM, HOUR, NEAR, Limit, LoraListener, Settings
from gateway.links.transport import Receiver, Transport
from gateway.links.tty import Tty
from gateway.system.regions import EU868
from hil.air.rylr998 import Modem
from tests.links.board import Pty, until
from tests.links.lora.test_station import KEYS, NETWORK
from tests.links.lora.tnc import Tnc

FACTOR = 12


def nobody(transport: Transport) -> Receiver:
    raise AssertionError(transport.peer)


@pytest.fixture
def line() -> Pty:
    return Pty()


@asynccontextmanager
async def listening(path: str, record: Path, **more: Any) -> AsyncIterator[LoraListener]:
    """Run a listener. more: in place of its settings, parameters and executor in these tests."""
    options = {"key": lambda number: None, "name": lambda number: None, "utc": lambda: 0.0}
    settings = (EU868, EU868.frequency, more.pop("factor", FACTOR), 14, NETWORK)
    modem = more.pop("modem", Radio.KISS)
    with ThreadPoolExecutor(1) as disk:
        found = LoraListener(
            nobody,
            Settings(path, modem, *settings),
            machine="machine",
            record=record,
            **{"disk": disk} | options | more,
        )
        await found.start()
        yield found
        await found.close()


@pytest.fixture
async def listener(tmp_path: Path, line: Pty) -> AsyncIterator[LoraListener]:
    async with listening(line.path, tmp_path / "airtime.json") as found:
        yield found
    line.unplug()


def serve(line: Pty, tnc: Tnc) -> None:
    """Let the modem answer at the other end of the line."""

    def answer() -> None:
        with suppress(OSError):  # no program has the port open
            tnc.feed(os.read(line.master, 4096))
            say(line, tnc)

    asyncio.get_running_loop().add_reader(line.master, answer)


def say(line: Pty, tnc: Tnc) -> None:
    os.write(line.master, tnc.out)
    tnc.out = b""


async def test_load_near_what_the_channel_carries_is_warned_of_once(
    line: Pty, listener: LoraListener, caplog: pytest.LogCaptureFixture
) -> None:
    """Frames of neighbours count, too, because they also cause collisions."""
    tnc = Tnc()
    serve(line, tnc)
    await until(lambda: listener.status.told)
    workable = most_heard(FACTOR, Radio.KISS) * HOUR
    each = Modulation(FACTOR).airtime(LONGEST)
    enough = int(NEAR * workable / each) + 1
    for number in range(1, enough + 3):
        before = listener.status.load
        tnc.hear(bytes(LONGEST), 20, -90)
        say(line, tnc)
        await until(lambda before=before: listener.status.load > before)
        assert len(listener.status.warnings) == (number >= enough), number
    warned = [item for item in caplog.records if item.levelno == logging.WARNING]
    (warning,) = [item.getMessage() for item in warned]
    assert f"carries at SF{FACTOR}" in warning
    assert "`onceway radio plan` says" in warning
    assert listener.status.load == pytest.approx((enough + 2) * each, rel=1e-3)
    assert listener.status.workable == workable


def test_airtime_warning_repeats_only_after_a_calm_time() -> None:
    limit = Limit()
    shares = [NEAR - 0.01, NEAR, 1.1, CALM + 0.01, NEAR, CALM - 0.01, NEAR - 0.01, NEAR]
    assert [limit.comes_near(share) for share in shares] == [
        *(False, True, False, False, False),
        *(False, False, True),
    ]


@pytest.mark.parametrize("call", ["_on_readable", "_on_timer", "_on_wake", "_on_recorded"])
async def test_after_an_error_of_ours_a_radio_is_opened_again(
    call: str,
    line: Pty,
    listener: LoraListener,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def boom(*args: object) -> None:
        raise ArithmeticError(f"boom in {call}")

    monkeypatch.setattr(port, "RETRY_S", 0.05)
    serve(line, Tnc())
    await until(lambda: listener.status.told)
    with monkeypatch.context() as patch:
        patch.setattr(LoraListener, call, boom)
        listener._do(getattr(listener, call))
        assert not listener.status.is_open
        assert "internal error" in (listener.status.problem or "")
    await until(lambda: listener.status.is_open)
    assert "internal error" in caplog.text


def gone(tty: Tty, data: bytes) -> int:
    raise OSError(errno.EIO, "Input/output error")


async def test_a_modem_that_is_missing_is_reported_once_and_opened_when_it_comes(
    line: Pty, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def opening(path: str, baud: int) -> Tty:
        opened.append(path)
        return Tty(path, baud)

    monkeypatch.setattr(port, "RETRY_S", 0.01)
    monkeypatch.setattr(port, "Tty", opening)
    path = tmp_path / "modem"
    async with listening(str(path), tmp_path / "airtime.json") as listener:
        await until(lambda: len(opened) > 3)
        status = listener.status
        assert (status.is_open, status.told) == (False, "")
        assert (status.problem or "").startswith("there is no such serial port. Plug the board in")
        serve(line, Tnc())
        path.symlink_to(line.path)
        await until(lambda: listener.status.told)
        assert (listener.status.is_open, listener.status.problem) == (True, None)
    assert caplog.text.count("there is no such serial port") == 1
    line.unplug()


async def test_a_modem_that_takes_at_commands_is_set_up_through_its_port(
    line: Pty, tmp_path: Path
) -> None:
    modem = Modem(lambda data: os.write(line.master, data) and None, lambda text: None)

    asyncio.get_running_loop().add_reader(
        line.master, lambda: modem.feed(os.read(line.master, 4096))
    )
    record = tmp_path / "airtime.json"
    async with listening(line.path, record, modem=Radio.RYLR998, factor=9) as listener:
        await until(lambda: listener.status.told)
        assert listener.status.told.startswith("RYLR998, firmware")
        assert modem.settings[b"PARAMETER"] == b"9,7,1,8"
    line.unplug()


async def test_a_port_that_takes_a_few_bytes_at_a_time_loses_none(
    line: Pty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Tty.write
    monkeypatch.setattr(Tty, "write", lambda tty, data: write(tty, data[:3]))
    tnc = Tnc()
    serve(line, tnc)
    async with listening(line.path, tmp_path / "airtime.json", key=KEYS.get) as listener:
        await until(lambda: listener.status.told)
        tnc.hear(Hello(NETWORK, 3, 1, 0, 0, 1, 96).signed(KEYS[3], 1).to_bytes(), 20, -90)
        say(line, tnc)
        await until(lambda: tnc.pending)
        assert tnc.pending is not None
        assert len(tnc.pending) == Welcome.SIZE
    line.unplug()


async def test_a_port_that_fails_twice_at_once_is_lost_once_and_opened_again(
    line: Pty, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(port, "RETRY_S", 0.01)
    serve(line, Tnc())
    with monkeypatch.context() as patch:
        patch.setattr(Tty, "write", gone)
        async with listening(line.path, tmp_path / "airtime.json") as listener:
            listener._flush([])
            await until(lambda: listener.status.problem)
            assert (listener.status.problem or "").startswith("gone (Input/output error)")
            patch.undo()
            await until(lambda: listener.status.is_open)
    assert caplog.text.count("gone (Input/output error)") == 1
    line.unplug()


async def test_a_listener_that_closes_while_its_port_fails_stays_closed(
    line: Pty, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The listener of the new configuration opens this port."""
    monkeypatch.setattr(Tty, "write", gone)
    async with listening(line.path, tmp_path / "airtime.json") as listener:
        pass
    await asyncio.sleep(0)
    assert listener._again is None
    assert not caplog.records


async def test_an_error_of_ours_while_a_radio_is_closed_keeps_it_from_no_opening(
    line: Pty,
    listener: LoraListener,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    close = LoraListener._close_port

    def boom(listener: LoraListener) -> None:
        close(listener)
        raise ArithmeticError("boom while it is closed")

    def fail() -> None:
        raise ArithmeticError("boom before that")

    monkeypatch.setattr(port, "RETRY_S", 0.01)
    serve(line, Tnc())
    await until(lambda: listener.status.told)
    with monkeypatch.context() as patch:
        patch.setattr(LoraListener, "_close_port", boom)
        for _ in range(2):
            listener._do(fail)
    assert "boom before that" in caplog.text
    assert "radio not closed: internal error (ArithmeticError: boom while" in caplog.text
    await until(lambda: listener.status.is_open)
    await asyncio.sleep(2 * port.RETRY_S)
    assert listener.status.problem is None, "it was opened once"


# -- the record of airtime


async def test_radio_is_silent_while_its_record_cannot_be_written(
    line: Pty, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "RETRY_S", 0.02)
    tnc = Tnc()
    serve(line, tnc)
    record = tmp_path / "card" / "airtime.json"
    async with listening(line.path, record, key=KEYS.get) as listener:
        await until(lambda: listener.status.told and listener.status.problem)
        text = "the record of airtime cannot be written: "
        assert (listener.status.problem or "").startswith(text)
        assert not listener.status.is_open
        tnc.hear(Hello(NETWORK, 3, 1, 0, 0, 1, 96).signed(KEYS[3], 1).to_bytes(), 20, -90)
        say(line, tnc)
        await until(lambda: listener.status.counts.get("greetings"))
        assert tnc.pending is None
        record.parent.mkdir()
        await until(lambda: "can be written again, so the radio may send" in caplog.text)
        assert (listener.status.is_open, listener.status.problem) == (True, None)
        await until(lambda: tnc.pending)
        assert record.exists()
    line.unplug()


@pytest.mark.parametrize(
    ("unreadable", "said"),
    [
        ("airtime.json", "airtime.json: cannot be read (Is a directory)"),
        ("airtime.count", "cannot read the number of the newest record (Is a directory)"),
    ],
)
async def test_unreadable_record_counts_as_an_hour_that_is_used_up(
    unreadable: str, said: str, line: Pty, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record = tmp_path / "airtime.json"
    ledgers = Ledgers(EU868, "machine", None, 0.0)
    record.write_bytes(ledgers.ask("P", 0.0, 0.0))
    (tmp_path / unreadable).unlink(missing_ok=True)
    (tmp_path / unreadable).mkdir()
    async with listening(line.path, record) as listener:
        assert listener.status.used == pytest.approx(listener.status.limit)
    assert said in caplog.text
    line.unplug()


async def test_a_record_that_is_not_written_before_the_end_is_no_error(
    line: Pty, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The executor of the gateway is shut down while the write waits for its turn."""
    disk, busy = ThreadPoolExecutor(1), Event()
    disk.submit(busy.wait)
    async with listening(line.path, tmp_path / "airtime.json", disk=disk) as listener:
        disk.shutdown(wait=False, cancel_futures=True)
        busy.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert listener.status.problem is None
    assert not caplog.records
    assert not (tmp_path / "airtime.json").exists()
    line.unplug()
