"""Landing of a dead gateway's store, from any machine.

In: its data directory, perhaps on a read-only card. Out: the batches that its own uplink would have
landed next, under its name, epoch and numbers, signed with its key.

All work is done on a copy, so the directory does not change, and a repeated rescue starts from the
same state. The limits of a batch are the same on all machines, so the same rows give the same
bytes. A batch that has already landed is recognised by its bytes. If a batch number is in use for
other bytes, the gateway has continued in the meantime, or its rows were cut in another way. Then
the rows are compared with landed rows, and the missing ones land in a new epoch (`epoch.py`). The
owner mark is not changed: a gateway that has taken over the name keeps the name.

Copies of other gateways' rows on the card (`gateway/store/copies.py`) land last, in an epoch of
their own. Their own gateway may have landed these rows, too: the table recognises them by their
keys.
"""

import hashlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from gateway.config import UplinkSection
from gateway.errors import NotAllowed, OncewayError
from gateway.store.copies import FILE as SHELF
from gateway.store.copies import bring_all
from gateway.store.schema import (
    FILE,
    StoreError,
    connect,
    open_store,
    refuse_half_salvaged,
    refuse_orphaned,
    unusable,
)
from gateway.system.lock import Locked, ProcessLock, holder
from gateway.uplink import epoch, owner
from gateway.uplink.cutter import Cutter
from gateway.uplink.lander import NumberLost, land
from gateway.uplink.landing import Landing, Unreachable
from gateway.uplink.manifest import Manifest, Origin
from gateway.uplink.newest import Newest
from gateway.uplink.signing import FILE as KEY
from gateway.uplink.signing import load_or_make
from gateway.uplink.spool import EVER, NoSpool, Spool

_LOCKS = "gateway.lock", "uplink.lock"
_NEW_KEY = (
    "Restore it from a backup. Or copy the directory without the key, make a key in the copy"
    " (`onceway uplink key --data COPY`), give it to the centre (`onceway ingest trust`), and land"
    " the copy"
)
_USUAL = "var/lib/onceway"
"""Data directory of the Debian package, below the root of a card."""


@dataclass(frozen=True, slots=True)
class Rescued:
    """The result of a rescue. readings, batches: how many this run has landed. there: number of
    readings that had landed before. copies: number of readings, of this run and before, that are
    replicas of other gateways' rows.
    """

    gateway: str
    epoch: str
    readings: int
    batches: int
    there: int  # prose: JSON key
    copies: int = 0


def rescue(
    directory: Path,
    settings: UplinkSection,
    connect_to: Callable[[], Landing],
    progress: Callable[[int, int], None],
    new_place: bool = True,
) -> Rescued:
    """Land the rows of the store that is in `directory`. progress: called with the number of
    readings done, and the number of all readings. new_place: whether the landing place may be one
    without any batch of the gateway. Raises OncewayError. The rescue can then be repeated.
    """
    with (
        _copy(directory) as copy,
        _naming(directory, copy),
        Spool(copy) as spool,
        closing(connect_to()) as landing,
    ):
        if not new_place:
            _must_know(landing, spool.origin().gateway)
        return _Work(spool, copy, landing, settings, progress).run()


def _must_know(landing: Landing, gateway: str) -> None:
    """Raise OncewayError if the landing place has nothing of this gateway. Its URL may be mistyped:
    then the readings would wrongly count as landed.
    """
    if owner.read(landing, gateway) is None and not landing.epochs(gateway):
        raise OncewayError(
            f"this landing place has nothing of the gateway {gateway}",
            landing.url,
            "Is the address right? If this place is to be new, add --new-place",
        )


@contextmanager
def _naming(directory: Path, copy: Path) -> Iterator[None]:
    """Change each error that is raised within the context, so that it names the directory instead
    of its copy. Raises StoreError if the store is damaged.
    """
    try:
        yield
    except OncewayError as error:
        if _is_damage(error.__cause__):
            raise unusable(directory, error.__cause__) from error
        if error.where == str(copy / KEY):
            error.hint = _NEW_KEY
        error.where = error.where and error.where.replace(str(copy), str(directory))
        error.hint = error.hint and error.hint.replace(str(copy), str(directory))
        raise


