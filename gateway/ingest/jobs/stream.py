"""The Structured Streaming job, which brings batches of a landing place into a Delta table, each
publication once. It is started with spark-submit, or directly with Spark's options in
PYSPARK_SUBMIT_ARGS.

In: a landing URL, a table (path, URL or catalog name) and a checkpoint URL. Out: the table; one
line per micro-batch on standard error. `onceway ingest command` prints the whole command for an
installation.
"""

import argparse
import json
import logging
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from gateway.errors import OncewayError
from gateway.ingest import memory, places
from gateway.ingest.dedup import snapshot
from gateway.ingest.dedup.taken import Feeds
from gateway.ingest.delta.causes import cause_of, explained, is_java_gone
from gateway.ingest.delta.local_disk import local_path
from gateway.ingest.delta.storage import Folder, LocalFolder, open_folder
from gateway.ingest.delta.tables import Table, absolute, absolute_folder, is_named, sibling_table
from gateway.ingest.delta.writers import WriterName
from gateway.ingest.exit_codes import SOMEBODY_SHOULD_LOOK
from gateway.ingest.jobs.assembly import open_sink
from gateway.ingest.jobs.checkpoint import is_used, make_fit, refuse_foreign, set_aside
from gateway.ingest.jobs.release import take_whole, try_again
from gateway.ingest.jobs.script import STOPS, run_script, say_unexpected
from gateway.ingest.jobs.session import close_session, open_session
from gateway.ingest.landing import keys, trust
from gateway.ingest.landing.place import NOTHING_LANDED, Landing, error_text, reached
from gateway.ingest.report import job, stopped
from gateway.ingest.report.job import EVERY_S
from gateway.ingest.report.progress import note
from gateway.ingest.sink.foreach_batch import Sink
from gateway.ingest.sink.publications import PUBLICATIONS
from gateway.ingest.sink.row_batch import RowBatch
from gateway.system.amounts import amount
from gateway.system.durations import seconds

DAMAGED_HELP = (
    "skip: put a damaged batch into quarantine and continue with its feed; wait: hold the feed"
    " until the batch is repaired (default skip)"
)

SETTLE_HELP = (
    "for a landing place that is copied here (rclone, rsync): how long a batch may be incomplete,"
    " e.g. 10m, before it counts as damaged (default 0s)"
)

WRITER_HELP = (
    "fast: write by Delta's own classes; public: by its public API; auto: as the table allows"
    " (default auto)"
)
TRUSTED_HELP = "file of the gateways' keys (default: beside the table, TABLE_trusted.json)"

log = logging.getLogger("onceway.ingest")

SOURCE_FAILED = ("PYTHON_STREAMING_DATA_SOURCE", "Python worker")
"""Words in Spark's message about an error of `source.py`, or of its process."""

SHOWN = 5
"""Largest number of feeds that a message names."""

STEADY_S = 60.0
"""Running time, in seconds, after which the ingest counts as started even without a micro-batch.
The recorded reason of the last stop is then deleted.
"""
TRY_AGAIN_S = 600.0
"""Seconds between two attempts to read the unreadable batches in quarantine again."""
COPIED_S = 10.0
"""Lower bound of the time between two attempts, in seconds, if `--settle` makes it shorter than
TRY_AGAIN_S.
"""
LOOK_S = 1
"""Seconds between two checks for a stop request, and between two checks of Spark's progress."""
PATIENCE_S = 30.0
"""Longest time, in seconds, for which a running micro-batch may continue after a stop request."""
ENDED_S = 0.02
"""Seconds between two checks whether the micro-batch has ended."""


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "stream.py",
        description="Take batches from a landing place into a Delta table, each publication once.",
    )
    parser.add_argument(
        "--landing",
        required=True,
        type=places.typed,
        metavar="URL",
        help="where the gateways' uplinks put batches",
    )
    parser.add_argument(
        "--table",
        required=True,
        type=places.typed,
        metavar="PATH_OR_NAME",
        help="Delta table for the publications; created if it does not exist",
    )
    parser.add_argument(
        "--checkpoint",
        required=True,
        type=places.typed,
        metavar="URL",
        help="folder for Spark's record of the batches read",
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=memory.rows(),
        metavar="N",
        help=f"row limit of a micro-batch (default {memory.ROWS}, fewer below 4 GB of memory)",
    )
    parser.add_argument("--writer", choices=get_args(WriterName), default="auto", help=WRITER_HELP)
    parser.add_argument("--trusted", type=places.typed, metavar="URL", help=TRUSTED_HELP)
    parser.add_argument("--damaged", choices=["skip", "wait"], default="skip", help=DAMAGED_HELP)
    parser.add_argument("--settle", type=_time, default=0.0, metavar="TIME", help=SETTLE_HELP)
    when = parser.add_mutually_exclusive_group()
    when.add_argument(
        "--available-now", action="store_true", help="read the batches that have landed, and stop"
    )
    when.add_argument(
        "--every",
        type=_time,
        default=30.0,
        metavar="TIME",
        help="time between checks for new batches, e.g. 30s, 5m (default 30s)",
    )
    parser.set_defaults(held_file="")
    return parser.parse_args(arguments)


