"""Each block of code in gateway/ingest/QUERIES.md runs, and returns the right answer for a small
lake.
"""

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cbor2
import pytest

from gateway.ingest.delta.tables import Table
from gateway.ingest.jobs.compact import compact
from gateway.ingest.jobs.summarise import summarise
from gateway.ingest.sink.publications import PUBLICATIONS
from gateway.ingest.sink.readings import READINGS
from gateway.uplink.batch import Row
from tests.ingest.batches import land, row
from tests.ingest.lake import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "gateway" / "ingest" / "QUERIES.md"
BLOCKS = re.findall(r"^```(\w+)(?: (\w+))?\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
QUESTIONS = [text for language, _, text in BLOCKS if language == "sql"]
BEGIN_S, HOUR_S = 1_774_656_000, 3600
"""28 March 2026, 00:00 UTC, in seconds since 1970. In Europe, summer time begins on the
next day.
"""

TWO_DAYS = 48


def reading(device: str, sequence: int, hour: int, value: float, told: bool = True) -> Row:
    time = BEGIN_S + hour * HOUR_S
    record: dict[int, object] = {-2: f"{device}:", 0: "adc0", 1: "V", 2: value}
    payload = cbor2.dumps([record | ({-3: time} if told else {})])
    return row(device, sequence, payload=payload, received=(time + 2) * 1_000_000)


def on_topic(one: Row, topic: str) -> Row:
    return (*one[:4], topic, *one[5:])


@pytest.fixture(scope="module")
def lake(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Return a table with two days of two boards. roof-1 has a gap and one value that is far off.
    roof-2 has no clock, and is silent on the second day.
    """
    job = Job(spark, tmp_path_factory.mktemp("questions"))
    listed = [
        {"name": f"roof-{n}", "board": "uno", "firmware": "f" * 64, "port": "/dev/x"}
        for n in (1, 2)
    ]
    registry = row("@site", 1, payload=json.dumps(listed).encode(), received=BEGIN_S * 1_000_000)
    rows = [on_topic(registry, "onceway/devices")]
    for hour in range(TWO_DAYS):
        if hour not in (30, 31):
            rows.append(reading("roof-1", hour + 1, hour, 99.0 if hour == 40 else hour % 24))
        if hour < 20:
            rows.append(reading("roof-2", hour + 1, hour, 1.5, told=False))
    rows.append(on_topic(row("roof-2", 21, payload=b"hello", received=rows[40][6]), "sensors/text"))
    land(job.landing, "site", 1, rows)
    job.take()
    publications = Table(spark, str(job.publications), PUBLICATIONS)
    summarise(spark, publications)
    compact(spark, publications, Table(spark, f"{job.publications}_readings", READINGS))
    return job


def blocks(lake: Job, way: str) -> str:
    """Return the Python block of QUERIES.md with this name, with the paths of this lake."""
    (found,) = (text for language, name, text in BLOCKS if (language, name) == ("python", way))
    return found.replace("/srv/lake", str(lake.publications.parent))


def run(lake: Job, *ways: str, **names: Any) -> dict[str, Any]:
    for way in ways:
        exec(blocks(lake, way), names)
    return names


def test_query_guide_answers_ten_questions_in_three_ways() -> None:
    assert len(QUESTIONS) == 10
    assert [name for language, name, _ in BLOCKS if language == "python"] == [
        "spark",
        "duckdb",
        "pandas",
        "plot",
    ]


Answers = list[list[dict[str, Any]]]


def by_spark(lake: Job) -> Answers:
    run(lake, "spark", spark=lake.spark)
    return [[one.asDict(True) for one in lake.spark.sql(text).collect()] for text in QUESTIONS]


def by_duckdb(lake: Job) -> Answers:
    duckdb = run(lake, "duckdb")["lake"]
    found = [duckdb.sql(text) for text in QUESTIONS]
    return [[dict(zip(it.columns, one, strict=True)) for one in it.fetchall()] for it in found]


@pytest.mark.parametrize("ask", [by_duckdb, pytest.param(by_spark, marks=pytest.mark.soak)])
def test_the_answers_are_true(lake: Job, ask: Callable[[Job], Answers]) -> None:
    """`make test` runs the queries with DuckDB. With Spark they take 20 s, so only `make soak` does
    that.
    """
    last, hourly, silent, complete, lacking, late, firmware, odd, clocks, strange = ask(lake)
    assert [(one["device"], one["value"], one["unit"]) for one in last] == [
        ("roof-1", 23.0, "V"),
        ("roof-2", 1.5, "V"),
    ]
    assert [(one["hour"].hour, one["volts"]) for one in hourly][:3] == [(0, 0), (1, 1), (2, 2)]
    assert len(hourly) == 22  # two of 24 hours are missing
    assert [one["device"] for one in silent] == ["roof-2"]
    told = [(one["arrived"], one["expected"], one["percent"]) for one in complete]
    assert [(a, e, float(p)) for a, e, p in told] == [(46, 46, 100), (22, 24, 91.67)]
    assert [(one["device"], one["missing"]) for one in lacking] == [("roof-1", 2)]
    assert lacking[0]["gaps"] == [{"first": 31, "last": 32}]
    assert [(one["site"], one["late"], one["arrived"]) for one in late] == [("site", 67, 67)]
    assert [(one["devices"], one["missing"], one["expected"]) for one in firmware] == [(2, 2, 69)]
    assert [(one["device"], one["value"]) for one in odd] == [("roof-1", 99.0)]
    assert [tuple(one.values()) for one in clocks] == [("roof-2", 0, 0, 20), ("roof-1", 46, 0, 0)]
    assert [(one["topic"], one["undecodable"]) for one in strange][-1] == (
        "sensors/text",
        "neither a JSON nor a CBOR array",
    )


@pytest.mark.soak
def test_duckdb_says_the_same_as_spark(lake: Job) -> None:
    for text, found, answer in zip(QUESTIONS, by_duckdb(lake), by_spark(lake), strict=True):
        assert [plain(one) for one in found] == [plain(one) for one in answer], text


NAMED = [
    ("publications", "topic string, undecodable string, received timestamp"),
    (
        "publications_readings",
        "device string, name string, unit string, value double, time timestamp,"
        " time_certainty string, received timestamp",
    ),
    (
        "publications_devices",
        "device string, incarnation bigint, site string, firmware string, first_seen timestamp,"
        " last_seen timestamp, current boolean",
    ),
    (
        "publications_quality",
        "device string, incarnation bigint, day date, expected bigint, arrived bigint,"
        " missing bigint, gaps array<struct<first: bigint, last: bigint>>, late bigint",
    ),
]


def evening_of_the_change(spark: "SparkSession") -> None:
    """Create views with one device. Its readings come every half hour, and begin half an hour
    before the second day. spark: a session that only this test uses.
    """
    first = BEGIN_S + 23 * HOUR_S + 1800
    moments = [datetime.fromtimestamp(first + one * 1800, UTC) for one in range(60)]
    days = [date(2026, 3, 28), date(2026, 3, 29), date(2026, 3, 30)]
    rows: dict[str, list[tuple[Any, ...]]] = {
        "publications": [("t", "empty", moments[0]), ("t", None, moments[-1])],
        "publications_readings": [
            ("roof-1", "adc0", "V", float(one), at, "synchronised", at)
            for one, at in enumerate(moments)
        ],
        "publications_devices": [
            ("roof-1", 7, "site", "f" * 64, moments[0], moments[-1], True),
            ("roof-2", 7, "site", "e" * 64, moments[0], moments[1], True),
        ],
        "publications_quality": [
            (device, 7, day, 10, 9, 1, [(1, 1)], 0)
            for day in days
            for device in ("roof-1", "roof-2")
        ],
    }
    for name, columns in NAMED:
        view = name.removeprefix("publications_")
        spark.createDataFrame(rows[name], columns).createOrReplaceTempView(view)


@pytest.mark.soak
def test_spark_answers_the_same_in_a_session_of_any_zone(spark: "SparkSession") -> None:
    told = {}
    for zone in ("UTC", "Europe/Paris", "Asia/Kolkata"):
        session = spark.newSession()
        session.conf.set("spark.sql.session.timeZone", zone)
        evening_of_the_change(session)
        told[zone] = [
            [one.asDict(True) for one in session.sql(text).collect()] for text in QUESTIONS
        ]
    for zone, answers in told.items():
        assert answers == told["UTC"], zone
    hourly, firmware = told["UTC"][1], told["UTC"][6]
    assert [one["readings"] for one in hourly] == [2] * 24
    assert [(one["firmware"][0], one["missing"]) for one in firmware] == [("e", 2), ("f", 3)]


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as both engines give it: times without a time zone, and decimals as floats."""
    found = {}
    for name, value in row.items():
        if hasattr(value, "tzinfo"):
            value = value.replace(tzinfo=None)
        elif type(value).__name__ == "Decimal":
            value = float(value)
        found[name] = value
    return found


@pytest.mark.filterwarnings("ignore:The locs attribute")  # pandas 2 with a newer matplotlib warns
def test_pandas_and_a_plot(lake: Job) -> None:
    hourly = run(lake, "pandas", "plot")["hourly"]
    assert list(hourly)[:3] == [0, 1, 2]
    assert math.isnan(hourly.iloc[30])
    assert (lake.publications.parent / "roof-1.svg").read_text().rstrip().endswith("</svg>")
