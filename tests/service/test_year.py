"""The soak test of a year notices growth, and reads its limits from the guide."""

import os
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from gateway.store.schema import open_store
from tests.service import year
from tests.service.year import (
    CLIENTS,
    DAYS,
    FLOOR,
    PLANTS,
    READINGS,
    Series,
    limits,
    live,
    sample,
    too_steep,
)


def series(slope: float, noise: float, days: int, level: float = 50.0) -> Series:
    """Return daily samples with a known slope and random noise. In the first tenth of the days,
    they rise faster.
    """
    chance = Random(7)
    return Series(
        [
            level + slope * day - max(0.0, 1 - 10 * day / days) * level / 2 + chance.gauss(0, noise)
            for day in range(days)
        ]
    )


@pytest.mark.parametrize("days", [40, DAYS])
@pytest.mark.parametrize("slope", [0.0, 0.5, -2.0])
def test_slope_is_the_planted_one(slope: float, days: int) -> None:
    found, error = series(slope, 1.0, days).slope()
    assert abs(found - slope) <= 4 * error
    assert 0 < error < 0.1


def test_growth_beyond_the_grant_is_named_and_nothing_else() -> None:
    samples = {
        "grows as granted": series(10 / DAYS, 0.5, DAYS),
        "grows too fast": series(30 / DAYS, 0.5, DAYS),
        "noise": series(0.0, 3.0, DAYS),
        "one step": Series([4.0] * 100 + [5.0] * (DAYS - 100)),
        "one a day": Series([float(day) for day in range(DAYS)]),
        "shrinks": series(-1.0, 0.5, DAYS),
    }
    found = too_steep(samples, {"grows as granted": 10.0, "grows too fast": 10.0})
    assert [text.partition(":")[0] for text in found] == ["grows too fast", "one a day"]
    assert "granted 10" in found[0]


@pytest.mark.parametrize("quantity", ["a descriptor a day", "a row in two days"])
def test_short_run_notices_a_leak(quantity: str) -> None:
    step = 1 if "a day" in quantity else 2
    assert too_steep({quantity: Series([float(day // step) for day in range(20)])}, {})


def test_guide_grants_growth_only_to_quantities_that_are_sampled(tmp_path: Path) -> None:
    with closing(open_store(tmp_path, "g")) as database:
        database.execute("INSERT INTO batch VALUES (1, 1, 9, 9, 9, '', 1, 1)")
        (tmp_path / "batches").mkdir()
        (tmp_path / "batches" / "1").write_bytes(bytes(3_000_000))
        pids = {"gateway": os.getpid(), "uplink": os.getpid()}
        found = sample(tmp_path, pids, 12)
    assert limits().keys() <= found.keys()
    assert found["log lines a day"] == 12
    assert found["rows of batch"] == 0, "a row for each batch is granted"
    assert found["rows of meta"] >= 2
    assert 3 <= found["files beside the store in MB"] < 3.1
    assert found["descriptors of the gateway"] > 2
    assert all(found[name] >= 0 for name in found if name != "rows of batch_content")


def test_soak_and_release_run_what_the_guide_says() -> None:
    text = year.GUIDE.read_text().partition("## What grows in a year")[2]
    assert f"{DAYS} days of {READINGS:,} readings from ten clients" in text
    assert (CLIENTS, FLOOR) == (10, 1.0)
    release = " ".join((year.GUIDE.parents[2] / "CONTRIBUTING.md").read_text().split())
    assert "`python -m tests.service.year --real`" in release
    soak = (year.GUIDE.parents[2] / "Makefile").read_text()
    assert "python -m tests.service.year\n" in soak


@pytest.mark.soak
@pytest.mark.parametrize("plant", ["", *PLANTS])
def test_short_year_fails_only_with_a_leak(plant: str, tmp_path: Path) -> None:
    found = too_steep(live(tmp_path, 16, plant), limits())
    names = "log lines" if plant == "log" else plant
    assert [text for text in found if text.startswith(names)] if plant else found == []
