"""A board with a sketch that samples and prints: `python -m hil.glue.board`. In: SIGUSR2, power on;
SIGUSR1, a power cut. Out: for each sample, a line `{"boot": 2, "n": 17, "v": 3.14}`: first in the
ledger, which is the truth, then on a pseudo-terminal at `--port`. Without a reader there, a line is
lost, as on a real board.
"""

import contextlib
import json
import os
import random
import signal
import time
import tty
from pathlib import Path
from typing import Annotated

import typer

from hil.boards.simulator import OFF_S


def main(
    port: Annotated[Path, typer.Option()],
    ledger: Annotated[Path, typer.Option()],
    readings: Annotated[int, typer.Option()],
    interval_ms: Annotated[int, typer.Option()] = 200,
) -> None:
    cuts: list[int] = []
    signal.signal(signal.SIGUSR1, lambda *_: cuts.append(1))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    master, slave = os.openpty()
    tty.setraw(slave)
    os.set_blocking(master, False)
    port.unlink(missing_ok=True)
    port.symlink_to(os.ttyname(slave))
    rng = random.Random(str(port))
    boot, number = 1, 0
    signal.sigwait({signal.SIGUSR2})
    with ledger.open("a") as truth:
        for _ in range(readings):
            time.sleep(interval_ms / 1000)
            if cuts:
                cuts.clear()
                time.sleep(OFF_S)
                boot, number = boot + 1, 0
            number += 1
            line = json.dumps({"boot": boot, "n": number, "v": round(rng.uniform(0, 5), 3)})
            truth.write(line + "\n")
            truth.flush()
            with contextlib.suppress(BlockingIOError):
                os.write(master, line.encode() + b"\r\n")
        while True:
            time.sleep(1)


if __name__ == "__main__":
    typer.run(main)
