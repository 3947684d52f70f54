"""The ingest: rows a second into Delta, compared with Spark's own file source; the cost of a small
micro-batch; and how both change with the size of the table.

A row is what `examples/sensor` sends (SenML-CBOR, 36 bytes), from ten gateways of a hundred devices
each. Times are those of whole micro-batches as Spark measures them (planning, reading,
de-duplication, both tables, checkpoint), in a session that has done the same work before. The peer
reads the same files with Spark's file source, and appends them to a Delta table without any check.
`--history N` sets the number of rows of the large table.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gateway.ingest import command
from gateway.ingest.delta.tables import Table
from gateway.ingest.landing.keys import Keys, keys_url, save
from gateway.ingest.landing.offsets import Feeds
from gateway.ingest.landing.place import Landing
from gateway.ingest.prepare import prepare
from gateway.ingest.sink.publications import PUBLICATIONS
from gateway.ingest.sink.readings import READINGS
from gateway.uplink.batch import Manifest, Origin, encode, file_stem, sha256
from gateway.uplink.signing import load_or_make
from tests.benchmarks import ingest_cluster, ingest_scale
from tests.benchmarks.history import BEGIN_US, Device, make
from tests.benchmarks.report import Figure, report
from tests.uplink.readings import sensor_rows

INSIDE = ["throughput", "fixed", "finding", "skipping", "growth"]
"""Parts that run in one Spark session, after a warm-up."""
PARTS = ["start", *INSIDE, "scale", "executors"]
GATEWAYS, DEVICES = 10, 100
EPOCH = "00c0ffee"
SMALL = 1_000_000
"""Number of rows of the small table."""

TURNS = 3
FIRST = 1_000_000
"""Lowest sequence in the landed batches. The tables have only lower sequences before."""


def land(landing: Path, count: int, rows: int, first: int = 1, devices: int = DEVICES) -> None:
    """Land `count` batches from ten gateways in turn. rows: number of rows of each batch. first:
    first batch number. devices: number of devices of each gateway. The sequences of a device
    continue from batch to batch.
    """
    signer = load_or_make(landing)
    template = sensor_rows(max(rows, devices), devices)
    parts = max(1, devices // rows)
    for index in range(count):
        gateway, number = index % GATEWAYS, first + index // GATEWAYS
        origin = Origin(f"site-{gateway}", EPOCH)
        part = template[number % parts * rows :][:rows]
        held = [
            (f"g{gateway}-{row[0]}", row[1], FIRST + row[2] + number * rows // devices, *row[3:])
            for row in part
        ]
        data = encode(held, origin, number)
        manifest = Manifest(origin, number, rows, len(data), sha256(data))
        (landing / origin.folder).mkdir(parents=True, exist_ok=True)
        (landing / manifest.data_name).write_bytes(data)
        (landing / manifest.name).write_bytes(signer.publish(manifest))


def senders(devices: int) -> list[Device]:
    """Return name and incarnation of every device in the batches of `land`."""
    return [
        (f"g{gateway}-{row[0]}", row[1])
        for gateway in range(GATEWAYS)
        for row in sensor_rows(devices, devices)
    ]


class Place:
    """A landing zone and its table. writer: value of the option --writer of `onceway ingest
    run`.
    """

    def __init__(self, spark: Any, folder: Path, writer: str = "fast") -> None:
        self.spark = spark
        self.folder = folder
        self.writer = writer
        self.landing, self.table, self.checkpoint = (
            folder / "landing",
            folder / "table",
            folder / "checkpoint",
        )
        self.landing.mkdir(parents=True, exist_ok=True)
        key = load_or_make(self.landing).public
        save(keys_url(str(self.table)), Keys({f"site-{n}": [key] for n in range(GATEWAYS)}))

    @property
    def options(self) -> list[str]:
        return [
            "--landing",
            str(self.landing),
            "--table",
            str(self.table),
            "--checkpoint",
            str(self.checkpoint),
            "--writer",
            self.writer,
            "--available-now",
        ]

    def run(self, rows: int = 500_000) -> list[float]:
        """Ingest all landed batches, with at most `rows` rows in a micro-batch. Return the seconds
        of each micro-batch with rows.
        """
        from gateway.ingest.jobs import stream

        query, sink = stream.start(
            self.spark, stream.parse_arguments([*self.options, "--rows", str(rows)])
        )
        found = finished(query)
        sink.save()
        return found


def finished(query: Any) -> list[float]:
    query.awaitTermination()
    progress = [json.loads(one.json) for one in query.recentProgress]
    return [one["durationMs"]["triggerExecution"] / 1000 for one in progress if one["numInputRows"]]


def file_source(spark: Any, place: Place, files: int) -> float:
    """Return the seconds that Spark's own file source takes for the same files, without any
    check.
    """
    schema = spark.read.parquet(str(next(place.landing.rglob("*.parquet")))).schema
    rows = (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", files)
        .parquet(str(place.landing / "*" / "*" / "*.parquet"))
    )
    writer = rows.writeStream.format("delta").option(
        "checkpointLocation", str(place.folder / "peer-checkpoint")
    )
    return sum(finished(writer.trigger(availableNow=True).start(str(place.folder / "peer"))))


def throughput(spark: Any, folder: Path) -> list[Figure]:
    figures = []
    for count, rows, goal in ((200, 5000, "≥ 100,000"), (2000, 500, "≥ 80,000")):
        place = Place(spark, folder / f"rate-{rows}")
        land(place.landing, count, rows)
        peer = file_source(spark, place, 500_000 // rows)
        ours = sum(place.run())
        name = f"{count:,} batches of {rows:,} rows"
        figures += [
            Figure(
                f"ingest: rows per second, {name}",
                count * rows / ours,
                "1/s",
                goal,
                count * rows / peer,
            ),
            Figure(f"ingest: speed against Spark's file source, {name}", peer / ours, "", "≥ 1.0"),
        ]
        shutil.rmtree(place.folder)
        public = Place(spark, folder / f"public-{rows}", "public")
        land(public.landing, count, rows)
        took = sum(public.run())
        figures.append(
            Figure(f"ingest: rows per second, {name}, public writer", count * rows / took, "1/s")
        )
        shutil.rmtree(public.folder)
    return figures


def fixed_cost(spark: Any, folder: Path) -> list[Figure]:
    figures = []
    for writer, name, goal in (("fast", "", "≤ 1"), ("public", ", public writer", None)):
        place = Place(spark, folder / f"fixed-{writer}", writer)
        land(place.landing, 10, 100)
        took = statistics.median(place.run(100))
        figures.append(Figure(f"ingest: a micro-batch of 100 rows{name}", took, "s", goal))
    return figures


def growth(spark: Any, folder: Path, history: int) -> list[Figure]:
    """Measure micro-batches of 50,000 rows in three tables with different numbers of rows and
    devices. The measurements of the tables alternate.
    """
    tables = {"few": (SMALL, 1000), "many": (SMALL, 100_000), "large": (history, 100_000)}
    places = {name: Place(spark, folder / name) for name in tables}
    for name, (rows, devices) in tables.items():
        make(spark, places[name].table, rows, senders(devices // GATEWAYS))
    times: dict[str, list[float]] = {name: [] for name in tables}
    for turn in range(TURNS):
        for name, (_, devices) in tables.items():
            land(places[name].landing, 30, 5000, 1 + 3 * turn, devices // GATEWAYS)
            times[name] += places[name].run(50_000)[1:]
    few, many, large = (statistics.median(times[name]) for name in tables)
    return [
        Figure(
            f"ingest: a micro-batch of 50,000 rows, table of {history:,} rows and 100,000 devices",
            large,
            "s",
            "≤ 1.5",
        ),
        Figure(
            f"ingest: that time at {history:,} rows against {SMALL:,} rows",
            large / many,
            "",
            "≤ 1.2",
        ),
        Figure("ingest: that time with 100,000 devices against 1,000", many / few, "", "≤ 1.2"),
    ]


def finding(folder: Path) -> list[Figure]:
    """Measure a pass over gateways without new batches. Only their two newest batches exist,
    because the ingest reads no older ones.
    """
    offset = {}
    for gateway in range(10_000):
        feed = f"site-{gateway}/{EPOCH}"
        (folder / feed).mkdir(parents=True)
        for number in (9_999, 10_000):
            (folder / feed / f"{file_stem(number)}.json").touch()
        offset[feed] = 10_000
    feeds = Feeds(Landing(str(folder)))
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        assert feeds.advance(offset, 1) == offset
        times.append(time.perf_counter() - begun)
    return [
        Figure(
            "ingest: a pass over 10,000 gateways with 10,000 old batches each",
            max(times),
            "s",
            "≤ 5",
        )
    ]


def skipping(spark: Any, folder: Path) -> list[Figure]:
    """Measure the share of files that a query for one device and one day reads, after `compact`, in
    a table of 1,000 devices. Days and files are small, so there are as many files as after a year.
    """
    from gateway.ingest.jobs import compact

    days, each = 30, 24
    devices = [(f"device-{number:04d}", number) for number in range(1000)]
    rows = len(devices) * each
    path, step = folder / "skipping", 86_400_000_000 // rows
    make(spark, path, days * rows, devices, file_rows=rows, step_us=step)
    compact.LARGE_FILE, whole = 64 * 1024, compact.LARGE_FILE
    begun = time.perf_counter()
    tables = [
        Table(spark, f"{path}{suffix}", layout)
        for suffix, layout in (("", PUBLICATIONS), ("_readings", READINGS))
    ]
    compact.compact(spark, *tables)
    took = time.perf_counter() - begun
    compact.LARGE_FILE = whole
    figures = [Figure(f"ingest: compact of {2 * days * rows:,} rows", took, "s")]
    for table in tables:
        shares = []
        for number, day in ((3, 2), (500, 16), (999, 29)):
            read, total = files_read(table.read(), devices[number][0], day, each)
            shares.append(100 * read / total)
        name = table.name.rpartition("/")[2].replace("skipping", "publications", 1)
        what = f"ingest: files read for one device and one day, of {total} of {name}"
        figures.append(Figure(what, max(shares), "%", "≤ 5"))
    return figures


def files_read(rows: Any, device: str, day: int, expected: int) -> tuple[int, int]:
    """Return the number of files that Delta reads for the rows of a device and a day, and the
    number of all files of the table. expected: number of those rows.
    """
    begin = f"timestamp_micros({BEGIN_US + day * 86_400_000_000})"
    found = rows.where(
        f"device = '{device}' and received >= {begin} and received < {begin} + interval 1 day"
    )
    assert found.count() == expected
    return len(found.inputFiles()), len(rows.inputFiles())


def inside(folder: Path, parts: list[str], history: int) -> None:
    """Measure the parts that need Spark. spark-submit calls this function."""
    from gateway.ingest.jobs.session import open_session

    spark = open_session()
    warm = Place(spark, folder / "warm")
    land(warm.landing, 100 if "throughput" in parts else 20, 5000)
    warm.run(100_000)
    figures: list[Figure] = []
    if "throughput" in parts:
        file_source(spark, warm, 20)
        figures += throughput(spark, folder)
    if "fixed" in parts:
        figures += fixed_cost(spark, folder)
    if "finding" in parts:
        figures += finding(folder / "finding")
    if "skipping" in parts:
        figures += skipping(spark, folder)
    if "growth" in parts:
        figures += growth(spark, folder, history)
    spark.stop()
    (folder / "met").write_text(str(report(figures)))


def start(folder: Path) -> list[Figure]:
    """Measure the time from the start of the ingest, with everything prepared, to the first rows in
    a new table, with its steps. For comparison, measure the start of Spark alone; the two are
    measured in turns.
    """
    prepare(None, print)
    ours: dict[str, list[float]] = {}
    bare = []
    for turn in range(TURNS):
        place = Place(None, folder / str(turn))
        land(place.landing, 1, 100)
        begun = time.time()
        _run(command.build("jobs/stream.py", place.options, downloaded=True))
        commits = sorted((place.table / "_delta_log").glob("*.json"))
        first = next(one for one in commits if '"add"' in one.read_text())
        steps = {
            "the table is made": commits[0],
            "its batches are found": place.checkpoint / "offsets" / "0",
            "its files are written": max(place.table.glob("*.parquet"), key=modified),
            "": first,
        }
        for step, made in steps.items():
            ours.setdefault(step, []).append(modified(made) - begun)
        script = str(Path(__file__).with_name("bare_spark.py"))
        begun = time.time()
        _run(command.build(script, [str(place.folder)], downloaded=True, archive="leave"))
        bare.append(modified(place.folder / "done") - begun)
    medians = {step: statistics.median(times) for step, times in ours.items()}
    took, alone = medians.pop(""), statistics.median(bare)
    return [
        *(Figure(f"ingest: from its start until {step}", at, "s") for step, at in medians.items()),
        Figure("ingest: from its start to the first rows, new table", took, "s", "≤ 15", alone),
        Figure(
            "ingest: that against Spark alone, a session and one row", took / alone, "", "≤ 1.5"
        ),
    ]


def modified(path: Path) -> float:
    return path.stat().st_mtime


def _run(job: command.Job) -> None:
    line = job.first()
    subprocess.run(
        line.arguments,
        env={**os.environ, **line.environment},
        check=True,
        stderr=subprocess.DEVNULL,
    )


def restart(folder: Path) -> bool:
    """Measure the time from the start of the ingest to its first commit in the large table, first
    with and then without its snapshots. Return whether the goals are met.
    """
    place = Place(None, folder / "large")
    figures = []
    for number, (what, goal) in enumerate(
        (("", "≤ 20"), (", snapshots lost", "≤ 60")), 1 + 3 * TURNS
    ):
        land(place.landing, GATEWAYS, 5000, number, 100_000 // GATEWAYS)
        if number > 1 + 3 * TURNS:
            shutil.rmtree(place.table / "_onceway")
        log = place.table / "_delta_log"
        before = max(log.glob("*[0-9].json"))
        begun = time.time()
        _run(command.build("jobs/stream.py", place.options))
        first = log / f"{int(before.stem) + 1:020d}.json"
        figures.append(
            Figure(
                f"ingest: from its start to the first commit, large table{what}",
                first.stat().st_mtime - begun,
                "s",
                goal,
            )
        )
    return report(figures)


def executors(folder: Path) -> list[Figure]:
    """Measure rows a second on a standalone Spark cluster on this machine. More executors than
    cores cannot make the ingest faster.
    """
    figures, alone = [], 0.0
    for count in (1, 2, 4):
        place = Place(None, folder / str(count))
        land(place.landing, 200, 5000)
        rate = ingest_cluster.rows_per_second(place.folder, place.options, count)
        alone = alone or rate
        name = f"{count} executors of one core, of {os.cpu_count()} here"
        figures.append(Figure(f"ingest: rows per second, {name}", rate, "1/s"))
        figures.append(Figure(f"ingest: that against one executor, {count}", rate / alone, ""))
        shutil.rmtree(place.folder)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--history", type=int, default=50_000_000)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside(arguments.inside, arguments.parts, arguments.history)
        return 0
    folder = Path(tempfile.mkdtemp(prefix="bench-ingest-"))
    met = True
    try:
        if "start" in arguments.parts:
            met = report(start(folder / "start"))
        if set(INSIDE).intersection(arguments.parts):
            options = ["--inside", str(folder), "--history", str(arguments.history)]
            options += ["--parts", *arguments.parts]
            line = command.build(str(Path(__file__).resolve()), options).submitted()
            subprocess.run(line.arguments, env={**os.environ, **line.environment}, check=True)
            met = (folder / "met").read_text() == "True" and met
        if "growth" in arguments.parts:
            met = restart(folder) and met
        if "scale" in arguments.parts:
            met = (
                report([*ingest_scale.requests(folder / "requests"), *ingest_scale.memory()])
                and met
            )
        if "executors" in arguments.parts:
            met = report(executors(folder / "executors")) and met
        return not met
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