def _time(text: str) -> float:
    try:
        return seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def start(spark: SparkSession, options: argparse.Namespace) -> tuple[StreamingQuery, Sink]:
    """Prepare the tables and start the query. If Spark cannot start from the checkpoint, rename the
    checkpoint, and start without one.
    """
    checkpoint = absolute_folder(options.checkpoint)
    refuse_foreign(spark, checkpoint)
    sink, source = prepare(spark, options)
    make_fit(spark, checkpoint, sink.progress.feeds)
    try:
        return _begin(spark, options, sink, source), sink
    except (PySparkException, Py4JJavaError) as error:
        if not is_used(spark, checkpoint):
            raise
        set_aside(
            spark, checkpoint, f"Spark does not start with this checkpoint ({cause_of(error)})"
        )
        return _begin(spark, options, sink, source), sink


def _begin(
    spark: SparkSession, options: argparse.Namespace, sink: Sink, source: dict[str, str]
) -> StreamingQuery:
    rows = spark.readStream.format("onceway").options(**source).load()
    writer = (
        rows.writeStream.foreachBatch(sink)
        .option("checkpointLocation", absolute_folder(options.checkpoint))
        .queryName("onceway-ingest")
    )
    writer = (
        writer.trigger(availableNow=True)
        if options.available_now
        else writer.trigger(processingTime=f"{options.every:.3f} seconds")
    )
    return writer.start()


def prepare(spark: SparkSession, options: argparse.Namespace) -> tuple[Sink, dict[str, str]]:
    """Open the tables, read the commits of other writers, and read unreadable batches in quarantine
    again. Missing tables are created. Return the sink and the options of the source (`source.py`).
    Raises OncewayError if the table has batches, but the landing place is empty.
    """
    sink = open_sink(spark, options.landing, options.table, options.writer)
    refuse_emptied(Landing(options.landing), sink)
    trusted = _trusted(options, sink)
    trust.say_how(trusted, sink.signed)
    sink.catch_up()
    _try_again(spark, options, sink)
    return sink, {
        "landing": absolute_folder(options.landing),
        "taken": json.dumps(sink.progress.feeds),
        "rows": str(options.rows),
        "tasks": str(spark.sparkContext.defaultParallelism * 2),
        "damaged": options.damaged,
        "settle": str(options.settle),
        "trusted": trusted,
        "signed": str(sink.signed).lower(),
        "publications": sink.locations["publications"],
        "readings": sink.locations["readings"],
        "available_now": str(options.available_now).lower(),
        "held": options.held_file,
        "files": str(not issubclass(sink.batches, RowBatch)).lower(),
    }


def _trusted(options: argparse.Namespace, sink: Sink) -> str:
    """Return the URL of the file of keys: the option `--trusted`, or the table's own file."""
    return str(options.trusted or keys.keys_url(sink.locations["publications"]))


def _try_again(spark: SparkSession, options: argparse.Namespace, sink: Sink) -> None:
    """Read batches in quarantine again: those that were unreadable and, with `--settle`, those that
    were only half copied.
    """
    trusted = trust.Trust(_trusted(options, sink), sink.signed)
    landing = Landing(options.landing)
    try:
        try_again(spark, sink, landing, trusted)
        if options.settle:
            take_whole(spark, sink, landing, trusted)
    except OSError as error:
        log.warning("the landing place cannot be read now: %s", error_text(error))


