"""The ingest in the process of the tests, in one Spark session."""

import argparse
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from gateway.ingest.delta.writers import WriterName
from gateway.ingest.jobs import stream
from gateway.ingest.jobs.assembly import open_sink
from gateway.ingest.jobs.read_limits import ReadMaxRows
from gateway.ingest.jobs.source import LandingSource
from gateway.ingest.landing.batch import SCHEMA
from gateway.ingest.landing.keys import Keys, keys_url, save
from gateway.ingest.landing.place import Announced
from gateway.ingest.landing.trust import Trust
from gateway.ingest.sink import merged_batches
from gateway.ingest.sink.data_files import WRITTEN, DataFiles
from gateway.ingest.sink.foreach_batch import Sink
from gateway.uplink.batch import Row

Key = tuple[str, int, int]


class Lake:
    """A table and its sinks. A test puts micro-batches directly into a sink. A `Job` reads them
    from a landing place.
    """

    def __init__(self, spark: SparkSession, folder: Path, writer: WriterName = "fast") -> None:
        self.spark = spark
        self.writer = writer
        self.publications = folder / "lake" / "publications"
        self._landing = str(folder / "landing")
        self.allow_unsigned()
        self._batches = 0

    def allow_unsigned(self) -> None:
        """Accept unsigned batches of all gateways."""
        save(keys_url(str(self.publications)), Keys(unsigned=True))

    def open(self) -> Sink:
        """Open the sink as a new process does."""
        return open_sink(self.spark, self._landing, str(self.publications), self.writer)

    def micro_batch(self, *batches: list[Row]) -> DataFrame:
        """Return a micro-batch with a chunk for each list of rows, as the source would read it."""
        chunks = []
        files = DataFiles(str(self.publications), f"{self.publications}_readings")
        for number, rows in enumerate(batches):
            self._batches += 1
            table = pa.Table.from_pylist(
                [dict(zip(SCHEMA.names, one, strict=True)) for one in rows], schema=SCHEMA
            )
            # each batch is the first of its own feed, so a test may leave batches out
            built = merged_batches.build(
                [(Announced(f"site/{self._batches:08x}", 1), table)], number
            )
            if built is not None:
                chunks.append(files.put(built) if self.writer == "fast" else built)
        columns = WRITTEN if self.writer == "fast" else merged_batches.CHUNK
        return self.spark.createDataFrame(pa.Table.from_batches(chunks, schema=columns))

    def table(self, suffix: str = "") -> DataFrame:
        return self.spark.read.format("delta").load(f"{self.publications}{suffix}")

    def keys(self, device: str | None = None) -> list[Key]:
        """Return the keys of all rows, sorted. A key that is in two rows appears twice. device: if
        not None, only the rows of this device count.
        """
        rows = self.table() if device is None else self.table().where(F.col("device") == device)
        return sorted(
            tuple(one) for one in rows.select("device", "incarnation", "sequence").collect()
        )

    def readings(self, device: str) -> list[Any]:
        """Return key and value of each reading of a device, sorted."""
        rows = self.table("_readings").where(F.col("device") == device)
        return sorted(
            tuple(one)
            for one in rows.select(
                "device", "incarnation", "sequence", "position", "value"
            ).collect()
        )

    def version(self) -> int:
        """Return the newest version."""
        return max(int(one.stem) for one in (self.publications / "_delta_log").glob("*.json"))

    def versions(self) -> int:
        return len(list((self.publications / "_delta_log").glob("*.json")))

    def lose_snapshots(self) -> None:
        shutil.rmtree(self.publications / "_onceway", ignore_errors=True)

    def sql(self, text: str) -> None:
        """Run an SQL statement. The name `publications` in it stands for the table."""
        self.spark.sql(text.replace("publications", f"delta.`{self.publications}`"))


class Job(Lake):
    def __init__(self, spark: SparkSession, folder: Path, writer: WriterName = "fast") -> None:
        super().__init__(spark, folder, writer)
        self.landing = folder / "landing"
        self.checkpoint = folder / "checkpoint"
        self.landing.mkdir(parents=True)

    def options(self, **changes: Any) -> argparse.Namespace:
        arguments = [
            "--landing",
            str(self.landing),
            "--table",
            str(self.publications),
            "--checkpoint",
            str(self.checkpoint),
            "--available-now",
            "--writer",
            self.writer,
        ]
        return argparse.Namespace(**(vars(stream.parse_arguments(arguments)) | changes))

    def run(self, **changes: Any) -> None:
        """Start the job as a new process does, and wait until it has read all batches. Try again if
        Spark's time limit of 10 s for the start of Python was too short.
        """
        for tries in (3, 2, 1):
            query, sink = stream.start(self.spark, self.options(**changes))
            try:
                query.awaitTermination()
            except StreamingQueryException as error:
                if tries == 1 or "failed to connect back" not in str(error):
                    raise
            else:
                break
        stream.finish(query, sink)

    def take(self, **changes: Any) -> Sink:
        """Read all batches like `run`, but without Spark's stream and its checkpoint. This takes
        much less time.
        """
        options = self.options(**changes)
        sink, source = stream.prepare(self.spark, options)
        reader = LandingSource(source).streamReader(StructType())
        reader.prepareForTriggerAvailableNow()
        limit, start = ReadMaxRows(options.rows), reader.initialOffset()
        while (end := reader.latestOffset(start, limit)) != start:
            parts = reader.partitions(start, end)
            chunks = [chunk for part in parts for chunk in reader.read(part)]
            columns = WRITTEN if self.writer == "fast" else merged_batches.CHUNK
            sink(self.spark.createDataFrame(pa.Table.from_batches(chunks, columns)), 0)
            reader.commit(end)
            start = end
        sink.save()
        return sink

    def trust(self) -> Trust:
        return Trust(keys_url(str(self.publications)), True)

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint)
