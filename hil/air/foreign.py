"""Foreign radio that attacks a run: `python -m hil.air.foreign --air SOCKET --channel FREQUENCY
BANDWIDTH FACTOR --do replay|forge [--seed N]`.

In: the frames on the air. Out: after each frame that the radio hears, frames of its own. In the
simulation, they take no time and overlap with no other frame, so each arrives.

After a frame of a gateway, the radio sends frames that a gateway could take for a board's. After a
frame of a board, the board listens: the radio sends frames that could be an answer to the board.

replay: send the newest recorded frame, and then the next recorded frames in turn. A gateway gets
replays at most once a second, because more of its answers would jam the channel.

forge: send changed copies of the newest recorded frame (`WAYS`).
"""

import argparse
import asyncio
import random
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

NAME = "foreign"
PLACE = "50 0"
REPLAYED, FORGED = 15, 150
"""Number of frames that are sent in answer to one frame of a gateway: recorded frames (the newest
one is sent in addition), or changed copies of the newest one."""
REPLAY_EVERY = 1.0
"""Shortest time between two replays for gateways, in seconds. Replays for boards have no limit."""
FOR_BOARDS = 3
LISTENING = 0.03
"""Seconds from the end of a frame until its sender listens."""
AT_ONCE = 10
PAUSE = 0.004
"""Seconds between two groups of AT_ONCE frames: a modem's port accepts no higher rate."""
_DOWN = 0x40
"""Bit in the kind of a frame that a gateway sends (gateway/links/lora/FORMAT.md, Frame)."""


def _flipped(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    flips = sum(1 << bit for bit in draw.sample(range(8 * len(frame)), draw.randint(1, 3)))
    return (int.from_bytes(frame) ^ flips).to_bytes(len(frame))


def _cut(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    return frame[: draw.randrange(1, len(frame))]


def _longer(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    return frame + draw.randbytes(draw.randint(1, 8))


def _of_another_key(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    return frame[:3] + draw.randbytes(len(frame) - 3)


def _mixed(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    return frame[:3] + other[3:]


def _next(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    """Return `frame` with the counter increased by one, as in the next turn."""
    return frame[:2] + bytes([frame[2] & 0xC0 | (frame[2] + 1) & 0x3F]) + frame[3:]


def _of_another_board(draw: random.Random, frame: bytes, other: bytes) -> bytes:
    return frame[:1] + other[1:2] + frame[2:]


WAYS = (_flipped, _cut, _longer, _of_another_key, _mixed, _next, _of_another_board)
SHORTEST = 7
"""Length of the shortest radio frame of a board or gateway, in bytes."""


class Foreign:
    """A foreign radio. replays: whether it replays recorded frames; otherwise it forges frames."""

    def __init__(self, replays: bool, seed: int) -> None:
        self._draw = random.Random(seed)
        self._replays = replays
        self._heard: list[bytes] = []
        self._quiet_until = 0.0
        self._at = {0: 0, _DOWN: 0}

    def hear(self, frame: bytes, now: float) -> list[bytes]:
        """Handle a frame that the foreign radio heard. now: seconds. Return the frames to send as
        soon as the frame's sender listens.
        """
        if len(frame) < SHORTEST:
            return []
        self._heard.append(frame)
        kind = 0 if frame[2] & _DOWN else _DOWN
        count = FOR_BOARDS if kind else REPLAYED if self._replays else FORGED
        if not self._replays:
            return [self._forged(each) for each in self._newest(kind) for _ in range(count)]
        if not kind:
            if now < self._quiet_until:
                return []
            self._quiet_until = now + REPLAY_EVERY
        return [*self._newest(kind), *self._recorded(kind, count)]

    def _newest(self, kind: int) -> list[bytes]:
        return next(([each] for each in reversed(self._heard) if each[2] & _DOWN == kind), [])

    def _recorded(self, kind: int, count: int) -> list[bytes]:
        """Return the next `count` recorded frames of a direction; the first follows the last."""
        found = [frame for frame in self._heard if frame[2] & _DOWN == kind]
        at, self._at[kind] = self._at[kind], self._at[kind] + count
        return [found[(at + i) % len(found)] for i in range(count)] if found else []

    def _forged(self, frame: bytes) -> bytes:
        while True:
            made = self._draw.choice(WAYS)(self._draw, frame, self._draw.choice(self._heard))
            if made not in self._heard:
                return made


async def run(options: argparse.Namespace) -> None:
    """Run until SIGTERM, or until the ether ends."""
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_unix_connection(options.air)
    writer.write(f"radio {NAME} {PLACE}\nlisten {' '.join(options.channel)}\n".encode())
    loop.add_signal_handler(signal.SIGTERM, reader.feed_eof)
    foreign = Foreign(options.do == "replay", options.seed)
    print("ready", flush=True)
    with suppress(ConnectionError):
        while line := (await reader.readline()).decode():
            match line.split():
                case ["heard", _, _, data]:
                    frames = foreign.hear(bytes.fromhex(data), loop.time())
                    for at in range(0, len(frames), AT_ONCE):
                        after = LISTENING + at / AT_ONCE * PAUSE
                        loop.call_later(after, _inject, writer.write, frames[at : at + AT_ONCE])
                case _:
                    raise SystemExit(f"error: the ether says: {line.strip()}")


def _inject(write: Callable[[bytes], None], frames: Sequence[bytes]) -> None:
    for frame in frames:
        write(f"inject {frame.hex()}\n".encode())


def main() -> None:
    parser = argparse.ArgumentParser(prog="hil.air.foreign")
    parser.add_argument("--air", type=Path, required=True)
    parser.add_argument("--channel", nargs=3, required=True)
    parser.add_argument("--do", choices=("replay", "forge"), required=True)
    parser.add_argument("--seed", type=int, default=1)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
