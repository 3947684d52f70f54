"""The gateway reads the uplink's metrics from the disk without blocking its event loop."""

import asyncio
import threading
from pathlib import Path

import pytest

from gateway.web import uplink
from gateway.web.uplink import UplinkReader


async def test_a_disk_that_hangs_holds_back_one_thread_and_the_uplink_s_figures_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, calls = threading.Event(), []

    def read(folder: Path) -> str:
        calls.append(folder)
        answers.wait(60)
        return "read"

    monkeypatch.setattr(uplink, "read", read)
    monkeypatch.setattr(uplink, "PATIENCE_S", 0.01)
    reader = UplinkReader(tmp_path)
    for _ in range(5):
        assert await reader.state() is None
    assert calls == [tmp_path]
    answers.set()
    async with asyncio.timeout(30):
        while await reader.state() != "read":
            pass


def test_uplink_state_is_unknown_without_a_database(tmp_path: Path) -> None:
    assert uplink.read(tmp_path) is None
