"""One direction of a wire, without I/O: bytes wait for the line, cross it at its rate, and are
harmed on the way. In: bytes sent, commands, the time in seconds of a clock that never goes back.
Out: bytes that arrive, and an event for each harm.
"""

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from hil.wire.fading import Fading
from hil.wire.noise import Harm, Weather
from hil.wire.strike import Command, Strike

BITS_PER_BYTE = 10  # 8N1
BUFFER = 4096  # bytes that wait for the line; more are left to the sender's port


class Line:
    """One direction of a wire. counts: bytes sent, arrived and dropped, and harms of each kind. A
    byte is dropped if no program reads the port, or if the port's buffer is full.
    """

    def __init__(self, direction: str, baud: int, weather: Sequence[Weather] = ()) -> None:
        self.direction = direction
        self.counts: Counter[str] = Counter(
            sent=0, arrived=0, dropped=0, **{kind: 0 for one in weather for kind in one.kinds}
        )
        self._rate = baud / BITS_PER_BYTE
        self._weather = weather
        self._waiting = bytearray()
        self._free_at = 0.0
        self._strikes: deque[Strike] = deque()  # the first one is in progress, the others wait
        self._ends: deque[tuple[int, int]] = deque()
        """For each publication that has not fully crossed: number of bytes sent up to its end, and
        number of the publication.
        """
        self._publication = 0  # the newest publication whose end has crossed
        self._offset = 0  # bytes left by the faults of the whole run
        self._stalled_until = 0.0
        self._flight: deque[tuple[float, bytes]] = (
            deque()
        )  # time of arrival, and bytes that have crossed

    @property
    def room(self) -> int:
        return BUFFER - len(self._waiting)

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._flight or self._stalled_until)

    def send(self, data: bytes, now: float) -> None:
        if not self._waiting:
            self._free_at = max(self._free_at, now)
        self._waiting += data

    def published(self, number: int) -> None:
        """Note that the bytes sent so far end with the board's publication of this number."""
        self._ends.append((self.counts["sent"] + len(self._waiting), number))
        self._cross()

    def strike(self, command: Command) -> None:
        """Accept a command, to be carried out when its place is reached. Commands are carried out
        one at a time. A later `arrive` reports the command with its measured place.
        """
        behind = self._strikes[-1].command.fault if self._strikes else None
        self._strikes.append(Strike(command, behind))

    def arrive(self, now: float) -> tuple[bytes, list[dict[str, Any]]]:
        """Return the bytes that have arrived by `now`, and events: `noise` for each harm by a fault
        of the whole run (`weather.py`), `struck` for a completed command.
        """
        events: list[dict[str, Any]] = []
        if self._stalled_until:
            if now < self._stalled_until:
                return self._landed(now), events
            self._stalled_until = 0.0
            self._free_at = now
            events += self._done(len(self._waiting))
        crossed = min(len(self._waiting), int((now - self._free_at) * self._rate))
        if crossed > 0:
            self._free_at += crossed / self._rate
            while crossed > 0:
                crossed -= self._carry(crossed, now, events)
        return self._landed(now), events

    def _carry(self, most: int, now: float, events: list[dict[str, Any]]) -> int:
        """Let up to `most` bytes cross, none after the end of a publication. Return how many."""
        sent = self.counts["sent"]
        size = min(most, self._ends[0][0] - sent) if self._ends else most
        data = bytes(self._waiting[:size])
        del self._waiting[:size]
        self.counts["sent"] += size
        for weather in self._weather:
            data, harms = weather.feed(data, now)
            for harm in harms:
                self.counts[harm.kind] += 1
                events.append({"event": "noise", "direction": self.direction, **_as_event(harm)})
        events += self._pass_on(data, now)
        self._cross()
        return size

    def _cross(self) -> None:
        while self._ends and self._ends[0][0] <= self.counts["sent"]:
            self._publication = self._ends.popleft()[1]

    def replayed(self) -> list[dict[str, Any]]:
        """Return an event for each recording on this line, with the part of it that was used."""
        return [
            {"event": "replayed", "direction": self.direction, **weather.summary()}
            for weather in self._weather
            if isinstance(weather, Fading)
        ]

    def clear(self) -> None:
        """Drop all bytes on their way, because one end of the line was unplugged."""
        self.counts["dropped"] += len(self._waiting) + sum(len(data) for _, data in self._flight)
        self._waiting.clear()
        self._flight.clear()
        self._ends = deque((self.counts["sent"], number) for _, number in self._ends)
        self._cross()

    def _pass_on(self, data: bytes, now: float) -> list[dict[str, Any]]:
        """Apply the first planned strike to bytes, if its place is reached, and send them to the
        other end. Return the events. data: what the faults of the whole run have let through.
        """
        strike = self._strikes[0] if self._strikes else None
        self._offset += len(data)
        if strike is None or self._publication < (strike.command.publication or 0):
            self._fly(data, now)
            return []
        strike.count_from(self._offset - len(data), self._publication)
        before, hit, after = strike.split(data, self._offset - len(data))
        self._fly(before, now)
        if hit:
            self._fly(strike.harm(hit), now + strike.command.seconds)
        if strike.begun and strike.command.action == "flood":
            rubbish = strike.rubbish()
            self._free_at += len(rubbish) / self._rate
            self._fly(rubbish, now)
        self._fly(after, now)
        if strike.begun and strike.command.action == "stall":
            self._stalled_until = now + strike.command.seconds
            return []
        return self._done(strike.struck) if strike.done else []

    def _done(self, struck: int) -> list[dict[str, Any]]:
        if not self._strikes:
            return []
        strike = self._strikes.popleft()
        named = {
            "fault": strike.command.fault,
            "action": strike.command.action,
            "direction": self.direction,
        }
        place = {"publication": strike.publication, "after": strike.unharmed}
        place |= {"over": self._publication}
        found = {"behind": strike.behind, "offset": strike.offset, "bytes": struck}
        return [{"event": "struck", **named, **place, **found}]

    def _fly(self, data: bytes, arrives: float) -> None:
        """Put bytes in flight. They arrive at `arrives`, but not before any earlier bytes."""
        if data:
            self._flight.append(
                (max(arrives, self._flight[-1][0] if self._flight else arrives), data)
            )

    def _landed(self, now: float) -> bytes:
        out = bytearray()
        while self._flight and self._flight[0][0] <= now:
            out += self._flight.popleft()[1]
        return bytes(out)


def _as_event(harm: Harm) -> dict[str, Any]:
    fields = {"kind": harm.kind, "offset": harm.offset}
    return (
        {**fields, "sent": harm.sent, "arrived": harm.arrived}
        if harm.length == 1
        else {**fields, "length": harm.length}
    )
