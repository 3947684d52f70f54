"""The ingest on Spark's own cluster: a master and two workers, each a process. `make soak` also
tries the public writer.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from gateway.ingest.delta.writers import WriterName
from tests.ingest.processes import Site, cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

CONF = [
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.executor.memory=512m",
    "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.adaptive.enabled=false",
    "spark.sql.codegen.factoryMode=NO_CODEGEN",
    "spark.sql.codegen.wholeStage=false",
    "spark.sql.shuffle.partitions=1",
    "spark.scheduler.minRegisteredResourcesRatio=1",  # wait for both workers before the first task
]
LARGE = 21_000
"""Number of rows that make a batch a task of its own."""


def take_in_on_two_workers(site: Site, writer: WriterName) -> None:
    """Ingest two large batches on two workers. Check that each worker finished a task, and that all
    rows are in the table.
    """
    site.land(7, "large", range(LARGE))
    site.land(8, "large", range(LARGE, 2 * LARGE))
    conf = [*CONF, f"spark.pyspark.python={python_without_onceway(site.folder)}"]
    conf.append(f"spark.pyspark.driver.python={sys.executable}")
    with cluster(site.folder) as url:
        started = site.start(master=url, conf=conf, writer=writer, rows=100_000)
        assert started.wait(timeout=500) == 0, site.said()
    logs = [list((site.folder / f"worker-{n}").glob("app-*/*/stderr")) for n in (1, 2)]
    assert all("Finished task" in log.read_text() for (log,) in logs)
    site.check(("large", 7, sequence) for sequence in range(2 * LARGE))


def python_without_onceway(folder: Path) -> Path:
    """Make a Python for the workers with only the packages that README.md asks for. The driver
    sends the product's code.
    """
    site_packages = sysconfig.get_path("purelib")
    python = folder / "python"
    python.write_text(
        f"""#!/bin/sh
PYTHONPATH={site_packages}${{PYTHONPATH:+:$PYTHONPATH}} exec {sys.executable} -S "$@"
"""
    )
    python.chmod(0o755)
    found = subprocess.run(
        [python, "-c", "import pyarrow, gateway"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'gateway'" in found.stderr
    return python


@pytest.mark.soak
def test_two_workers_share_the_batches_and_each_is_taken_once(tmp_path: Path) -> None:
    take_in_on_two_workers(Site(tmp_path), "fast")
