"""Faults of a site of several gateways."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from hil.faults import Fault
from hil.faults.gateway import UplinkKill
from hil.faults.site import BoardRoams, RollingRestart

ROAMS = Fault("lora-1/board-roams-1", "board-roams", "lora-1 way", "t", "sampled lora-1", 3)
ATTIC, BARN = "attic", "barn"
NEXT = {ATTIC: BARN, BARN: ATTIC}


class Roamer:
    """A board that has met no gateway until `taken` is set. arrives: whether the board then reaches
    the gateway to which the rig moves it.
    """

    def __init__(self, arrives: bool) -> None:
        self.gateway = ATTIC  # the gateway of the plan
        self.arrives = arrives
        self.taken = asyncio.Event()
        self.roamed: list[str] = []

    async def met(self) -> None:
        await self.taken.wait()

    async def roam(self, gateway: str, within: float) -> bool:
        self.roamed.append(gateway)
        if not self.arrives:
            raise TimeoutError
        return True


def system_of(board: Roamer, process_lock: asyncio.Lock) -> Any:
    return SimpleNamespace(
        roamer=lambda name: board,
        site=SimpleNamespace(process_lock=process_lock),
        look=lambda: 7,
        gateway_of=lambda name: board.gateway,
        next_gateway=NEXT.__getitem__,
    )


async def test_a_rolling_restart_says_that_it_excuses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []

    class Running:
        async def stop(self) -> int:
            done.append("stop")
            return 0

    class Alive:
        running: ClassVar = {"uplink": Running(), "gateway": Running()}
        folder = SimpleNamespace(data=Path("attic"))

        async def start_gateway(self) -> None:
            done.append("gateway")

        async def start_uplink(self) -> None:
            done.append("uplink")

    async def nobody(folders: object) -> list[str]:
        return []

    monkeypatch.setattr("hil.faults.site.wait_for_contact", nobody)
    site = SimpleNamespace(process_lock=asyncio.Lock())
    system = SimpleNamespace(alive={ATTIC: Alive()}, site=site, look=lambda: 7)
    fault = Fault("gateway/rolling-restart-1", "rolling-restart", "gateway", "t", "spooled", 3)
    evidence = await RollingRestart(kind="rolling-restart").inject(fault, cast(Any, system))
    assert evidence is not None
    assert evidence.data["excuses"] is False
    assert done == ["stop", "stop", "gateway", "uplink"]


@pytest.mark.parametrize("arrives", [True, False])
async def test_a_board_roams_from_the_gateway_that_has_it_to_the_next(arrives: bool) -> None:
    board, process_lock = Roamer(arrives), asyncio.Lock()
    kind = BoardRoams(kind="board-roams")
    roaming = asyncio.create_task(kind.inject(ROAMS, cast(Any, system_of(board, process_lock))))
    await asyncio.sleep(0)
    assert not board.roamed, "it has no gateway yet"
    async with process_lock:
        board.gateway = BARN
        board.taken.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not board.roamed, "somebody else works on the site"
    evidence = await roaming
    assert board.roamed == [ATTIC]
    if arrives:
        assert evidence is not None
        assert evidence.data == {"since": 7, "gateway": ATTIC, "session_present": True}
    else:
        assert evidence is None


async def test_a_kill_strikes_where_its_board_is_when_its_turn_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board, process_lock, armed = Roamer(arrives=True), asyncio.Lock(), list[str]()

    async def halt(kind: UplinkKill, fault: Fault, machine: str, *more: object) -> None:
        armed.append(machine)

    monkeypatch.setattr(UplinkKill, "halt", halt)

    def system_at(name: str) -> Any:
        site = SimpleNamespace(
            process_lock=process_lock,
            machine=lambda _: name,
            running={"uplink": None},
            start_uplink=None,
        )
        return SimpleNamespace(
            site=site,
            look=lambda: 7,
            at=lambda fault: system_at(board.gateway),
            is_at=None,
        )

    fault = Fault("uplink/uplink-kill-1", "uplink-kill", "uplink", "t", "spooled", 3)
    async with process_lock:
        killing = asyncio.create_task(
            UplinkKill(kind="uplink-kill").inject(fault, cast(Any, system_at(ATTIC)))
        )
        await asyncio.sleep(0)
        board.gateway = BARN
    assert await killing is None
    assert armed == [BARN]
