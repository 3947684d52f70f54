"""Radio planning: load of the channel, collisions, and the airtime budgets of gateway and board.

In: number of boards; size, interval and radio parameters of their readings. Out: the expected
figures, the obstacles, and plans that would work; and the most airtime that a gateway can receive
on a working channel.

The model is pure ALOHA (Abramson 1970), which is pessimistic: each overlap of two frames destroys
both, though radios do capture the stronger one and may listen before they talk.

- A board's frame arrives if no other board's frame begins within one airtime before or after its
  beginning. The gateway must not be sending an answer, because a sending radio receives nothing.
- The answer arrives if no board's frame begins while the answer is sent.
- After a loss in either direction the whole exchange is repeated, which adds load.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import exp, inf, isinf

from gateway.links.lora.airtime import FACTORS, silence_factor
from gateway.links.lora.exchange import Exchange, Radio, exchange
from gateway.system.regions import EU868, Region, SubBand

MOST_TRIES = 3.0
"""Average attempts per reading above which a channel counts as full. Above this value, a few more
boards, of this site or of a neighbour, can overload the channel.
"""

_ROUNDS = 200
_HOPELESS = 6.0
"""Number of overlapping frames per exchange above which the model gives up. With this number, only
one exchange in four hundred succeeds.
"""

_INTERVALS = sorted(
    {unit * number for unit in (1, 60, 3600) for number in (1, 2, 3, 5, 8, 10, 12, 15, 20, 24, 30)}
)
"""Intervals between readings, in seconds, that are tried as remedies: up to 30 hours."""


@dataclass(frozen=True, slots=True)
class Site:
    """The parameters of a plan: boards, readings, radio and channel."""

    sensors: int
    every: float
    """Seconds from one reading of a sensor to the next."""

    factor: int
    """Spreading factor, 7…12."""

    payload: int = 20
    """Bytes of a reading."""

    radio: Radio = Radio.SX127X
    """Radio of the gateway."""

    frequency: int = EU868.frequency
    """Frequency in Hz."""

    region: Region = EU868

    loss: float = 0.0
    """Share of frames lost without a collision, in each direction, 0…1."""

    @property
    def band(self) -> SubBand:
        """The sub-band of the channel. Raises OncewayError if no sub-band has the frequency."""
        return self.region.band(self.frequency)

    @property
    def exchange(self) -> Exchange:
        """The airtime of one reading. Raises ValueError for a frame that is too long for a
        radio.
        """
        return exchange(self.payload, self.factor, self.radio)


@dataclass(frozen=True, slots=True)
class Budget:
    """Airtime of the gateway or of one board. limit: seconds of airtime allowed in an hour. used:
    expected seconds of airtime in an hour.
    """

    limit: float
    used: float

    @property
    def share(self) -> float:
        return self.used / self.limit


@dataclass(frozen=True, slots=True)
class Plan:
    """The expected figures of a radio site."""

    site: Site

    tries: float
    """Average attempts per reading; `inf` if the channel is overloaded."""

    load: float
    """Airtime of all stations, as a share of the time. Above 1, the channel cannot work."""

    collisions: float
    """Share of exchanges spoiled by a collision, 0…1."""

    gateway: Budget

    board: Budget

    @property
    def problems(self) -> list[str]:
        """Reasons why the plan cannot work; empty if it can."""
        band, found = self.site.band, []
        if self.tries > MOST_TRIES:
            words = "ever more" if isinf(self.tries) else f"{self.tries:.1f}"
            found.append(f"the channel is full: a reading would take {words} tries")
        if isinf(self.tries):
            return found
        if self.gateway.share > 1:
            found.append(
                f"the gateway would have to send {self.gateway.used:.0f} s an hour, but may send"
                f" {self.gateway.limit:.0f} s ({band.rule})"
            )
        if self.board.share > 1:
            found.append(
                f"each board would have to send {self.board.used:.0f} s an hour, but may send"
                f" {self.board.limit:.0f} s ({band.rule})"
            )
        return found

    @property
    def works(self) -> bool:
        return not self.problems


def plan(site: Site) -> Plan:
    """Calculate the figures of a plan. Raises OncewayError if the law does not allow the channel.
    Raises ValueError if no radio can send a frame of this length, or if one frame alone exceeds the
    limit of airtime.
    """
    cost, band, hour = site.exchange, site.band, site.region.hour
    tries, answers = _settle((site.sensors - 1) / site.every, cost, site.loss)
    readings = site.sensors / site.every
    quiet = silence_factor(cost.up, band.duty, hour)
    board = Budget(hour / (1 + quiet), hour / site.every * tries * cost.up)
    gateway = Budget(band.duty * hour, readings * hour * answers * cost.down)
    load = readings * (tries * cost.up + answers * cost.down)
    spoiled = 1 - 1 / (tries * (1 - site.loss) ** 2)
    return Plan(site, tries, load, spoiled, gateway, board)


def most_heard(factor: int, radio: Radio, payload: int = 20) -> float:
    """Return the share of the time, 0…1, in which a gateway receives boards' frames if the channel
    is just below full (MOST_TRIES). A gateway can hardly receive more, because further frames
    collide. payload: bytes of a reading.
    """
    cost = exchange(payload, factor, radio)
    low, high = 0.0, 1 / cost.up
    while high - low > high * 1e-6:
        rate = (low + high) / 2
        tries, _ = _settle(rate, cost)
        low, high = (rate, high) if tries <= MOST_TRIES else (low, rate)
    _, answers = _settle(low, cost)
    return low * answers * cost.up


def _settle(others: float, cost: Exchange, loss: float = 0.0) -> tuple[float, float]:
    """Return the mean numbers of attempts and of answers for one reading; `inf` if the channel is
    overloaded. Both numbers include the repetitions after collisions, and these repetitions cause
    further collisions. others: readings per second of the other boards. loss: share of frames that
    are lost without a collision, 0…1.
    """
    arrives = 1 - loss
    tries = answers = 1.0
    for _ in range(_ROUNDS):
        met_up = others * (tries * 2 * cost.up + answers * cost.down)
        met_down = others * tries * cost.down
        if met_up + met_down > _HOPELESS:
            return inf, inf
        before = tries
        answers = exp(met_down) / arrives
        tries = exp(met_up) / arrives * answers
        if tries - before < 1e-9:
            break
    return tries, answers


def remedies(site: Site) -> list[str]:
    """Return changes that make a plan work, as texts; each change alone is enough. Empty if none is
    known.
    """
    return list(_changes(site))


def _changes(site: Site) -> Iterator[str]:
    most = _most_sensors(site)
    if most:
        yield f"{most} sensors at most"
    if (slowest := _shortest_interval(site)) is not None:
        yield f"a reading every {say(slowest)}"
    for factor in reversed([factor for factor in FACTORS if factor < site.factor]):
        if plan(replace(site, factor=factor)).works:
            yield f"SF{factor}, which has a shorter range"
            break
    if site.frequency != site.region.frequency:
        changed = replace(site, frequency=site.region.frequency)
        if plan(changed).works:
            yield f"{changed.frequency / 1e6:g} MHz ({changed.band.rule})"


def _most_sensors(site: Site) -> int:
    """Return the largest number of sensors, below the site's number, with which the plan works. 0
    if no number works.
    """
    low, high = 0, site.sensors
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if plan(replace(site, sensors=middle)).works else (low, middle)
    return low


def _shortest_interval(site: Site) -> int | None:
    """Return the shortest interval of `_INTERVALS`, in seconds, that is longer than the site's
    interval, and with which the plan works. None if there is no such interval.
    """
    for seconds in _INTERVALS:
        if seconds > site.every and plan(replace(site, every=seconds)).works:
            return seconds
    return None


def say(seconds: float) -> str:
    """Return a time in words, such as `90 s`, `10 min` or `2 h`."""
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds / unit:g} {name}"
    return f"{seconds:g} s"
