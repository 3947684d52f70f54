"""Places of the radios of a run.

In: the names of its gateways, a spreading factor, the numbers of its boards. Out: places in metres
at which one gateway, or two, hear a board.

The gateways stand in a ring, so far apart that only the nearest one hears a board next to it.
Halfway between two neighbours, these two hear a board, and no other gateway does.
"""

from collections.abc import Sequence
from math import cos, pi, sin

from hil.air.ether import Place
from hil.air.physics import reach

POWER = 14.0
"""Power of all radios of a run, in dBm."""
NEIGHBOURS = 1.6
"""Distance between neighbouring gateways, in ranges of a radio."""
NEAREST_M, APART_M = 100.0, 50.0
"""Metres from a gateway to its first board, and from one board to the next."""


class Places:
    """Places of gateways and boards, in metres. A single gateway stands at (0, 0)."""

    def __init__(self, gateways: Sequence[str], factor: int) -> None:
        self._at = {name: index for index, name in enumerate(gateways)}
        self._half = pi / len(gateways)
        """Half of the angle between two neighbouring gateways, in radians."""
        apart = NEIGHBOURS * reach(POWER, factor)
        self._radius = apart / 2 / sin(self._half) if len(gateways) > 1 else 0.0

    def gateway(self, name: str) -> Place:
        return self._around(self._radius, 2 * self._at[name])

    def beside(self, gateway: str, number: int) -> Place:
        """Return a place where only this gateway hears the board of this number."""
        return self._around(self._radius + _out(number), 2 * self._at[gateway])

    def between(self, gateway: str, number: int) -> Place:
        """Return a place where this gateway and the next one, if there is one, hear the board."""
        if len(self._at) == 1:
            return self.beside(gateway, number)
        middle = self._radius * cos(self._half)
        return self._around(middle + _out(number), 2 * self._at[gateway] + 1)

    def _around(self, radius: float, halves: int) -> Place:
        angle = halves * self._half
        return radius * cos(angle), radius * sin(angle)


def _out(number: int) -> float:
    return NEAREST_M + APART_M * number
