"""Brokers as processes, and the kernel's figures about them.

In: settings. Out: a running broker with its port, and its CPU time, memory and bytes to disk so
far. Onceway is `onceway gateway run` in a folder of its own. The peer is Debian's mosquitto, which
keeps everything in memory, has no bound on messages in flight or queued, and has its default Nagle
setting. Both listen on loopback.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

MOSQUITTO = "/usr/sbin/mosquitto"
START_S = 180
_LIMITS = "[limits]\nconnections = 20000\nconnects_per_s = 1000000\nsubscriptions = 200000\n"


class BrokerProcess:
    """A broker that accepts connections. started_in: seconds from its start to its first accepted
    connection.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int, started_in: float) -> None:
        self.process = process
        self.port = port
        self.started_in = started_in
        self._proc = Path("/proc") / str(process.pid)

    @property
    def cpu_s(self) -> float:
        """CPU time of all threads so far, in seconds."""
        return self._scheduled(0)

    @property
    def starved_s(self) -> float:
        """Time for which threads were ready to run, but got no CPU, in seconds."""
        return self._scheduled(1)

    def _scheduled(self, field: int) -> float:
        return (
            sum(
                int((task / "schedstat").read_text().split()[field])
                for task in (self._proc / "task").iterdir()
            )
            / 1e9
        )

    @property
    def memory(self) -> int:
        """Resident memory, in bytes."""
        return 1024 * int((self._proc / "status").read_text().partition("VmRSS:")[2].split()[0])

    @property
    def written(self) -> int:
        """Number of bytes that the process has caused to be written to disk since its start."""
        return written_by(self.process.pid)


def written_by(pid: int) -> int:
    """Return the number of bytes that a process has caused to be written to disk until now."""
    return int(Path(f"/proc/{pid}/io").read_text().partition("\nwrite_bytes: ")[2].split()[0])


def has_peer() -> bool:
    return shutil.which(MOSQUITTO) is not None


@contextmanager
def onceway(
    folder: Path,
    limits: str = "",
    preload: Path | None = None,
    spooled: str = "sensors/#",
    name: str = "gateway",
    program: Sequence[str] = ("-m", "gateway"),
    log: int | IO[bytes] = subprocess.DEVNULL,
    **env: str,
) -> Iterator[BrokerProcess]:
    """Run a gateway of Onceway in `folder`. limits: further lines of [limits], and sections after
    it. preload: a library to load first. env: environment of the process. spooled: topic filter of
    the spool. name: name of the gateway. program: Python's arguments that run `onceway`. log: file
    for the log.
    """
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "gateway.toml"
    listener = f'listener = [{{ bind = "127.0.0.1:{port}", anonymous = true }}]'
    uplink = "" if "[uplink]" in limits else f'uplink.landing = "file://{folder}/landing"\n'
    config.write_text(
        f'{uplink}gateway.data = "{folder}/data"\ngateway.name = "{name}"\n{listener}\n'
        f'spool.topics = ["{spooled}"]\n{_LIMITS}{limits}'
    )
    command = [sys.executable, *program, "gateway", "run", "--config", str(config)]
    if preload is not None:
        env["LD_PRELOAD"] = str(preload)
    with _running(command, port, env, log) as process:
        yield process


@contextmanager
def mosquitto(folder: Path, more: str = "") -> Iterator[BrokerProcess]:
    """Run mosquitto, the peer. more: further lines of its configuration."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_inflight_messages"
        f" 0\nmax_queued_messages 0\n{more}"
    )
    with _running([MOSQUITTO, "-c", str(config)], port, {}) as process:
        yield process


@contextmanager
def side_by_side(
    folder: Path, limits: str = "", spooled: str = "sensors/#"
) -> Iterator[list[BrokerProcess]]:
    """Run Onceway, and if it is installed, the peer."""
    with onceway(folder / "onceway", limits, spooled=spooled) as ours:
        if not has_peer():
            yield [ours]
            return
        with mosquitto(folder / "mosquitto") as theirs:
            yield [ours, theirs]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _running(
    command: list[str], port: int, env: dict[str, str], log: int | IO[bytes] = subprocess.DEVNULL
) -> Iterator[BrokerProcess]:
    """Start a broker. Yield it when it accepts connections, and stop it at the end."""
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, env=os.environ | env)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > started + START_S:
                    raise
                time.sleep(0.01)
        yield BrokerProcess(process, port, time.monotonic() - started)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