def _is_damage(error: BaseException | None) -> TypeGuard[sqlite3.DatabaseError]:
    """Whether an error says that a database is damaged, and not that it is busy."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, sqlite3.OperationalError
    )


class _Work:
    def __init__(
        self,
        spool: Spool,
        copy: Path,
        landing: Landing,
        settings: UplinkSection,
        progress: Callable[[int, int], None],
    ) -> None:
        self._spool = spool
        self._folder = copy
        self._landing = landing
        self._read_back = settings.read_back
        self._progress = progress
        # the same limits on each machine: the same rows are the same batches
        self._cutter = Cutter(spool, copy, UplinkSection(landing=settings.landing))
        self._signer = load_or_make(copy)
        self._newest = Newest(spool)

    def run(self) -> Rescued:
        origin = self._spool.origin()
        self._must_be_the_place(origin)
        total = remaining = self._waiting()
        readings = batches = copies = 0
        copies_brought = False
        renumbered = False
        while True:
            self._progress(total - remaining, total)
            cut = self._spool.unlanded()
            if cut is None and self._spool.new_name():
                epoch.begin_under_new_name(self._spool, _next_epoch(self._spool.origin()))
            if cut is None and not self._cutter.due(flush=True):
                if copies_brought:
                    break
                copies_brought, copies = True, self._bring_copies(origin)
                total, remaining = total + copies, copies
                continue
            cut = cut or self._cutter.cut()
            name = Manifest(self._spool.origin(), cut.number, 0, 0, "").name
            was_there = self._landing.read(name) is not None
            try:
                land(cut, self._spool, self._cutter, self._landing, self._signer, self._read_back)
            except NumberLost as error:
                if renumbered:
                    raise Unreachable(error.what, error.where) from error
                renumbered = True
                epoch.begin_after_conflict(self._spool, self._landing, cut.number)
                self._cutter.tidy()
                remaining = self._waiting()
                continue
            renumbered = False
            remaining -= cut.rows
            if not was_there:
                readings, batches = readings + cut.rows, batches + 1
            self._newest.tell(self._landing, more_comes=self._cutter.due(flush=True))
        already_landed = total - readings
        return Rescued(origin.gateway, origin.epoch, readings, batches, already_landed, copies)

    def _bring_copies(self, origin: Origin) -> int:
        """Put the copies of other gateways' rows into the spool, under a new epoch. Call this after
        the gateway's own rows have landed. Return the number of copies.
        """
        with closing(connect(self._folder / FILE)) as database:
            copies = bring_all(self._folder, database)
        if copies:
            self._spool.renumber(_next_epoch(origin, "copies"), {})
            self._cutter.tidy()
        return copies

    def _waiting(self) -> int:
        cut = self._spool.unlanded()
        return self._spool.waiting(EVER)[0] + (cut.rows if cut else 0)

    def _must_be_the_place(self, origin: Origin) -> None:
        """Raise OncewayError if batches of the gateway have landed, but nothing of the gateway is
        at this place. Otherwise, the batches at this place would begin with a number above 1, and
        the ingest would wait for the lower numbers forever.
        """
        landed, _ = self._spool.last_landed()
        if landed and owner.read(self._landing, origin.gateway) is None:
            raise OncewayError(
                f"nothing of {origin.gateway} is at this landing place, although batches of this"
                f" gateway have landed ({landed})",
                self._landing.url,
                "Name the place where they landed, and make sure that it is mounted",
            )


def _next_epoch(origin: Origin, suffix: str = "") -> str:
    """Return the epoch that follows the one of `origin`. It depends only on the arguments, so all
    machines that land this store use the same epoch.
    """
    return hashlib.sha256(f"onceway spool land {origin.folder}{suffix}".encode()).hexdigest()[:8]


@contextmanager
def _copy(directory: Path) -> Iterator[Path]:
    """Yield a sound copy of the files that landing needs, and remove it at the end. The directory
    is locked against a gateway in the meantime.
    """
    _must_hold_a_store(directory)
    with ExitStack() as stack:
        _lock(directory, stack)
        copy = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onceway-spool-")))
        try:
            for name in (FILE, f"{FILE}-wal", KEY, SHELF, f"{SHELF}-wal"):
                if (directory / name).exists():
                    shutil.copyfile(directory / name, copy / name)
            if (directory / "batches").is_dir():
                shutil.copytree(directory / "batches", copy / "batches")
        except (OSError, shutil.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise OncewayError(
                f"the store cannot be copied to {copy.parent} ({reason})",
                str(directory),
                "May this account read it, and is there room? TMPDIR names another place for the"
                " copy.",
            ) from error
        _make_ready(copy, directory)
        yield copy


def _must_hold_a_store(directory: Path) -> None:
    try:
        refuse_half_salvaged(directory)
        refuse_orphaned(directory / FILE)
        found, readable = (directory / FILE).is_file(), os.access(directory / FILE, os.R_OK)
        keyed = (directory / KEY).is_file()
    except PermissionError:
        found, readable, keyed = True, False, False
    if not found:
        usual = directory / _USUAL
        hint = f"Name this directory: {usual}" if (usual / FILE).is_file() else None
        raise NoSpool(
            f"there is no store of a gateway ({FILE})",
            str(directory),
            hint or f"Name the gateway's data directory; on its card: {_USUAL}",
        )
    if not readable:
        raise NotAllowed(
            "this account may not read the gateway's data",
            str(directory),
            "Run the command with sudo",
        )
    if not keyed:
        raise OncewayError(
            f"the key that signs the gateway's batches ({KEY}) is missing",
            str(directory),
            _NEW_KEY,
        )


def _lock(directory: Path, stack: ExitStack) -> None:
    """Lock the directory against its gateway and its uplink. If the directory is read-only, only
    check that neither of them runs. Raises Locked if one of them runs.
    """
    for name in _LOCKS:
        path = directory / name
        if os.access(directory, os.W_OK):
            stack.enter_context(closing(ProcessLock(path)))
        elif (user := holder(path)) is not None:
            raise Locked(f"already in use by {user}", str(path), "Stop it first")


def _make_ready(copy: Path, directory: Path) -> None:
    """Check a copy of a store, and apply its write-ahead log. Raises StoreError if commits of the
    log are lost, or if the store is damaged or too new. directory: named in errors.
    """
    try:
        # keep this connection until the log is read: the last connection to close deletes the log
        with closing(connect(copy / FILE)) as database:
            if not database.execute("PRAGMA user_version").fetchone()[0]:
                raise NoSpool("the database has no spool", str(directory / FILE))
            name = database.execute("SELECT value FROM meta WHERE key = 'gateway'").fetchone()
            open_store(copy, str(name[0]) if name else "").close()
    except sqlite3.Error as error:
        raise unusable(directory, error) from error
    except NoSpool:
        raise
    except StoreError as error:
        hint = error.hint and error.hint.replace(str(copy), str(directory))
        raise StoreError(error.what, str(directory / FILE), hint) from error
