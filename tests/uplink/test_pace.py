"""Metered links: batches are sent only in the time window, and on average not faster than
allowed.
"""

import threading
import time
from datetime import datetime

import pytest

from gateway.config import UplinkSection
from gateway.uplink import pace as pace_module
from gateway.uplink.cutter import Cutter
from gateway.uplink.landing import Unreachable, open_landing
from gateway.uplink.landing.local import LocalLanding
from gateway.uplink.pace import Pace
from gateway.uplink.runner import Uplink
from gateway.uplink.signing import load_or_make
from gateway.uplink.spool import Spool


@pytest.mark.parametrize(
    ("windows", "moment", "open_"),
    [
        ([], "12:00", True),
        (["22:00-06:00"], "23:59", True),
        (["22:00-06:00"], "00:00", True),
        (["22:00-06:00"], "05:59", True),
        (["22:00-06:00"], "06:00", False),
        (["22:00-06:00"], "21:59", False),
        (["01:00-02:00", "13:00-13:30"], "13:29", True),
        (["01:00-02:00", "13:00-13:30"], "12:59", False),
    ],
)
def test_window(windows, moment, open_):
    assert (
        Pace(UplinkSection(landing="/x", window=windows)).open(
            datetime.fromisoformat(f"2026-01-02T{moment}")
        )
        is open_
    )


@pytest.mark.parametrize(
    "window", ["22-", "25:00-06:00", "22:00", "22:00-06:00-07:00", "22:00Z-06:00Z", "night"]
)
def test_invalid_window_is_refused(window):
    with pytest.raises(ValueError, match=r"such as 22:00-06:00"):
        UplinkSection(landing="/x", window=[window])


def test_rate_is_kept_on_average(monkeypatch):
    now = 50.0
    monkeypatch.setattr(pace_module.time, "monotonic", lambda: now)
    pace = Pace(UplinkSection(landing="/x", bytes_per_s=1000))
    sent = 0
    while now < 150.0:
        assert sent <= (now - 50.0) * 1000 + 1
        pace.sent(5000)
        sent += 5000
        now += pace.wait_s()
    assert sent >= 100_000
    now += 1000.0
    assert pace.wait_s() == 0.0
    pace.sent(5000)
    assert pace.wait_s() == 5.0  # an idle time does not allow a faster pace later


def test_a_try_that_failed_on_its_way_has_used_the_link_too(data, monkeypatch):
    """Each try to upload the batch ends with a lost connection. The bytes of such a try count for
    `bytes_per_s`.
    """
    now, tries = 50.0, 0

    class Dying(LocalLanding):
        def create(self, name, content):
            nonlocal tries
            if name.endswith(".parquet"):
                tries += 1
                raise Unreachable("connection lost")
            return super().create(name, content)

    class Conductor(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            nonlocal now
            now += timeout
            if tries == 5:
                self.set()
            return self.is_set()

    data.add(10)
    monkeypatch.setattr(pace_module.time, "monotonic", lambda: now)
    with Spool(data.path) as spool:
        settings = UplinkSection(landing="/x", batch_count=10, bytes_per_s=10)
        Uplink(
            spool,
            Cutter(spool, data.path, settings),
            settings,
            lambda: Dying(str(data.path / "landing")),
            load_or_make(data.path),
        ).run(Conductor())
        assert now - 50.0 >= 4 * spool.unlanded().size / 10


def test_no_batch_lands_outside_the_window_except_with_once(
    data, drain, landed, tmp_path, monkeypatch
):
    place = tmp_path / "landing"
    is_open, refused = False, threading.Event()

    def looks(pace: Pace) -> bool:
        if not is_open:
            refused.set()
        return is_open

    monkeypatch.setattr(Pace, "open", looks)
    data.add(100)
    spool = Spool(data.path)
    settings = UplinkSection(landing=str(place), batch_count=10)
    connected = threading.Event()

    def connect():
        connected.set()
        return open_landing(str(place))

    stop = threading.Event()
    thread_spool = Spool(data.path)
    uplink = Uplink(
        thread_spool,
        Cutter(thread_spool, data.path, settings),
        settings,
        connect,
        load_or_make(data.path),
    )
    thread = threading.Thread(target=uplink.run, args=(stop,))
    thread.start()
    assert not connected.wait(0.7)
    assert spool.last_cut() == (0, 0)
    is_open = True
    deadline = time.monotonic() + 30
    while data.spool_ids():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    is_open = False
    refused.clear()
    assert refused.wait(30)  # no upload that began in the window is still running
    data.add(10)
    stop.set()
    thread.join(30)
    assert len(data.spool_ids()) == 10
    thread_spool.close()
    spool.close()
    drain(data, place)
    assert len(landed(place)) == 110
