"""Throughput of the broker, beside Debian's mosquitto on the same machine in the same minutes.

One publisher, one subscriber, 32-byte payloads all alike (the best case for a broker that takes runs of alike packets in one step, as ours
does), window 100 (1,000 at QoS 0, where nothing holds a publisher back), a topic that does not go to the spool. Ours is durable with
persistent sessions; mosquitto keeps everything in memory. The two take turns, and the median of the rounds counts.
"""

import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.load import throughput
from tests.benchmarks.report import Figure, report

ROUNDS = 3
MESSAGES = {0: 200_000, 1: 40_000, 2: 30_000}
GOALS = {(False, 0): 2.4, (False, 1): 2.4, (False, 2): 2.4, (True, 0): 2.5, (True, 1): 4.5, (True, 2): 4.5}
MOSQUITTO = "/usr/sbin/mosquitto"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(command: list[str], port: int) -> Iterator[None]:
    """A broker as a process, from the moment it takes connections to its end."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(20)


def main() -> bool:
    if not shutil.which(MOSQUITTO):
        sys.exit("error: mosquitto is not installed; `make bench` installs it")
    figures = []
    with tempfile.TemporaryDirectory(prefix="onceway-bench-") as folder:
        ours, theirs = free_port(), free_port()
        settings = Path(folder) / "mosquitto.conf"
        settings.write_text(f"listener {theirs} 127.0.0.1\nallow_anonymous true\nmax_inflight_messages 0\nmax_queued_messages 0\n")
        onceway = str(Path(sys.executable).with_name("onceway"))
        config = Path(folder) / "gateway.toml"
        listener = f'[{{ bind = "127.0.0.1:{ours}", anonymous = true }}]'
        config.write_text(f'gateway.data = "{folder}/data"\nlistener = {listener}\nspool.topics = ["sensors/#"]\n')
        gateway = [onceway, "gateway", "run", "--config", str(config)]
        with serving(gateway, ours), serving([MOSQUITTO, "-c", str(settings)], theirs):
            for (clean, qos), goal in GOALS.items():
                window = 1000 if qos == 0 else 100
                pairs = [[throughput(port, qos, clean, window, MESSAGES[qos]) for port in (ours, theirs)] for _ in range(ROUNDS)]
                mine, peer = (statistics.median(column) for column in zip(*pairs, strict=True))
                sessions = "clean sessions" if clean else "durable"
                figures.append(Figure(f"QoS {qos} messages, {sessions}, × mosquitto", mine / peer, f"× ({mine:,.0f}/s)", f"≥ {goal}", 1.0))
    return report(figures)


if __name__ == "__main__":
    sys.exit(not main())
