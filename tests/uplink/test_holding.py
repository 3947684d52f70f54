"""`onceway uplink status` says why readings wait."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.config import UplinkSection
from gateway.system.lock import ProcessLock
from gateway.uplink.cutter import Cutter
from gateway.uplink.pace import Pace
from gateway.uplink.spool import Spool
from gateway.uplink.status import look
from tests.store.test_salvage import loose


def held(data, running: bool = True, **settings) -> list[str]:
    lock = ProcessLock(data.path / "uplink.lock") if running else None
    try:
        with Spool(data.path, to_read=True) as spool:
            state = look(spool, data.path, None, UplinkSection(landing="/x", **settings))
    finally:
        if lock is not None:
            lock.close()
    for reason in state.held_by:
        assert f"held by   {reason}" in state.as_text()
    return state.held_by


def arrive_now(data) -> None:
    with data.db() as db:
        db.execute("UPDATE spool SET received = ?", (time.time_ns() // 1000,))


def test_batch_is_not_delayed_when_due_or_empty(data, tmp_path: Path) -> None:
    assert held(data, running=False, window=["00:00-00:00"]) == []
    data.add(10)
    assert held(data, batch_count=10) == []
    assert held(data) == [], "they are older than batch_age_s"


def test_a_batch_that_is_not_full_waits_for_its_age(data) -> None:
    data.add(3)
    arrive_now(data)
    (reason,) = held(data, batch_age_s=600)
    assert reason.startswith("the next batch has 3 of 500 messages, the oldest from ")
    assert reason.endswith("the batch is cut when that message is 600 s old (uplink.batch_age_s)")
    assert held(data, batch_age_s=600, batch_count=3) == []
    assert held(data, batch_age_s=600, batch_bytes=3) == []


def test_a_row_without_a_time_waits_with_a_reason(data) -> None:
    data.add(1)
    with data.db() as db:
        db.execute("UPDATE spool SET received = NULL")
    (reason,) = held(data)
    assert "the oldest has no time yet" in reason


def test_a_closed_window_says_when_it_opens(data) -> None:
    data.add(1)
    opens = datetime.now().astimezone() + timedelta(hours=2)
    window = f"{opens:%H:%M}-{opens + timedelta(hours=1):%H:%M}"
    (reason,) = held(data, window=[window])
    assert reason == f"the window is closed until {opens:%H:%M} local time (uplink.window)"


def test_the_rate_says_when_the_next_batch_may_go(data, drain, tmp_path: Path) -> None:
    data.add(10)
    drain(data, tmp_path / "landing")
    data.add(10)
    (reason,) = held(data, batch_count=10, bytes_per_s=1)
    assert reason.startswith("the rate limit delays the next batch until ")
    assert reason.endswith("(uplink.bytes_per_s = 1)")
    assert held(data, batch_count=10, bytes_per_s=1_000_000_000) == []


def test_an_outage_and_a_stopped_uplink_are_reasons(data) -> None:
    data.add(1)
    with Spool(data.path) as spool:
        spool.failed('{"since": 1, "error": "no route"}')
    first, second = held(data, running=False)
    assert "systemctl start onceway-uplink" in first
    assert second == "the landing place cannot be reached: see the outage"


@pytest.mark.parametrize(
    ("windows", "now", "opens"),
    [
        (["22:00-06:00"], "2026-03-01 12:00", "2026-03-01 22:00"),
        (["02:00-03:00"], "2026-03-01 12:00", "2026-03-02 02:00"),
        (["02:00-03:00", "13:30-14:00"], "2026-03-01 12:00", "2026-03-01 13:30"),
    ],
)
def test_the_next_opening_is_the_first_of_all_windows(
    windows: list[str], now: str, opens: str
) -> None:
    at = datetime.fromisoformat(now).replace(tzinfo=UTC)
    pace = Pace(UplinkSection(landing="/x", window=windows))
    assert not pace.open(at)
    assert pace.opens(at) == datetime.fromisoformat(opens).replace(tzinfo=UTC)


def test_batch_that_is_cut_waits_for_nothing_but_its_landing(data) -> None:
    data.add(3)
    arrive_now(data)
    with Spool(data.path) as spool:
        Cutter(spool, data.path, UplinkSection(landing="/x", batch_count=2)).cut()
    assert held(data, batch_age_s=600) == []


def test_rows_that_were_set_aside_are_shown_with_their_file(data, drain, tmp_path: Path) -> None:
    data.add(3)
    with data.db() as db:
        loose(db)
        db.execute("UPDATE spool SET topic = NULL WHERE id = 2")
    drain(data, tmp_path / "landing")
    with Spool(data.path, to_read=True) as spool:
        text = look(spool, data.path).as_text()
    said = "held      damaged rows were set aside in batches/damaged-rows.jsonl, and do not land: 1"
    assert said in text.splitlines()
