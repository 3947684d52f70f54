"""A start of Spark alone: a session with Delta Lake, and a micro-batch of one row that is written
nowhere. In: a folder, as the argument. Out: the file `done` in it, when the micro-batch has ended.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(folder: Path) -> None:
    spark = (
        SparkSession.builder.config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .getOrCreate()
    )
    source = folder / "source"
    source.mkdir()
    (source / "one.txt").write_text("row\n")
    rows = spark.readStream.text(str(source))
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(folder / "bare"))
    writer.trigger(availableNow=True).start().awaitTermination()
    (folder / "done").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
