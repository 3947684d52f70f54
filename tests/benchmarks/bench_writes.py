"""The bytes that a durable message costs on the disk: the life of an SD card.

One publisher, one subscriber, persistent sessions, payloads of 32 bytes, 100 messages in flight.
Bytes are from /proc/PID/io, so they include the write-ahead log, the checkpoints and the deletion
of delivered messages. The peer stores nothing. The whole gateway is the broker, which delivers and
spools, and the uplink, which cuts, lands and deletes.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.benchmarks.brokers import onceway, written_by
from tests.benchmarks.load import throughput
from tests.benchmarks.report import Figure, main

SECONDS = 5.0
_SWEPT_S = 1.5
_LANDED_S = 6.0


def measure(folder: Path, seconds: float = SECONDS) -> list[Figure]:
    figures = []
    with onceway(folder) as broker:
        for qos, goal in ((1, None), (2, "≤ 600")):
            before = broker.written
            run = throughput(broker.port, qos, False, seconds)
            time.sleep(_SWEPT_S)
            figures.append(
                Figure(
                    f"bytes to disk per durable QoS {qos} message",
                    (broker.written - before) / run.messages,
                    "B",
                    goal,
                )
            )
    return [*figures, whole(folder / "whole", seconds)]


def whole(folder: Path, seconds: float) -> Figure:
    section = f'[uplink]\nlanding = "file://{folder}/landing"\nbatch_count = 500\nbatch_age_s = 2\n'
    with onceway(folder, section, spooled="#") as broker, uplink(folder / "gateway.toml") as pid:
        before = broker.written + written_by(pid)
        run = throughput(broker.port, 2, False, seconds)
        time.sleep(_LANDED_S)
        written = broker.written + written_by(pid) - before
    return Figure(
        "bytes to disk per QoS 2 reading, by gateway and uplink",
        written / run.messages,
        "B",
        "≤ 1,500",
    )


@contextmanager
def uplink(config: Path, log: int | IO[bytes] = subprocess.DEVNULL) -> Iterator[int]:
    """Run an uplink. Yield its process id. log: file for its log."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", "uplink", "run", "--config", str(config)],
        stderr=log,
    )
    try:
        time.sleep(_SWEPT_S)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main(measure)
