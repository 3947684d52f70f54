"""Upkeep jobs, started with spark-submit: `release` adds repaired batches to the table, `compact`
joins small files, `expire` deletes old rows, `summarise` updates the tables about devices.

In: the table, and for `release` the landing URL. Out: changed tables; one line per step on standard
error. All of them may run while the stream runs, except for a table on S3 (README.md). `onceway
ingest release`, `compact`, `expire` and `summarise` start them.
"""

import argparse
import logging
import sys
from datetime import UTC, datetime, timedelta
from typing import get_args

from pyspark.sql import SparkSession

from gateway.errors import OncewayError
from gateway.ingest import places
from gateway.ingest.delta.causes import explained
from gateway.ingest.delta.tables import absolute_folder, is_named, mend, sibling_table
from gateway.ingest.delta.writers import WriterName, table_kind
from gateway.ingest.jobs.assembly import open_sink
from gateway.ingest.jobs.compact import compact
from gateway.ingest.jobs.expire import expire
from gateway.ingest.jobs.release import release
from gateway.ingest.jobs.script import STOPS, run_script
from gateway.ingest.jobs.session import close_session, open_session
from gateway.ingest.jobs.summarise import summarise
from gateway.ingest.landing import keys
from gateway.ingest.landing.place import Landing, reached
from gateway.ingest.landing.trust import Trust
from gateway.ingest.sink.conflicts import CONFLICTS
from gateway.ingest.sink.publications import PUBLICATIONS
from gateway.ingest.sink.quarantine import QUARANTINE
from gateway.ingest.sink.readings import READINGS
from gateway.ingest.summary.devices import DEVICES
from gateway.ingest.summary.quality import QUALITY
from gateway.system.amounts import are
from gateway.system.durations import seconds

log = logging.getLogger("onceway.ingest")


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("upkeep.py", description="Maintain the tables of an ingest.")
    parser.add_argument(
        "--table",
        required=True,
        type=places.typed,
        metavar="PATH_OR_NAME",
        help="Delta table of the publications",
    )
    parser.add_argument(
        "--writer", choices=get_args(WriterName), default="auto", help="as `--writer` of stream.py"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    released = commands.add_parser(
        "release", help="add batches in quarantine that were repaired at the landing place"
    )
    released.add_argument(
        "--landing",
        required=True,
        type=places.typed,
        metavar="URL",
        help="where the gateways' uplinks put batches",
    )
    released.add_argument(
        "--trusted",
        type=places.typed,
        metavar="URL",
        help="file of the gateways' keys (default: beside the table)",
    )
    commands.add_parser("compact", help="join small files")
    commands.add_parser("summarise", help="bring the tables about devices up to date")
    expired = commands.add_parser("expire", help="delete old rows")
    expired.add_argument(
        "--older-than",
        required=True,
        type=seconds,
        metavar="TIME",
        help="age above which rows are deleted, by their time of receipt, e.g. 400d",
    )
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> None:
    """Run the job that `options.command` names. Raises OncewayError if the table does not exist, or
    was not created by the ingest. `release` also raises it if the landing place is empty, or if
    batches are still damaged.
    """
    if options.command == "release":
        with reached(options.landing):
            Landing(absolute_folder(options.landing)).refuse_empty()
    spark = open_session(is_named(options.table))
    try:
        _work(spark, options)
    except STOPS as error:
        raise explained(error, [options.table]) from error
    finally:
        close_session(spark)


def _work(spark: SparkSession, options: argparse.Namespace) -> None:
    kind = table_kind(spark, options.table, options.writer)
    publications = kind(spark, options.table, PUBLICATIONS)
    readings = kind(spark, sibling_table(publications.name, "readings"), READINGS)
    quarantine = kind(spark, sibling_table(publications.name, "quarantine"), QUARANTINE)
    conflicts = kind(spark, sibling_table(publications.name, "conflicts"), CONFLICTS)
    devices = kind(spark, sibling_table(publications.name, "devices"), DEVICES)
    quality = kind(spark, sibling_table(publications.name, "quality"), QUALITY)
    others = (readings, quarantine, conflicts, devices, quality)
    mend(publications, *others)
    if not publications.exists():
        raise OncewayError(
            "there is no such table",
            publications.name,
            "Is the name right? The first `onceway ingest run` creates the table",
        )
    publications.refuse_others()
    if options.command == "release":
        url = absolute_folder(options.landing)
        sink = open_sink(spark, url, publications.name, options.writer)
        trusted = options.trusted or keys.keys_url(sink.locations["publications"])
        damaged = release(spark, sink, Landing(url), Trust(trusted, sink.signed))
        if damaged:
            raise OncewayError(
                f"{are(damaged, 'batch', many='batches')} still damaged",
                f"{publications.name}_quarantine",
            )
    elif options.command == "compact":
        compact(spark, publications, *others)
    elif options.command == "summarise":
        summarise(spark, publications)
    else:
        before = datetime.now(UTC) - timedelta(seconds=options.older_than)
        log.info(
            "deleted %d publications received before %s",
            expire(spark, publications, readings, before),
            before.isoformat(),
        )


if __name__ == "__main__":
    run_script(lambda: run(parse_arguments(sys.argv[1:])))
