"""The order in which a probe tries the boards at a port."""

import pytest

from provisioning.boards import Board, catalogue
from provisioning.probe import probe

ALL = list(catalogue().values())


@pytest.mark.parametrize("board", ALL, ids=lambda one: one.name)
def test_probe_finds_each_board_and_the_kinds_with_the_same_boot_loader(board: Board) -> None:
    asked: list[tuple[str, int, str]] = []

    def ask(other: Board, port: str) -> bool:
        assert port == "/dev/ttyUSB0"
        asked.append((other.programmer, other.baud, other.chip))
        return asked[-1] == (board.programmer, board.baud, board.chip)

    found = probe("/dev/ttyUSB0", ALL, ask)
    assert board in found
    assert {(one.programmer, one.baud, one.chip) for one in found} == {asked[-1]}
    assert len(asked) == len(set(asked)), "a question takes seconds"


def test_silent_port_is_not_a_board() -> None:
    assert probe("/dev/ttyUSB0", ALL, lambda board, port: False) == []
