"""The ingest on a cluster: Spark's own, a master and two workers, each a process. `make soak` does
it with the public writer, too.
"""

from pathlib import Path

import pytest

from gateway.ingest.delta.writers import WriterName
from tests.ingest.processes import Site, cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

CONF = [
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.executor.memory=512m",
    "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage=false",
    "spark.scheduler.minRegisteredResourcesRatio=1",  # no task before both workers are there
]
LARGE = 21_000
"""Rows of a batch that is worth a task of its own."""


def take_in_on_two_workers(site: Site, writer: WriterName) -> None:
    """Checks that both have had a share of it."""
    site.land(7, "large", range(LARGE))
    site.land(8, "large", range(LARGE, 2 * LARGE))
    with cluster(site.folder) as url:
        started = site.start(master=url, conf=CONF, writer=writer, rows=100_000)
        assert started.wait(timeout=250) == 0, site.said()
    logs = [list((site.folder / name).glob("app-*/*/stderr")) for name in ("one", "two")]
    assert all("Finished task" in log.read_text() for (log,) in logs)
    site.check(("large", 7, sequence) for sequence in range(2 * LARGE))


def test_two_workers_share_the_batches_and_each_is_taken_once(tmp_path: Path) -> None:
    take_in_on_two_workers(Site(tmp_path), "fast")
