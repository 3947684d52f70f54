"""The uplink: the bytes, CPU time and memory that a reading costs between the spool and the landing
zone.

A reading is what `examples/sensor` sends: SenML-CBOR of one record, 36 bytes. Readings of one batch
share most of these bytes. The same is measured with payloads of 24 random bytes, which no format
can compress. Bytes on the wire are those that a proxy has counted between the uplink and a real
server, in both directions, without headers of TLS and TCP. `--rows N` sets the number of readings
that drain while memory is measured (5,000,000).
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gateway.config import UplinkSection
from gateway.store.schema import open_store
from gateway.uplink.batch import Origin, encode
from gateway.uplink.cutter import Cutter
from gateway.uplink.landing import open_landing
from gateway.uplink.runner import Uplink
from gateway.uplink.signing import load_or_make
from gateway.uplink.spool import Spool
from tests.benchmarks.report import Figure, report
from tests.uplink.readings import sensor_rows
from tests.uplink.servers import FaultProxy, s3_server, sftp_server

PARTS = ["sizes", "wire", "speed", "memory"]
ORIGIN = Origin("site-1", "00c0ffee")


def fill(data: Path, count: int) -> None:
    """Create a gateway's store with `count` readings of 20 devices in the spool."""
    data.mkdir(parents=True)
    database = open_store(data, "site-1")
    database.execute("PRAGMA synchronous=OFF")
    base = sensor_rows(min(count, 100_000))
    for start in range(0, count, len(base)):
        rows = (
            (
                device,
                incarnation,
                sequence + start // 20,
                device,
                topic,
                payload,
                boot,
                monotonic,
                received,
            )
            for device, incarnation, sequence, _, topic, payload, received, boot, monotonic, _ in (
                base[: count - start]
            )
        )
        database.execute("BEGIN")
        database.executemany(
            "INSERT INTO spool VALUES ((SELECT id + 1 FROM spool_last),?,?,?,?,?,?,?,?,?)", rows
        )
        database.execute("COMMIT")
    database.close()


@contextmanager
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="bench-uplink-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def config(
    path: Path, count: int, landing: str = "", options: dict[str, Any] | None = None
) -> Path:
    lines = [
        "[gateway]",
        'name = "site-1"',
        f'data = "{path}/data"',
        "[uplink]",
        f"batch_count = {count}",
    ]
    lines += [f'landing = "{landing or f"file://{path}/landing"}"', "[uplink.options]"]
    lines += [
        f"{key} = {json.dumps(value)}"
        for key, value in (options or {}).items()
        if value is not None
    ]
    (path / "gateway.toml").write_text("\n".join(lines))
    return path / "gateway.toml"


def start(settings: Path) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-c",
        "from gateway.commands.main import main; main()",
        "uplink",
        "run",
        "--once",
        "--config",
        str(settings),
    ]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def sizes() -> list[Figure]:
    def size(count: int, devices: int, payload: Callable[[], bytes] | None = None) -> float:
        return len(encode(sensor_rows(count, devices, payload), ORIGIN, 1)) / count

    def noise() -> bytes:
        return os.urandom(24)

    return [
        Figure("uplink: bytes per reading, batches of 50", size(50, 5), "B", "≤ 45"),
        Figure("uplink: bytes per reading, batches of 500", size(500, 20), "B", "≤ 20"),
        Figure("uplink: bytes per reading, batches of 5,000", size(5000, 20), "B"),
        Figure(
            "uplink: bytes per reading of 24 random bytes, batches of 50", size(50, 5, noise), "B"
        ),
        Figure(
            "uplink: bytes per reading of 24 random bytes, batches of 500",
            size(500, 20, noise),
            "B",
        ),
        Figure(
            "uplink: bytes per reading beside 24 bytes of noise, batches of 500",
            size(500, 20, noise) - 24,
            "B",
            "≤ 12",
        ),
    ]


def draining(rows: int, count: int) -> tuple[float, float]:
    """Return the uplink's CPU time for a reading in µs, and readings a second, without the cost of
    its start. rows: number of readings. count: readings in a batch.
    """
    spent = []
    for readings in (1, rows):
        with folder() as path:
            fill(path / "data", readings)
            before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            assert start(config(path, count)).wait() == 0
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            spent.append((cpu, time.perf_counter() - begun))
    (cpu_start, wall_start), (cpu, wall) = spent
    return (cpu - cpu_start) / rows * 1e6, rows / (wall - wall_start)


