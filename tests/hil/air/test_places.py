"""For each place of a board, the rig expects certain gateways to hear it. In the simulated air,
exactly these gateways do.
"""

from itertools import pairwise

import pytest

from hil.air.ether import Ether
from hil.air.law import Judge
from hil.air.physics import Channel
from hil.air.places import POWER, Places

GATEWAYS = ["attic", "barn", "cellar", "dairy", "eaves"]
BOARDS = (1, 15, 30)


class World:
    """Gateways that listen, and a board that the test moves."""

    def __init__(self, count: int, factor: int) -> None:
        self.names = GATEWAYS[:count]
        self.places = Places(self.names, factor)
        self._channel = Channel(869_525_000, 125_000, factor)
        self._ether = Ether(Judge())
        for name in self.names:
            radio = self._ether.join(name, self.places.gateway(name))
            self._ether.listen(radio, self._channel, 0.0)
        self._board = self._ether.join("board", (0, 0))
        self._now = 1.0

    def hear(self, place: tuple[float, float]) -> set[str]:
        self._ether.carry("board", place)
        frame = self._ether.send(self._board, b"reading", self._channel, self._now, power=POWER)
        self._now = frame.end + 1
        return {one.radio.name for one in self._ether.end(frame)}


@pytest.mark.parametrize("factor", [7, 9, 12])
@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("number", BOARDS)
def test_beside_a_gateway_it_alone_hears_a_board_and_between_two_both_do(
    count: int, factor: int, number: int
) -> None:
    world = World(count, factor)
    for name, following in pairwise([*world.names, world.names[0]]):
        assert world.hear(world.places.beside(name, number)) == {name}
        assert world.hear(world.places.between(name, number)) == {name, following}


def test_a_gateway_alone_hears_all() -> None:
    world = World(1, 7)
    for number in BOARDS:
        assert world.hear(world.places.between("attic", number)) == {"attic"}


def test_moving_an_unknown_radio_is_refused() -> None:
    with pytest.raises(ValueError, match="no radio called board"):
        Ether(Judge()).carry("board", (0, 0))
