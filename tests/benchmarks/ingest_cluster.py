"""The ingest on a Spark cluster: rows a second, by number of executors. In: a landing zone with
batches, and options of the ingest. Out: rows a second of its micro-batches, from its log.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from gateway.ingest import command
from tests.ingest.processes import cluster

ROWS = 200_000
"""Rows of a micro-batch. The first micro-batch does not count, because the executors start in
it.
"""

CONF = [
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.executor.cores=1",
    "spark.executor.memory=768m",
    "spark.scheduler.minRegisteredResourcesRatio=1",
    f"spark.pyspark.python={sys.executable}",
]
_LINE = re.compile(r"micro-batch [1-9]\d*: (\d+) rows in, .* ([\d.]+) s$", re.MULTILINE)


def rows_per_second(folder: Path, options: list[str], executors: int) -> float:
    with cluster(folder, executors) as url:
        job = command.build("jobs/stream.py", [*options, "--rows", str(ROWS)], url, "1g", CONF)
        line = job.submitted()
        done = subprocess.run(
            line.arguments,
            env={**os.environ, **line.environment},
            check=False,
            stdout=subprocess.PIPE,
            # the job writes its log through Java
            stderr=subprocess.STDOUT,
            text=True,
        )
    found = [(int(rows), float(seconds)) for rows, seconds in _LINE.findall(done.stdout)]
    if done.returncode or not found:
        raise RuntimeError(f"the ingest failed: {done.stdout[-2000:]}")
    return sum(rows for rows, _ in found) / sum(seconds for _, seconds in found)
