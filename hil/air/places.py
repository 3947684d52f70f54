"""Where the radios of a run stand. In: the names of its gateways, a spreading factor, the numbers
of its boards. Out: places in metres: of gateways, and for boards such that one or two of them hear.

The gateways stand in a ring, so far from each other that what one of them hears beside it, no
other one hears; halfway between two neighbours both hear it, and nobody else.
"""

from collections.abc import Sequence
from math import cos, pi, sin

from hil.air.ether import Place
from hil.air.physics import reach

POWER = 14.0
"""dBm of all radios of a run."""
NEIGHBOURS = 1.6
"""From one gateway to the next, in reaches of a radio."""
NEAREST_M, APART_M = 100.0, 50.0
"""From a gateway to its first board, and from one board to the next."""


class Places:
    """gateways: names. A gateway alone stands in the middle."""

    def __init__(self, gateways: Sequence[str], factor: int) -> None:
        self._at = {name: index for index, name in enumerate(gateways)}
        self._half = pi / len(gateways)
        """Half of the angle between two neighbours."""
        apart = NEIGHBOURS * reach(POWER, factor)
        self._radius = apart / 2 / sin(self._half) if len(gateways) > 1 else 0.0

    def gateway(self, name: str) -> Place:
        return self._around(self._radius, 2 * self._at[name])

    def beside(self, gateway: str, number: int) -> Place:
        """Where only this gateway hears the board of this number."""
        return self._around(self._radius + _out(number), 2 * self._at[gateway])

    def between(self, gateway: str, number: int) -> Place:
        """Where this gateway and the next one hear it; beside a gateway that is alone."""
        if len(self._at) == 1:
            return self.beside(gateway, number)
        middle = self._radius * cos(self._half)
        return self._around(middle + _out(number), 2 * self._at[gateway] + 1)

    def _around(self, radius: float, halves: int) -> Place:
        angle = halves * self._half
        return radius * cos(angle), radius * sin(angle)


def _out(number: int) -> float:
    return NEAREST_M + APART_M * number
