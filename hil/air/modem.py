"""A modem as a process: a pseudo-terminal on one side, the ether on the other. In: the firmware of
a modem, which does no I/O. Out: the modem's port, to which a symbolic link points, and its radio.
SIGUSR1 resets the modem; after SIGUSR2 it accepts no bytes from the host until the next reset.
"""

import argparse
import asyncio
import os
import signal
import tty
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol


class Firmware(Protocol):
    """Firmware of a modem. It is created with the callbacks say (bytes for the host) and air (a
    line for the ether).
    """

    hangs: bool

    def reset(self) -> None:
        """Reset as after a power cut."""

    def feed(self, data: bytes) -> None:
        """Handle bytes from the host."""

    def sent(self) -> None:
        """Handle the end of the modem's own transmission."""

    def heard(self, rssi: float, snr: float, frame: bytes) -> None:
        """Handle a frame of another radio."""


Maker = Callable[[Callable[[bytes], None], Callable[[str], None]], Firmware]


def say(master: int, data: bytes) -> None:
    """Write bytes to the host. If the host does not read, the bytes are lost, as on a real port."""
    with suppress(BlockingIOError):
        os.write(master, data)


async def run(options: argparse.Namespace, maker: Maker) -> None:
    """Run a modem until SIGTERM, or until the ether ends."""
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_unix_connection(options.air)
    master, slave = os.openpty()
    tty.setraw(slave)
    os.set_blocking(master, False)
    new = options.port.with_suffix(".new")
    new.unlink(missing_ok=True)
    new.symlink_to(os.ttyname(slave))
    new.replace(options.port)

    x, y = options.at
    writer.write(f"radio {options.name} {x} {y}\n".encode())
    modem = maker(
        lambda data: say(master, data),
        lambda line: writer.write(f"{line}\n".encode()),
    )

    def hang() -> None:
        modem.hangs = True

    loop.add_reader(master, lambda: modem.feed(os.read(master, 4096)))
    loop.add_signal_handler(signal.SIGUSR1, modem.reset)
    loop.add_signal_handler(signal.SIGUSR2, hang)
    loop.add_signal_handler(signal.SIGTERM, reader.feed_eof)
    print("ready", flush=True)
    while line := (await reader.readline()).decode():
        match line.split():
            case ["sent"]:
                modem.sent()
            case ["heard", rssi, snr, data]:
                modem.heard(float(rssi), float(snr), bytes.fromhex(data))
            case _:
                raise SystemExit(f"error: the ether says: {line.strip()}")
    options.port.unlink(missing_ok=True)


def main(program: str, maker: Maker) -> None:
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("--air", type=Path, required=True)
    parser.add_argument("--port", type=Path, required=True)
    parser.add_argument("--name", default="gateway")
    parser.add_argument("--at", type=float, nargs=2, default=(0.0, 0.0))
    asyncio.run(run(parser.parse_args(), maker))