def speed() -> list[Figure]:
    figures = []
    for count, goal in ((500, None), (5000, "≥ 50,000")):
        cpu, rate = draining(400_000, count)
        figures += [
            Figure(f"uplink: CPU per reading, batches of {count:,}", cpu, "µs", "≤ 20"),
            Figure(
                f"uplink: readings cut, written and landed per second, batches of {count:,}",
                rate,
                "1/s",
                goal,
            ),
        ]
    return figures


def memory(rows: int) -> list[Figure]:
    """Return the uplink's highest resident memory while the spool drains, and its growth in the
    second half. S3 needs the most memory, so all rows drain to it; a tenth of them drain to each of
    the other places.
    """
    figures = []
    with folder() as path:
        (path / "sshd").mkdir()
        (path / "weed").mkdir()
        with sftp_server(path / "sshd") as sftp, s3_server(path / "weed") as s3:
            places = (
                ("a folder", rows // 10, "", None),
                ("SFTP", rows // 10, sftp.url(), sftp.options),
                ("S3", rows, s3.url(), s3.options()),
            )
            for name, count, url, options in places:
                fill(path / "data", count)
                samples = resident(start(config(path, 5000, url, options)))
                shutil.rmtree(path / "data")
                half = samples[len(samples) // 2 :]
                figures += [
                    Figure(
                        f"uplink: memory while {count:,} readings drain to {name}",
                        max(samples),
                        "MB",
                        "≤ 120",
                    ),
                    Figure(
                        f"uplink: growth of memory over the second half of that, {name}",
                        max(half) - half[0],
                        "MB",
                        "≤ 2",
                    ),
                ]
    return figures


def resident(process: subprocess.Popen[bytes]) -> list[float]:
    """Return the resident memory of a process in MB, 20 times a second until its end."""
    samples = []
    while process.poll() is None:
        samples.append(
            int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            * os.sysconf("SC_PAGE_SIZE")
            / 1e6
        )
        time.sleep(0.05)
    assert process.wait() == 0
    return [sample for sample in samples if sample]  # 0 at the moment of its end


def wire() -> list[Figure]:
    """Return the bytes that one reading costs on the wire, as the sum of both directions. The
    readings are in batches of 500. Connecting and the first batch do not count.
    """
    figures = []
    with folder() as path:
        (path / "sshd").mkdir()
        (path / "weed").mkdir()
        with sftp_server(path / "sshd") as sftp, s3_server(path / "weed") as s3:
            for name, server in (("SFTP", sftp), ("S3", s3)):
                proxy = FaultProxy(server.port)
                if server is sftp:
                    sftp.write_known_hosts(sftp.port, proxy.port)
                    url, options = sftp.url(proxy.port), sftp.options
                else:
                    url, options = s3.url(), s3.options(proxy.port)
                fill(path / name, 21 * 500)
                spool = Spool(path / name)
                settings = UplinkSection(landing=url, options=options, batch_count=500)
                uplink = Uplink(
                    spool,
                    Cutter(spool, path / name, settings),
                    settings,
                    lambda url=url, options=options: open_landing(url, options),
                    load_or_make(path / name),
                )
                marks: list[int] = []
                landed = spool.landed

                def count(cut, landed=landed, proxy=proxy, marks=marks) -> None:
                    marks.append(proxy.sent + proxy.received)
                    landed(cut)

                spool.landed = count  # type: ignore[method-assign]
                uplink.run(threading.Event(), once=True)
                spool.close()
                proxy.close()
                figures.append(
                    Figure(
                        f"uplink: bytes per reading on the wire of {name}, batches of 500",
                        (marks[-1] - marks[0]) / 500 / 20,
                        "B",
                        "≤ 25",
                    )
                )
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    arguments = parser.parse_args()
    parts = {"sizes": sizes, "wire": wire, "speed": speed, "memory": lambda: memory(arguments.rows)}
    sys.exit(not report([figure for part in arguments.parts for figure in parts[part]()]))
