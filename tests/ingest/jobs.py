"""The ingest as a test drives it: one pass at a time, in the session of the test process."""

import argparse
import shutil
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from gateway.ingest import onceway_ingest

Key = tuple[str, int, int]


class Job:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.landing = folder / "landing"
        self.publications = folder / "lake" / "publications"
        self.checkpoint = folder / "checkpoint"
        self.landing.mkdir()

    def options(self, **changes: Any) -> argparse.Namespace:
        arguments = [
            "--landing",
            str(self.landing),
            "--table",
            str(self.publications),
            "--checkpoint",
            str(self.checkpoint),
            "--available-now",
        ]
        return argparse.Namespace(**(vars(onceway_ingest.parse_arguments(arguments)) | changes))

    def run(self, **changes: Any) -> None:
        """One pass from a fresh start, as a new process would make it."""
        query, sink = onceway_ingest.start(self.spark, self.options(**changes))
        try:
            query.awaitTermination()
        finally:
            query.stop()
            sink.save()

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint)

    def table(self, suffix: str = "") -> DataFrame:
        return self.spark.read.format("delta").load(f"{self.publications}{suffix}")

    def keys(self) -> list[Key]:
        """Every row's key, sorted; one that stands twice is here twice."""
        return sorted(tuple(one) for one in self.table().select("device", "incarnation", "sequence").collect())

    def versions(self) -> int:
        return len(list((self.publications / "_delta_log").glob("*.json")))