def refuse_nested(options: argparse.Namespace) -> None:
    """Raise OncewayError if the checkpoint or the landing place is in a table's folder, where
    `compact` deletes unreferenced files. Also raise it if the checkpoint and the landing place are
    the same folder.
    """
    checkpoint, landing = folder(options.checkpoint), folder(options.landing)
    tables = [] if is_named(options.table) else [folder(options.table)]
    tables += [sibling_table(table, "readings") for table in tables]
    for option, path in (("--checkpoint", checkpoint), ("--landing", landing)):
        others = [*tables, landing] if path == checkpoint else tables
        for other in others:
            if path == other or (other in tables and path.startswith(f"{other}/")):
                raise OncewayError(
                    f"{option} is in the folder {other}", path, f"Name another folder with {option}"
                )


def folder(url: str) -> str:
    """Return a local folder, given as a path or URL, as an absolute path. Other URLs are
    unchanged.
    """
    return absolute_folder(url).removeprefix("file://").removeprefix("file:")


def refuse_emptied(landing: Landing, sink: Sink) -> None:
    """Raise OncewayError if the table has batches, but no gateway has ever landed one at this
    landing place.
    """
    if sink.progress.feeds and not landing.any_feed():
        raise OncewayError(
            f"the landing place is empty, but {progress_text(sink.progress.feeds)}",
            landing.url,
            "Check that this is the right place, and that it is mounted. If it was emptied on"
            " purpose, start the ingest after a gateway has landed a batch",
        )


def run(options: argparse.Namespace) -> int:
    """Run the job and return the exit code. Raises OncewayError, or Spark's error if no session can
    be opened.
    """
    with TemporaryDirectory(prefix="onceway-ingest-") as folder:
        options.held_file = f"{folder}/held.json"
        _run(options)
        return _say_held(Path(options.held_file)) if options.available_now else 0


def _say_held(file: Path) -> int:
    """Log which feeds are held after all available batches were read (`--available-now`). The
    source has logged the reasons. Return the exit code: 0 if no feed is held. file: JSON list of
    the held feeds; it may be missing.
    """
    feeds = json.loads(file.read_text()) if file.exists() else []
    if not feeds:
        return 0
    more = f" and {len(feeds) - SHOWN} more" if len(feeds) > SHOWN else ""
    log.warning(
        "all available batches were read; held: %s%s. `onceway ingest report` says why",
        ", ".join(feeds[:SHOWN]),
        more,
    )
    return SOMEBODY_SHOULD_LOOK


def _run(options: argparse.Namespace) -> None:
    """Run until a stop is requested; with `--available-now`, until all present batches are in the
    table. Raises OncewayError, or Spark's error if no session can be opened.
    """
    options.landing = absolute_folder(options.landing)
    refuse_nested(options)
    with reached(options.landing):
        landing = Landing(options.landing)
        if options.available_now:
            landing.refuse_empty()
        landed = landing.any_feed()
    spark = open_session(is_named(options.table))
    # A signal handler that called Spark directly could interrupt another call to it.
    stopping = threading.Event()

    def stop(number: int, frame: object) -> None:
        stopping.set()
        signal.signal(number, signal.SIG_DFL)  # a second signal ends at once

    try:
        query, sink = start(spark, options)
        if not landed:
            log.warning("%s: %s. The ingest waits", options.landing, NOTHING_LANDED)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        try:
            _follow(spark, options, query, sink, stopping)
        except StreamingQueryException as error:
            if not _blames_checkpoint(spark, options, sink, error):
                raise sink.failure or error from error
            why = f"Spark cannot continue from it ({cause_of(error)})"
            set_aside(spark, absolute_folder(options.checkpoint), why)
            query, sink = start(spark, options)
            try:
                _follow(spark, options, query, sink, stopping)
            except StreamingQueryException as again:
                raise sink.failure or again from again
    except Exception as error:
        if stopping.is_set() and is_java_gone(error):
            log.info("Java got the stop request first: the next start continues from the table")
            return
        say_unexpected(error)
        failure = explained(error, [options.table, options.checkpoint])
        _note_stop(spark, options, str(failure))
        raise failure from error
    finally:
        close_session(spark)


