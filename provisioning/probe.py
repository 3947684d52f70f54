"""Finds the boot loader at a port. Boards with the same USB chip have the same USB ids; their boot
loaders differ in rate and protocol, and report the chip's signature.

In: a port, and the kinds of board that it may be. Out: the kinds whose boot loader answers.
"""

from collections.abc import Callable, Iterable
from itertools import groupby

from provisioning import avrdude
from provisioning.boards import Board

Ask = Callable[[Board, str], bool]


def probe(port: str, candidates: Iterable[Board], ask: Ask = avrdude.answers) -> list[Board]:
    """Return the boards whose boot loader answers at this port; none if no boot loader does.

    Each question resets the board and writes nothing. A question in the wrong protocol takes up to
    seven seconds, so boards with the same protocol share one question, and the first answer ends
    the search.
    """

    def way(board: Board) -> tuple[str, int, str]:
        return board.programmer, -board.baud, board.chip

    for _, alike in groupby(sorted(candidates, key=way), way):
        boards = list(alike)
        if ask(boards[0], port):
            return boards
    return []
