"""Requests of the uplink to the landing place: how many it makes, and when it makes none."""

import threading
from collections import Counter
from typing import Any

import pytest

from gateway.config import UplinkSection
from gateway.uplink.cutter import Cutter
from gateway.uplink.landing import Landing, Way, open_landing
from gateway.uplink.runner import Backoff, Uplink
from gateway.uplink.signing import load_or_make
from gateway.uplink.spool import Spool
from tests.uplink.conftest import GatewayData
from tests.uplink.s3_lax import lax_s3
from tests.uplink.sftp_kinds import Kind, sftp_of_kind
from tests.uplink.twins import land

BATCH_ON_SFTP, BATCH_ON_S3 = 14, 4
PROOF_BY_RENAME, PROOF_BY_CLAIM = 50, 100
"""Number of requests of a proof by rename, and of a proof by claim, as in the guide. In a deep
folder, a proof needs more.
"""


@pytest.mark.parametrize(
    ("kind", "way", "about"),
    [
        (Kind(), Way.RENAME, PROOF_BY_RENAME),
        (Kind("replaces", hardlink=False), Way.CLAIM_FILE, PROOF_BY_CLAIM),
        (Kind("replaces", hardlink=False, exclusive_open=False), Way.CLAIM_FOLDER, PROOF_BY_CLAIM),
    ],
)
def test_proof_takes_as_many_requests_as_the_guide_says(tmp_path, kind, way, about) -> None:
    asked: Counter[str] = Counter()

    def count(request: str, path: str) -> None:
        asked[request] += 1

    with sftp_of_kind(tmp_path / "server", kind) as server:
        server.kind.at = count
        counts = []
        for _ in range(2):  # the first connection also creates the folders
            landing = open_landing(server.url(), server.options)
            asked.clear()
            assert landing.prove("site-1") is way
            counts.append(asked.total())
            landing.close()
    assert about * 0.8 < min(counts) <= max(counts) < about * 1.2


def test_batch_on_sftp_takes_fourteen_requests(tmp_path, data: GatewayData) -> None:
    asked: Counter[str] = Counter()

    def count(request: str, path: str) -> None:
        asked[request] += "/0000000" in path

    def requests(batches: int) -> int:
        data.add(5 * batches)
        asked.clear()
        assert land(data, lambda: open_landing(server.url(), server.options)) is None
        return asked.total()

    with sftp_of_kind(tmp_path / "server", Kind()) as server:
        server.kind.at = count
        requests(1)
        each = (requests(11) - requests(1)) / 10
    assert each == BATCH_ON_SFTP


def test_batch_on_s3_takes_four_requests(s3, data: GatewayData) -> None:
    asked: list[None] = []
    with lax_s3(s3.port, s3.KEY, s3.SECRET) as proxy:
        proxy.heeds, proxy.busy = True, lambda: asked.append(None)

        def requests(batches: int) -> int:
            data.add(5 * batches)
            asked.clear()
            url = f"{s3.url()}/requests"
            assert land(data, lambda: open_landing(url, s3.options(proxy.port))) is None
            return len(asked)

        requests(1)
        each = (requests(11) - requests(1)) / 10
    assert BATCH_ON_S3 <= each < BATCH_ON_S3 + 1, "four, and one marker for all"


class Polls(threading.Event):
    """A stop event for the uplink. Its wait returns at once, and it is set at the 20th poll."""

    left = 20

    def wait(self, timeout: float | None = None) -> bool:
        self.left -= 1
        if not self.left:
            self.set()
        return self.is_set()


def test_idle_uplink_asks_nothing(data: GatewayData, tmp_path, monkeypatch) -> None:
    """The check of the owner mark is always due, but the idle uplink does not make it."""
    monkeypatch.setattr("gateway.uplink.runner.OWNER_CHECK_S", 0.0)
    asked: list[str] = []

    class Counted:
        def __init__(self) -> None:
            self._landing = open_landing(f"file://{tmp_path}/landing")

        def __getattr__(self, name: str) -> object:
            if name != "url":
                asked.append(name)
            return getattr(self._landing, name)

    def connect() -> Landing:
        return Counted()  # type: ignore[return-value]

    settings, stop = UplinkSection(landing="/x", batch_count=5), Polls()
    with Spool(data.path) as spool:
        uplink = Uplink(
            spool,
            Cutter(spool, data.path, settings),
            settings,
            connect,
            load_or_make(data.path),
        )
        data.add(5)
        uplink.run(threading.Event(), once=True)
        assert "create" in asked
        monkeypatch.setattr(uplink, "_landing", connect())
        asked.clear()
        uplink.run(stop)
    assert set(asked) <= {"move_marker", "close"}, "the marker of the last batch, if it is new"


def test_pauses_between_tries_grow_from_one_second_to_the_longest() -> None:
    pauses = [[Backoff(60, tries=tries).next() for _ in range(50)] for tries in range(12)]
    for tries, found in enumerate(pauses):
        middle = min(2**tries, 60)
        assert middle * 0.75 <= min(found) < middle < max(found) <= middle * 1.25


def test_idle_uplink_closes_its_connection_and_opens_one_for_the_next_batch(
    data: GatewayData, tmp_path, monkeypatch
) -> None:
    """Keeping a connection alive takes more bytes than a new one."""
    opened, closed, rounds = list[Landing](), list[Landing](), list[int]()

    def connect() -> Landing:
        landing = open_landing(f"file://{tmp_path}/landing")
        opened.append(landing)
        monkeypatch.setattr(landing, "close", lambda: closed.append(landing))
        return landing

    class Idle(threading.Event):
        """A stop event that is asked while nothing is due. Rows come after some rounds."""

        def wait(self, timeout: float | None = None) -> bool:
            rounds.append(len(closed))
            if len(rounds) == 3:
                data.add(5)
            if len(rounds) == 8:
                self.set()
            return self.is_set()

    monkeypatch.setattr("gateway.uplink.runner.IDLE_S", 0.0)
    settings = UplinkSection(landing="/x", batch_count=5)
    data.add(5)
    with Spool(data.path) as spool:
        cutter = Cutter(spool, data.path, settings)
        Uplink(spool, cutter, settings, connect, load_or_make(data.path)).run(Idle())
    assert (opened, len(opened)) == (closed, 2)
    assert rounds[:3] == [1, 1, 1]
    assert data.spool_ids() == []


def test_owner_is_checked_again_without_a_new_proof(
    data: GatewayData, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("gateway.uplink.runner.OWNER_CHECK_S", 0.0)
    asked = list[str]()

    def connect() -> Landing:
        landing = open_landing(f"file://{tmp_path}/landing")
        for name in ("prove", "tidy", "read"):
            real = getattr(landing, name)

            def noted(*args: str, name: str = name, real: Any = real) -> Any:
                if name != "read" or args == ("site-1/owner.json",):
                    asked.append(name)
                return real(*args)

            monkeypatch.setattr(landing, name, noted)
        return landing

    settings = UplinkSection(landing="/x", batch_count=5)
    data.add(15)
    with Spool(data.path) as spool:
        cutter = Cutter(spool, data.path, settings)
        uplink = Uplink(spool, cutter, settings, connect, load_or_make(data.path))
        counts = []
        for _ in range(3):
            asked.clear()
            assert uplink._step(once=False)
            counts.append((asked.count("tidy"), asked.count("read") > 0))
        uplink._disconnect()
    assert counts == [(2, True), (0, True), (0, True)]
