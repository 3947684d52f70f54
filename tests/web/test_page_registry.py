"""Changes of the device registry from the page: they run one after the other, and each has a time
limit.
"""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.web import page_registry
from gateway.web.page_registry import PageRegistry


class Slow(PageRegistry):
    """A `PageRegistry` whose commands wait until the test sets `go`. ran: the devices of the
    commands that have begun.
    """

    def __init__(self, folder: Path) -> None:
        registry: Any = SimpleNamespace(registered=lambda: dict.fromkeys(("roof-7", "roof-8")))
        super().__init__(folder, registry, list)
        self.go = asyncio.Event()
        self.ran: list[str] = []

    def _asks(self, device: str) -> bool:
        return True

    async def _run(self, verb: str, device: str) -> str | None:
        self.ran.append(device)
        await self.go.wait()
        return None


async def test_second_change_waits_for_the_first(tmp_path: Path) -> None:
    slow = Slow(tmp_path)
    both = [asyncio.create_task(slow.change("otto", f"roof-{n}", "admit")) for n in (7, 8)]
    await asyncio.sleep(0)
    assert slow.ran == ["roof-7"]
    slow.go.set()
    assert await asyncio.gather(*both) == [None, None]
    assert slow.ran == ["roof-7", "roof-8"]


async def test_slow_change_is_not_reported_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_registry, "PATIENCE_S", 0.05)
    slow = Slow(tmp_path)
    said = await slow.change("otto", "roof-7", "admit")
    assert "If the list of boards does not show it" in str(said)
    async with slow._busy:
        said = await slow.change("otto", "roof-8", "admit")
    assert said == "The device registry is being changed by another user. Try again in a moment."
    slow.go.set()
    assert await slow.change("otto", "roof-8", "admit") is None
