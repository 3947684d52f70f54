"""A tap between the gateway and a real KISS modem, in place of the ether: `python -m
hil.air.modem_tap --modem PORT --port LINK --factor N --boards NUMBER=NAME ...`.

In: bytes of the modem's port, and of a pseudo-terminal to which LINK points. Out:

- the same bytes in the other direction, unchanged;
- each frame that the modem sent or heard as a line of JSON, in the form of the ether (server.py,
  `--tell`);
- at the end the airtime of each radio, as far as its frames were heard, and each breach of the law.

The tap cannot see whether a board heard a frame of the gateway; its lines say that the board did.
"""

import argparse
import asyncio
import os
import signal
import time
import tty
from collections.abc import Callable
from pathlib import Path
from typing import Any

import serial

from hil.air.kiss_modem import DATA, HARDWARE, TX_DONE, unwrap
from hil.air.law import Judge
from hil.air.physics import Channel, airtime
from hil.air.server import EU868_P, say

GATEWAY = "gateway"
BAUD = 115_200
LONGEST = 1100
"""Length of the longest KISS frame, with escapes, in bytes."""
FAST = 8
"""Highest spreading factor with 32 symbols of preamble. At higher ones, the modem sends 16."""
POWER = 14.0
"""Power of boards and gateway in a run, in dBm."""

Tell = Callable[[str, dict[str, Any]], None]


class Tap:
    """Reader of the bytes between gateway and modem. boards: names by number in the network.
    `nobody` stands for a board that is not in `boards`.
    """

    def __init__(self, boards: dict[int, str], factor: int, tell: Tell) -> None:
        self._boards = boards
        self._channel = Channel(EU868_P, 125_000, factor)
        self._tell = tell
        self._partial = {"up": b"", "down": b""}
        self._pending = b""
        self._judge = Judge()
        self._sent = {name: [0, 0.0] for name in (GATEWAY, *boards.values())}
        """Number of frames, and seconds of airtime, by radio."""

    def feed(self, direction: str, data: bytes) -> None:
        """Handle bytes. direction: `up` from the modem, `down` from the gateway."""
        *frames, rest = (self._partial[direction] + data).split(b"\xc0")
        self._partial[direction] = rest[-LONGEST:]
        for frame in map(unwrap, frames):
            match direction, frame[:1], frame[1:2]:
                case "down", kind, _ if kind == bytes((DATA,)):
                    self._pending = frame[1:]
                case "up", kind, _ if kind == bytes((DATA,)):
                    self._record_frame(self._of(frame[1:]), GATEWAY, frame[1:])
                case "up", kind, what if (kind, what) == (bytes((HARDWARE,)), bytes((TX_DONE,))):
                    if frame[2:3] == b"\x01" and self._pending:
                        self._record_frame(GATEWAY, self._of(self._pending), self._pending)
                    self._pending = b""

    def report(self) -> None:
        for name, (frames, seconds) in self._sent.items():
            hours = [used for key, used in self._judge.worst.items() if key[0] == name]
            counts = {"line": name, "sent": frames, "airtime": seconds}
            self._tell("radio", {**counts, "hour": max(hours, default=0.0)})
        for breach in self._judge.breaches:
            self._tell("breach", {"why": breach})

    def _of(self, frame: bytes) -> str:
        return self._boards.get(int.from_bytes(frame[1:2], "big"), "nobody")

    def _record_frame(self, sender: str, to: str, frame: bytes) -> None:
        now = time.monotonic_ns()
        fields = {"t": now, "from": sender, "to": [to], "frame": frame.hex()}
        self._tell("frame", fields)
        if sender in self._sent:
            slow = self._channel.factor > FAST
            preamble = 8 if sender != GATEWAY else 16 if slow else 32
            took = airtime(self._channel, 1, preamble, len(frame))
            self._sent[sender][0] += 1
            self._sent[sender][1] += took
            end = now / 1e9
            self._judge.sent(sender, EU868_P, 125_000, POWER, end - took, end)


async def run(options: argparse.Namespace) -> None:
    """Run until SIGTERM."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    boards = dict(one.split("=", 1) for one in options.boards)
    tap = Tap({int(number): name for number, name in boards.items()}, options.factor, say)
    port = serial.Serial(str(options.modem), BAUD, timeout=0)
    modem = port.fileno()
    master, slave = os.openpty()  # the slave stays open, so no hang-up without a gateway
    tty.setraw(slave)
    os.set_blocking(master, False)
    options.port.symlink_to(os.ttyname(slave))

    def carry(direction: str, source: int, target: int) -> None:
        data = os.read(source, 4096)
        tap.feed(direction, data)
        os.write(target, data)

    loop.add_reader(modem, carry, "up", modem, master)
    loop.add_reader(master, carry, "down", master, modem)
    loop.add_signal_handler(signal.SIGTERM, over.set)
    print("ready", flush=True)
    await over.wait()
    tap.report()
    port.close()
    options.port.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="hil.air.modem_tap")
    parser.add_argument("--modem", type=Path, required=True)
    parser.add_argument("--port", type=Path, required=True)
    parser.add_argument("--factor", type=int, required=True)
    parser.add_argument("--boards", nargs="+", required=True, metavar="NUMBER=NAME")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
