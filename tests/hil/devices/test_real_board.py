"""A real board at its port, as far as a test without hardware can check it; `real.py` runs a whole
bench.
"""

import asyncio
import os
import select
import threading
import tty
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.errors import OncewayError
from gateway.links.handshake import Hello, Who
from hil.bench.bench import Bench
from hil.devices.real_board import RealBoard, hear_hello
from hil.observe.counters import wait_until
from hil.observe.folder import Folder
from hil.observe.history import History
from hil.programs.process import Children


@pytest.fixture
def pty() -> Iterator[tuple[int, Path]]:
    """Yield the board's side of a pseudo-terminal, and the path of the rig's side."""
    board, slave = os.openpty()
    tty.setraw(slave)
    yield board, Path(os.ttyname(slave))
    os.close(board)
    os.close(slave)


def test_a_board_is_asked_for_its_hello(pty: tuple[int, Path]) -> None:
    board, port = pty

    def answer() -> None:
        asked = b""
        while Who(0).to_bytes() not in asked and select.select([board], [], [], 20)[0]:
            asked += os.read(board, 100)
        os.write(board, b"boot loader\0" + Hello(5, 0, 7, 43, 56, 2, "real-1").to_bytes())

    thread = threading.Thread(target=answer)
    thread.start()
    hello = hear_hello(port, 115200, 20)
    thread.join()
    assert hello is not None
    assert (hello["name"], hello["boot"], hello["incarnation"], hello["next_sequence"]) == (
        "real-1",
        5,
        7,
        43,
    )


def test_a_board_that_says_nothing(pty: tuple[int, Path]) -> None:
    assert hear_hello(pty[1], 115200, 0.1) is None


def test_invalid_port_and_invalid_rate_are_refused(pty: tuple[int, Path], tmp_path: Path) -> None:
    with pytest.raises(OncewayError, match="cannot open the board's port"):
        hear_hello(tmp_path / "none", 115200, 1)
    (tmp_path / "file").write_text("")
    with pytest.raises(OncewayError, match="cannot open the board's port"):
        hear_hello(tmp_path / "file", 115200, 1)
    with pytest.raises(OncewayError, match="a serial port does not support 12345 bits per second"):
        hear_hello(pty[1], 12345, 1)


async def test_interrupted_run_leaves_the_board_powered(tmp_path: Path) -> None:
    bench = Bench.model_validate({"title": "t", "readings": 20, "board": [{"port": "/dev/none"}]})
    nobody: Any = None
    board = RealBoard(
        "real-1",
        Folder(tmp_path),
        bench,
        Children(tmp_path),
        History(tmp_path / "history.jsonl"),
        nobody,
    )
    turned: list[bool] = []
    switch: Any = SimpleNamespace(turn=turned.append)
    board._switch = switch
    off = asyncio.create_task(board.switched_off("real-1/off-1", 600))
    await wait_until(lambda: turned)
    off.cancel()
    with pytest.raises(asyncio.CancelledError):
        await off
    assert turned == [False, True]
