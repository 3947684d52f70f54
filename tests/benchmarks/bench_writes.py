"""Bytes that a durable message costs on the disk: the life of an SD card.

One publisher, one subscriber, persistent sessions, 32-byte payloads, window 100; from /proc/PID/io, and so with the write-ahead log, the
checkpoints and the deletion of what was delivered. The peer keeps nothing.
"""

import time
from pathlib import Path

from tests.benchmarks.brokers import onceway
from tests.benchmarks.load import throughput
from tests.benchmarks.report import Figure, main

SECONDS = 5.0
_SWEPT_S = 1.5


def measure(folder: Path, seconds: float = SECONDS) -> list[Figure]:
    figures = []
    with onceway(folder) as broker:
        for qos, goal in ((1, None), (2, "≤ 600")):
            before = broker.written
            run = throughput(broker.port, qos, False, seconds)
            time.sleep(_SWEPT_S)
            figures.append(Figure(f"bytes to disk per durable QoS {qos} message", (broker.written - before) / run.messages, "B", goal))
    return figures


if __name__ == "__main__":
    main(measure)
