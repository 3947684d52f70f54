"""While the gateway is stopped, its monotonic time continues as long as the machine runs."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from sqlite3 import Connection

import pytest

from gateway.store.recovery import recover
from gateway.store.schema import make_folder, open_store
from gateway.store.uptime import Uptime, save_axis, uptime


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Connection]:
    make_folder(tmp_path)
    with closing(open_store(tmp_path, "test")) as database:
        yield database


def start(database: Connection, now: Uptime | None) -> float:
    return recover(database, None, 1024, now).now


def test_the_time_that_the_gateway_was_off_counts_without_a_clock(database: Connection) -> None:
    assert start(database, Uptime("this", 100.0)) == 0.0
    assert start(database, Uptime("this", 160.5)) == pytest.approx(60.5)
    assert start(database, Uptime("this", 1000.0)) == pytest.approx(900.0)


def test_after_a_reboot_it_goes_on_from_the_newest_time_that_the_store_knows(
    database: Connection,
) -> None:
    start(database, Uptime("this", 100.0))
    save_axis(database, 40_000, None)
    assert start(database, Uptime("next", 500.0)) == 40.0
    assert start(database, Uptime("next", 510.0)) == pytest.approx(50.0)
    assert start(database, None) == 40.0


def test_time_axis_never_goes_back(database: Connection) -> None:
    start(database, Uptime("this", 100.0))
    save_axis(database, 40_000, None)
    assert start(database, Uptime("this", 110.0)) == 40.0
    assert start(database, Uptime("this", 5.0)) == 40.0


def test_the_machine_tells_its_uptime() -> None:
    before, after = uptime(), uptime()
    assert before is not None
    assert after is not None
    assert before.machine == after.machine != ""
    assert before.seconds <= after.seconds
