"""A radio at a port logs a warning before its channel is full, once for as long as the channel is
that busy.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.links.lora import port
from gateway.links.lora.airtime import LONGEST, Modulation
from gateway.links.lora.exchange import Radio
from gateway.links.lora.plan import most_heard
from gateway.links.lora.port import CALM, HOUR, NEAR, Limit, LoraListener, Settings
from gateway.links.transport import Receiver, Transport
from gateway.system.regions import EU868
from tests.links.board import Pty, until
from tests.links.lora.tnc import Tnc

FACTOR = 12


def nobody(transport: Transport) -> Receiver:
    raise AssertionError(transport.peer)


@pytest.fixture
def line() -> Pty:
    return Pty()


@pytest.fixture
async def listener(tmp_path: Path, line: Pty) -> AsyncIterator[LoraListener]:
    with ThreadPoolExecutor(1) as disk:
        found = LoraListener(
            nobody,
            Settings(line.path, Radio.KISS, EU868, EU868.frequency, FACTOR, 14, 7),
            key=lambda number: None,
            name=lambda number: None,
            utc=lambda: 0.0,
            machine="machine",
            record=tmp_path / "airtime.json",
            disk=disk,
        )
        await found.start()
        yield found
        await found.close()
        line.unplug()


def serve(line: Pty, tnc: Tnc) -> None:
    """Let the modem answer at the other end of the line."""

    def answer() -> None:
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
