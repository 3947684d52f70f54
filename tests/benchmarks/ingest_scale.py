"""The costs of the ingest for a large fleet: requests to an object store, and the driver's memory.
It needs no Spark, and is a part of `bench_ingest.py`.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec

from gateway.ingest.landing import directory, offsets
from gateway.ingest.landing.offsets import Feeds
from gateway.ingest.landing.place import Landing
from gateway.uplink.batch import Manifest, Origin
from gateway.uplink.manifest import marker_name
from tests.benchmarks.report import Figure
from tests.uplink.servers import s3_server

GATEWAYS = 10_000
EPOCH = "00c0ffee"
PASSES, PAUSE_S = 6, 30.0
DEVICES = 1_000_000


class Clock:
    now = 1e6

    def monotonic(self) -> float:
        return self.now


@contextmanager
def counted() -> Iterator[list[str]]:
    """Yield a list to which the method of each HTTP request to S3 is added, during a `with`
    block.
    """
    from aiobotocore.httpsession import AIOHTTPSession

    sent: list[str] = []
    real = AIOHTTPSession.send

    async def send(self: Any, request: Any) -> Any:
        sent.append(request.method)
        return await real(self, request)

    AIOHTTPSession.send = send
    try:
        yield sent
    finally:
        AIOHTTPSession.send = real


def requests(folder: Path) -> list[Figure]:
    """Return the requests to a real S3 server in one pass over gateways without new batches, with
    and without the markers of their uplinks.

    With markers, it is the mean of passes that are 30 s apart on a simulated clock. Requests at a
    start do not count, nor does the search for holes without markers (17 requests for each gateway
    and minute).
    """
    folder.mkdir()
    origins = [Origin(f"site-{number}", EPOCH) for number in range(GATEWAYS)]
    offset = {origin.folder: 1 for origin in origins}
    clock = Clock()
    with (
        s3_server(folder) as server,
        _in_place(directory, "time", clock),
        _in_place(Feeds, "_behind_cleaned", lambda self, feed, number: number),
    ):
        fsspec.config.conf["s3"] = server.options()
        fs, root = fsspec.core.url_to_fs(server.url(), skip_instance_cache=True)
        manifests = [Manifest(origin, 1, 1, 1, "0" * 64) for origin in origins]
        fs.pipe({f"{root}/{one.name}": one.to_json() for one in manifests})

        def mean(passes: int) -> float:
            feeds = Feeds(Landing(server.url()))
            assert feeds.advance(offset, sys.maxsize) == offset
            with counted() as sent:
                for _ in range(passes):
                    clock.now += PAUSE_S
                    assert feeds.advance(offset, sys.maxsize) == offset
            return len(sent) / passes

        with _in_place(Feeds, "_look_for_holes", lambda self, waiting, offset: None):
            before = mean(1)
        fs.pipe({f"{root}/{marker_name(origin, 1)}": b"" for origin in origins})
        with _in_place(offsets, "HOLE_CHECK_SECONDS", 0.0):
            after = mean(PASSES)
    return [
        Figure(
            f"ingest: requests of a pass over {GATEWAYS:,} gateways without news, by markers",
            after,
            "",
            "≤ 0.05 × peer",
            before,
        )
    ]


@contextmanager
def _in_place(module: Any, name: str, value: Any) -> Iterator[None]:
    real = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, real)


MEASURE = """
import resource, sys
from gateway.ingest.dedup import snapshot
from gateway.ingest.dedup.ranges import Ranges, SeenRanges
from tests.benchmarks.ingest_scale import rss, ranges
count = int(sys.argv[1])
one = SeenRanges()
one.add(ranges(0, 1000))
saved = snapshot.encode(snapshot.Snapshot(one, 1, "t"))
snapshot.decode(saved)  # what is imported by that
before = rss()
held = SeenRanges()
for first in range(0, count, 50_000):
    held.add(ranges(first, 50_000))
print((rss() - before) / count)
data = snapshot.encode(snapshot.Snapshot(held, 1, "t"))
del held
import gc, ctypes
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
before = rss()
resource_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
loaded = snapshot.decode(data)
print((rss() - before) / count)
"""


def rss() -> int:
    """Return the resident memory of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def ranges(first: int, count: int) -> Any:
    """Return one range for each of `count` devices, as a micro-batch adds them."""
    import pyarrow as pa

    from gateway.ingest.dedup.ranges import RANGES, Ranges

    names = [f"site-{number // 100}-{number % 100:03d}" for number in range(first, first + count)]
    columns = (
        names,
        [number * 2654435761 % 2**32 for number in range(first, first + count)],
        [1] * count,
        [4711] * count,
    )
    return Ranges.of(pa.table(dict(zip(RANGES.names, columns, strict=True)), RANGES))


def memory() -> list[Figure]:
    """Measure the driver's memory for the seen ranges, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(DEVICES)],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    came, loaded = map(float, done.stdout.split())
    return [
        Figure(f"ingest: driver's memory per device, {DEVICES:,} devices", came, "B", "≤ 300"),
        Figure(
            f"ingest: the same after a start from a snapshot, {DEVICES:,} devices",
            loaded,
            "B",
            "≤ 300",
        ),
    ]
