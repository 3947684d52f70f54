"""A gateway dies before all the readings that it has acknowledged have landed. The table shows the
gap. As soon as its card can be read, `onceway spool land` lands the readings.
"""

import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.config import UplinkSection
from gateway.ingest.delta.tables import Table
from gateway.ingest.jobs.summarise import summarise
from gateway.ingest.sink.publications import PUBLICATIONS
from gateway.uplink.cutter import Cutter
from gateway.uplink.landing import open_landing
from gateway.uplink.rescue import rescue
from gateway.uplink.runner import Uplink
from gateway.uplink.signing import load_or_make
from gateway.uplink.spool import Spool
from gateway.uplink.where import in_table
from tests.ingest.batches import land, row
from tests.ingest.lake import Job
from tests.uplink.conftest import GatewayData

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_rows_of_a_dead_gateway_are_missing_until_its_card_is_read(
    spark: "SparkSession", tmp_path: Path
) -> None:
    job = Job(spark, tmp_path)
    settings = UplinkSection(landing=str(job.landing))

    def missing() -> list[tuple[int, int]]:
        job.take()
        summarise(spark, Table(spark, str(job.publications), PUBLICATIONS))
        rows = job.table("_quality").where("device = 'sensor-1'").collect()
        return [(gap["first"], gap["last"]) for one in rows for gap in one["gaps"] or ()]

    attic = GatewayData(tmp_path / "attic")
    attic.add(5)
    with closing(Spool(attic.path)) as spool:
        cutter, signer = Cutter(spool, attic.path, settings), load_or_make(attic.path)
        connect = lambda: open_landing(str(job.landing))  # noqa: E731
        Uplink(spool, cutter, settings, connect, signer).run(threading.Event(), once=True)
    attic.add(3)
    # gateway attic dies, and the board continues at gateway barn
    land(job.landing, "barn", 1, [row("sensor-1", n, incarnation=77) for n in (9, 10)])
    assert missing() == [(6, 8)]
    assert [*in_table(str(job.publications), "sensor-1", 7)] == []

    rescue(attic.path, settings, connect, lambda now, total: None)
    assert missing() == []
    assert job.keys("sensor-1") == [("sensor-1", 77, n) for n in range(1, 11)]
    assert [place.batch for place in in_table(str(job.publications), "sensor-1", 7)] == [2]
