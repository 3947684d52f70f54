"""A single fault of a line, at a place counted in bytes. In: a command and the bytes of one
direction. Out: the bytes that arrive.

    lose        N bytes are lost; with both directions at once the line is cut, with one it is
                half open
    duplicate   N bytes arrive, and then once more
    garble      N bytes are read at a wrong bit rate
    flood       N random bytes arrive; sent bytes wait for them
    delay       N bytes arrive some seconds late; later ones wait too
    stall       the line takes nothing for some seconds
"""

import random
from dataclasses import dataclass
from typing import Literal

Action = Literal["lose", "duplicate", "garble", "flood", "delay", "stall"]

GARBLE = 0.5  # bit rate of the reader, divided by the sender's
BITS = 10  # 8N1


@dataclass(frozen=True, slots=True)
class Command:
    """A command. fault: id of the fault. after: number of bytes that pass before the harm, counted
    from the end of the board's publication number `publication`, or from now on if this is None.
    length: number of bytes to harm. seconds: length of a `delay` or `stall`.
    """

    fault: str
    action: Action
    direction: Literal["up", "down"]
    after: int = 0
    length: int = 0
    seconds: float = 0.0
    publication: int | None = None


class Strike:
    """A command that is being carried out. behind: fault whose end the command waited for. struck:
    number of bytes harmed so far. offset: number of bytes on the line before the first harmed one.
    publication: number of the last publication before the count of `after` bytes began.
    """

    def __init__(self, command: Command, behind: str | None = None) -> None:
        self.command = command
        self.behind = behind
        self.struck = 0
        self.offset: int | None = None
        self.publication: int | None = None
        self._from: int | None = None
        self._after = command.after
        self._remaining = command.length
        self._withheld = bytearray()
        self._random = random.Random(command.fault)

    @property
    def begun(self) -> bool:
        """Whether the place of the strike has been reached."""
        return self.offset is not None

    @property
    def done(self) -> bool:
        return self.begun and self._remaining == 0

    @property
    def unharmed(self) -> int | None:
        """Bytes on the line from `count_from` to the strike; None until the strike."""
        return None if self.offset is None or self._from is None else self.offset - self._from

    def count_from(self, offset: int, publication: int) -> None:
        """Start the count, if it has not started. offset: bytes on the line so far. publication:
        number of the last publication that has crossed.
        """
        if self._from is None:
            self._from, self.publication = offset, publication

    def split(self, data: bytes, sent_before: int) -> tuple[bytes, bytes, bytes]:
        """Cut `data` into three parts: before the strike's place, to be harmed, and after the harm.
        sent_before: bytes sent before `data`.
        """
        before, rest = data[: self._after], data[self._after :]
        self._after -= len(before)
        if rest and self.offset is None:
            self.offset = sent_before + len(before)
        if self.command.action in ("flood", "stall"):
            return before, b"", rest
        hit = rest[: self._remaining]
        self._remaining -= len(hit)
        self.struck += len(hit)
        return before, hit, rest[len(hit) :]

    def harm(self, hit: bytes) -> bytes:
        """Return the bytes that arrive in place of `hit`, the bytes to be harmed."""
        match self.command.action:
            case "lose":
                return b""
            case "duplicate":
                self._withheld += hit
                return hit + bytes(self._withheld) if self._remaining == 0 else hit
            case "garble":
                return misread(hit, GARBLE)
            case _:
                return hit

    def rubbish(self) -> bytes:
        """Return the random bytes of a flood. The wire sends them at the strike's place."""
        length, self._remaining = self._remaining, 0
        self.struck = length
        return self._random.randbytes(length)


def misread(data: bytes, rate: float) -> bytes:
    """Return the bytes that a receiver gets from `data`, sent without pauses, if it samples at
    `rate` times the sender's bit rate. A UART waits for a falling edge, samples the middle of each
    of its own bit times, and waits for the next falling edge. Bytes without a stop bit (a framing
    error) arrive as well.
    """
    levels = [bit for byte in data for bit in (0, *(byte >> number & 1 for number in range(8)), 1)]

    def level(t: float) -> int:
        return levels[int(t)] if t < len(levels) else 1

    out = bytearray()
    t = 0.0
    while t < len(levels):
        if level(t) or (t > 0 and not level(t - 1e-6)):  # a start bit begins with a falling edge
            t = float(int(t) + 1)
            continue
        out.append(sum(level(t + (1.5 + number) / rate) << number for number in range(8)))
        t += (BITS - 0.5) / rate
    return bytes(out)
