"""Which boot loader is at a port. Boards with one USB chip look alike by their USB ids; their boot
loaders differ in rate and protocol, and tell the chip's signature.

In: a port, and the boards that it may be. Out: those whose boot loader answers.
"""

from collections.abc import Callable, Iterable
from itertools import groupby

from provisioning import avrdude
from provisioning.boards import Board

Ask = Callable[[Board, str], bool]


def probe(port: str, candidates: Iterable[Board], ask: Ask = avrdude.answers) -> list[Board]:
    """Return the boards whose boot loader answers at this port; none if no boot loader does.

    Each question resets the board and writes nothing. A wrong one takes up to seven seconds, so
    boards that speak alike are asked for once, and the first answer ends the search.
    """

    def way(board: Board) -> tuple[str, int, str]:
        return board.programmer, -board.baud, board.chip

    for _, alike in groupby(sorted(candidates, key=way), way):
        boards = list(alike)
        if ask(boards[0], port):
            return boards
    return []