def _follow(
    spark: SparkSession,
    options: argparse.Namespace,
    query: StreamingQuery,
    sink: Sink,
    stopping: threading.Event,
) -> None:
    """Wait until the query has ended. At a stop request, stop the query after its running
    micro-batch. If the micro-batch lasts too long, Spark interrupts the micro-batch, and the next
    start repeats it.
    """
    begun = tried = time.monotonic()
    alive = -EVERY_S
    noted = True
    stopped = False
    while not _ended(query, stopped):
        note(sink.counters, [query.lastProgress])
        now = time.monotonic()
        if now - alive >= EVERY_S:
            sink.report_running()
            alive = now
        if noted and (sink.micro_batches or now - begun > STEADY_S):
            sink.forget_stop()
            noted = False
        if stopping.is_set():
            log.info("stopping after this micro-batch")
            _let_end(query)
            stopped = query.exception() is None
            query.stop()
        elif now - tried > _try_again_s(options):
            _try_again(spark, options, sink)
            tried = time.monotonic()
    if stopped and query.exception() is not None:
        return
    if not sink.micro_batches:
        log.info("nothing new: %s", progress_text(sink.progress.feeds))
    finish(query, sink)


def _ended(query: StreamingQuery, stopped: bool) -> bool:
    """Wait for `LOOK_S` at most. Return whether the query has ended. Raises StreamingQueryException
    if the query failed. stopped: whether a stop was requested; a failure then counts as the end.
    """
    try:
        return bool(query.awaitTermination(LOOK_S))
    except StreamingQueryException as error:
        if not stopped:
            raise
        cause = cause_of(error)
        log.warning("the stop interrupted a micro-batch; the next start repeats it (%s)", cause)
        return True


def _try_again_s(options: argparse.Namespace) -> float:
    return min(TRY_AGAIN_S, max(options.settle, COPIED_S)) if options.settle else TRY_AGAIN_S


def _blames_checkpoint(
    spark: SparkSession, options: argparse.Namespace, sink: Sink, error: StreamingQueryException
) -> bool:
    """Whether the checkpoint is the likely reason why a query has ended: the query has ended before
    its first micro-batch, the error does not come from the source, and the checkpoint is in use.
    """
    return (
        not sink.micro_batches
        and not any(words in str(error) for words in SOURCE_FAILED)
        and is_used(spark, absolute_folder(options.checkpoint))
    )


def _note_stop(spark: SparkSession, options: argparse.Namespace, why: str) -> None:
    """Write the reason why the ingest ended into the table's folder, for the report. Nothing is
    written if there is no table. For a local folder this works without Java, and even if the table
    itself is unreadable.
    """
    path = None if is_named(options.table) else local_path(absolute(options.table))
    if path is not None:
        if (path / "_delta_log").exists():
            _note(LocalFolder(path / snapshot.FOLDER), why)
        return
    with suppress(*STOPS):
        table = Table(spark, options.table, PUBLICATIONS)
        location = table.location()
        if location is not None and table.exists():
            _note(open_folder(spark, location, snapshot.FOLDER), why)


def _note(files: Folder, why: str) -> None:
    job.failed(files)
    stopped.note(files, why)


def _let_end(query: StreamingQuery) -> None:
    """Wait for a running micro-batch, for at most PATIENCE_S, because Spark would interrupt it at a
    stop.
    """
    until = time.monotonic() + PATIENCE_S
    while query.status["isTriggerActive"] and time.monotonic() < until:
        time.sleep(ENDED_S)


def progress_text(feeds: Feeds) -> str:
    """Return a sentence with the numbers of batches and gateways in the table."""
    gateways = {feed.partition("/")[0] for feed in feeds}
    batches = amount(sum(feeds.values()), "batch", "batches")
    return f"the table has {batches} of {amount(len(gateways), 'gateway')}"


def finish(query: StreamingQuery, sink: Sink) -> None:
    """Save a snapshot for the next start, and the figures for the report. Do not call this after a
    failure, because the table may have been replaced.
    """
    note(sink.counters, query.recentProgress)
    sink.save()
    sink.forget_stop()
    sink.note_end()


if __name__ == "__main__":
    run_script(lambda: run(parse_arguments(sys.argv[1:])))
