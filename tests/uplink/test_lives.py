"""The history of a store, with backups, restores and crashes in any order. Each reading lands once,
under one key.
"""

import shutil
import sqlite3
import tempfile
import threading
from contextlib import closing, suppress
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.config import UplinkSection
from gateway.uplink import epoch
from gateway.uplink.batch import Row
from gateway.uplink.cutter import Cutter
from gateway.uplink.landing.local import LocalLanding
from gateway.uplink.owner import OwnedByAnother
from gateway.uplink.runner import Uplink
from gateway.uplink.signing import load_or_make
from gateway.uplink.spool import Spool
from tests.uplink.conftest import GatewayData, decoded


class PowerCut(BaseException):
    """An exception that stands for a power cut: the uplink does nothing after it."""


class Lives(RuleBasedStateMachine):
    """A gateway with random backups, restores and crashes. Its readings have numbers that a restore
    does not set back, like those of a board.
    """

    def __init__(self) -> None:
        super().__init__()
        # in memory, because it is synced thousands of times
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
        self.place = self.folder / "landing"
        self.data = GatewayData(self.folder / "data")
        self.backup: Path | None = None
        self.died_with_a_card: set[int] = set()

    def teardown(self) -> None:
        try:
            self.run_uplink()
            self.everything_that_survived_has_landed()
        finally:
            shutil.rmtree(self.folder)

    @rule(count=st.integers(1, 8), device=st.sampled_from(["sensor-1", None]))
    def arrive(self, count, device):
        self.data.add(count, device)

    @rule()
    def run_uplink(self):
        self.uplink(LocalLanding(str(self.place)))

    @rule(writes=st.integers(0, 6))
    def run_uplink_until_a_power_cut(self, writes):
        class Cut(LocalLanding):
            left = writes

            def create(self, name, data):
                if Cut.left == 0:
                    raise PowerCut
                Cut.left -= 1
                created = super().create(name, data)
                if Cut.left == 0:
                    raise PowerCut
                return created

        with suppress(PowerCut):
            self.uplink(Cut(str(self.place)))

    def uplink(self, landing):
        spool = Spool(self.data.path)
        try:
            settings = UplinkSection(landing="/x", batch_count=5)
            uplink = Uplink(
                spool,
                Cutter(spool, self.data.path, settings),
                settings,
                lambda: landing,
                load_or_make(self.data.path),
            )
            try:
                uplink.run(threading.Event(), once=True)
            except OwnedByAnother:
                # the same backup was restored twice; the operator says that the other gateway is
                # gone
                epoch.claim(spool, LocalLanding(str(self.place)))
                uplink.run(threading.Event(), once=True)
        finally:
            spool.close()

    @rule()
    def back_up(self):
        self.backup = self.folder / "backup"
        shutil.rmtree(self.backup, ignore_errors=True)
        self.copy(self.data.path, self.backup)

    @precondition(lambda self: self.backup)
    @rule()
    def lose_the_card_and_restore_the_backup(self):
        before = self.spooled()
        shutil.rmtree(self.data.path)
        self.copy(self.backup, self.data.path)
        self.died_with_a_card |= before - self.spooled()

    @staticmethod
    def copy(source, target):
        target.mkdir()
        with (
            closing(sqlite3.connect(source / "gateway.db")) as old,
            closing(sqlite3.connect(target / "gateway.db")) as new,
        ):
            old.backup(new)
        if (source / "batches").exists():
            shutil.copytree(source / "batches", target / "batches")

    def spooled(self) -> set[int]:
        with self.data.db() as db:
            return {
                int.from_bytes(row[0][:8], "big") for row in db.execute("SELECT payload FROM spool")
            }

    def landed(self) -> list[Row]:
        """Return the rows of all epochs as a reader gets them, from batch 1 on without a gap."""
        rows: list[Row] = []
        for folder in self.place.glob("site-1/????????"):
            number = 1
            while (folder / f"{number:012d}.json").exists():
                rows += decoded((folder / f"{number:012d}.parquet").read_bytes())[0]
                number += 1
        return rows

    @invariant()
    def one_key_one_reading(self):
        by_key: dict[tuple, bytes] = {}
        by_reading: dict[bytes, tuple] = {}
        for row in self.landed():
            assert by_key.setdefault(row[:3], row[5]) == row[5], (
                "two readings under one key: the table would lose one"
            )
            assert by_reading.setdefault(row[5], row[:3]) == row[:3], (
                "one reading under two keys: the table would double it"
            )

    def everything_that_survived_has_landed(self):
        arrived = {int.from_bytes(row[5][:8], "big") for row in self.landed()}
        assert set(range(1, self.data.added + 1)) - self.died_with_a_card <= arrived
        assert self.spooled() == set()


Lives.TestCase.settings = settings(
    max_examples=10,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
test_lives_of_a_store = Lives.TestCase
