"""Signed batches: only rows from trusted gateways get into the table."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.ingest.delta.tables import SIGNED
from gateway.ingest.jobs.release import release
from gateway.ingest.landing.keys import Keys, keys_url, save
from gateway.ingest.landing.place import Landing
from gateway.uplink.signing import Signer, load_or_make
from tests.ingest.batches import land, row
from tests.ingest.lake import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def job(spark: "SparkSession", tmp_path: Path) -> Job:
    return Job(spark, tmp_path)


def signer(tmp_path: Path, gateway: str) -> Signer:
    (tmp_path / gateway).mkdir()
    return load_or_make(tmp_path / gateway)


def trust(job: Job, **keys: Signer) -> None:
    save(
        keys_url(str(job.publications)),
        Keys({gateway: [one.public] for gateway, one in keys.items()}),
    )


def test_a_new_table_takes_what_trusted_gateways_have_signed(
    spark: "SparkSession", job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = signer(tmp_path, "ours"), signer(tmp_path, "theirs")
    trust(job)
    land(job.landing, "ours", 1, [row("dev", 1)], signer=ours)
    land(job.landing, "theirs", 1, [row("evil", 1)], signer=theirs)
    job.take()
    assert job.keys() == []
    trust(job, ours=ours)
    job.take()
    assert job.keys() == [("dev", 7, 1)]
    # a stranger with write access lands batches under the name of our gateway
    land(job.landing, "ours", 2, [row("evil", 2)])
    land(job.landing, "ours", 3, [row("evil", 3)], signer=theirs)
    land(job.landing, "ours", 4, [row("dev", 4)], signer=ours)
    job.take()
    assert job.keys() == [("dev", 7, 1), ("dev", 7, 4)]
    reasons = {one["batch"]: one["reason"] for one in job.table("_quarantine").collect()}
    assert reasons.keys() == {2, 3}
    assert "its manifest is not signed" in reasons[2]
    assert "is not known here" in reasons[3]
    # `release` takes the gateway's own batch, landed again; the other batch stays in quarantine
    land(job.landing, "ours", 2, [row("dev", 2)], signer=ours)
    assert release(spark, job.open(), Landing(str(job.landing)), job.trust()) == 1
    assert job.keys() == [("dev", 7, 1), ("dev", 7, 2), ("dev", 7, 4)]


@pytest.mark.soak
def test_a_table_that_is_older_than_signatures_goes_on_with_a_line(
    spark: "SparkSession", job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    land(job.landing, "site", 1, [row("dev", 1)])
    job.take()
    job.sql(f"alter table publications unset tblproperties ('{SIGNED}')")
    Path(keys_url(str(job.publications))).unlink()
    land(job.landing, "site", 2, [row("dev", 2)])
    with caplog.at_level(logging.WARNING):
        job.take()
    assert "this table is older than signatures" in caplog.text
    assert job.keys() == [("dev", 7, 1), ("dev", 7, 2)]
    # as soon as a key of this gateway is trusted, its unsigned batches are refused
    trust(job, site=signer(tmp_path, "site"))
    land(job.landing, "site", 3, [row("dev", 3)])
    job.take()
    assert job.keys() == [("dev", 7, 1), ("dev", 7, 2)]
