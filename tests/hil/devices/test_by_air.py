"""While the rig moves a radio board, it keeps track of the gateway that hears the board."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from hil.air.places import Places
from hil.bench.bench import Bench
from hil.bench.tables import AirTable
from hil.devices.by_air import DeviceByAir
from hil.observe.folder import Folder

SITE = [{"name": "attic"}, {"name": "barn"}]
BENCH = Bench.model_validate({"title": "t", "boards": 0, "air": {}, "gateway": SITE})
PLACES = Places(["attic", "barn"], 7)
WITHIN = 20.0


class Carrier:
    """A stand-in for the ether that only accepts orders to move a radio. carried: the places of
    these orders.
    """

    def __init__(self) -> None:
        self.carried: asyncio.Queue[tuple[float, float]] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, name, x, y = (await reader.readline()).decode().split()
        writer.write(b"carried\n" if name == "lora-1" else b"error no radio\n")
        self.carried.put_nowait((float(x), float(y)))
        writer.close()


def device(folder: Folder) -> DeviceByAir:
    """Return a device that has not been started."""
    assert BENCH.air is not None
    none = cast(Any, None)
    return DeviceByAir("lora-1", 1, BENCH.air, folder, BENCH, none, none)


def connects(board: DeviceByAir, at: str, present: bool = True) -> None:
    board.heard("welcome", {"incarnation": 5, "at": at})
    board.heard("connack", {"reason": 0, "session_present": present})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(DeviceByAir, "_new_board", lambda *_: (None, None))
    return Folder(tmp_path)


def test_a_board_is_at_the_gateway_that_has_taken_its_connection(folder: Folder) -> None:
    board = device(folder)
    assert board.gateway == "attic"
    board.heard("welcome", {"incarnation": 5, "at": "barn"})
    assert board.gateway == "attic", "it has only heard an offer"
    board.heard("connack", {"reason": 0x88, "session_present": False})
    assert board.gateway == "attic"
    connects(board, "barn")
    assert board.gateway == "barn"


async def test_board_roams_out_of_reach_and_back(
    folder: Folder,
) -> None:
    board, ether = device(folder), Carrier()
    server = await asyncio.start_unix_server(ether.serve, folder.air)
    async with server, asyncio.timeout(WITHIN):
        connects(board, "attic", present=False)
        await board.met()
        roaming = asyncio.create_task(board.roam("barn", WITHIN))
        assert await ether.carried.get() == pytest.approx(PLACES.beside("barn", 1))
        connects(board, "barn")
        assert await roaming
        assert await ether.carried.get() == pytest.approx(PLACES.between("barn", 1))


async def test_board_without_a_gateway_moves_back(folder: Folder) -> None:
    board, ether = device(folder), Carrier()
    server = await asyncio.start_unix_server(ether.serve, folder.air)
    async with server, asyncio.timeout(WITHIN):
        with pytest.raises(TimeoutError):
            await board.roam("barn", 0.5)
        carried = [ether.carried.get_nowait() for _ in range(2)]
    assert carried[1] == pytest.approx(PLACES.between("barn", 1))


def test_board_has_had_the_turns_of_the_bench_in_one_session(folder: Folder) -> None:
    assert device(folder).has_turns
    none = cast(Any, None)
    air = BENCH.model_copy(update={"air": AirTable(turns=3)}).air
    assert air is not None
    board = DeviceByAir("lora-1", 1, air, folder, BENCH, none, none)
    sent = {"direction": "up", "id": 1, "topic": "t", "payload": ""}
    for _ in range(2):
        board.heard("welcome", {"at": "attic"})
        for _ in range(2):
            board.heard("publish", sent)
    assert not board.has_turns
    board.heard("strange", {"direction": "up", "frame": ""})
    board.heard("welcome", {"at": "attic"})
    assert board.has_turns
