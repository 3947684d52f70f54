"""A Spark job as a beginner writes it, with Structured Streaming's file source. spark-submit starts
it. It imports no code of Onceway. In: a folder of files of JSON lines. Out: the lines in a Delta
table, and a checkpoint that records which files were read.
"""

import sys

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


def main(files: str, table: str, checkpoint: str) -> None:
    builder = SparkSession.builder.appName("glue")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    lines = builder.getOrCreate().readStream.schema("device STRING, line STRING").json(files)
    stream = (
        lines.writeStream.format("delta")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="1 second")
    )
    stream.start(table).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
