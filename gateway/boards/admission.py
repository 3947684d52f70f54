"""Admission of boards: no revoked board may connect. On a port that is not open to all, a board
must be in the device registry. It must also prove its key, unless `device admit` has admitted it
without a key.

In: a name from a HELLO, and the registry as it changes. Out: whether the device may connect, and
its key; the end of a connection whose device was revoked or has a new key; and `DATA/pending.json`,
the unregistered boards that ask for admission now: `[{"name": …, "port": …}]`.

The registry is `DATA/registry.db`, table `device` (`provisioning/registry.py`). Every second a
thread beside the event loop checks the file, and reads it again after a change. So a change takes
effect without a restart, and a slow disk or writer does not delay the gateway.
"""

import asyncio
import json
import logging
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from gateway.access.rules import ByAcl, Caller, Refusal
from gateway.boards.expected import Expected, Seen
from gateway.boards.history import History
from gateway.boards.nowhere import Holders, Nowhere
from gateway.boards.reports import Boards
from gateway.boards.shared_settings import SharedSettings, share
from gateway.broker.publish_run import PublishRun
from gateway.broker.session import Attached
from gateway.broker.spool import Identity
from gateway.config import OWN_NAMES
from gateway.links.greeter import Refusal as LinkRefusal
from gateway.links.serial_port import LENT, PortStatus
from gateway.mqtt.packets import Connect
from gateway.mqtt.reason import ReasonCode
from gateway.payload.readings import readings
from gateway.runtime.administration import dismiss
from gateway.runtime.engine import Engine
from gateway.system.jobs import LOOP_S, Job, SavedFile
from gateway.system.lock import holder
from gateway.system.logs import about

log = logging.getLogger(__name__)

FILE = "registry.db"
PENDING = "pending.json"
LOOK_S = 1.0
REGISTRY_S = 30.0
"""If a changed registry stays unread for longer than this many seconds, that is a problem."""
_LOCKED_S = 5.0
"""Longest wait for the lock of a program that writes the registry, in seconds; a write takes
milliseconds. Until that program is done, the registry as last read stays in force.
"""
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_COUNTER_AT, _COUNTER_SIZE = 24, 4
COMMANDS = "commands/"
"""Beginning of the topics of commands; the board's name follows."""
_LONGEST = 64
"""Largest number of bytes of a command that may set an interval. Longer commands are not
examined.
"""
_MOST_TOLD = 1000
"""Largest number of unregistered boards that are logged, each of them once."""


class Registry:
    """The device registry in the data directory, as last read. While the registry cannot be read,
    no board is admitted and no connection is ended.
    """

    def __init__(self, folder: Path) -> None:
        self.boards = Boards(folder)
        self.expected = Expected(folder)
        self.history = History(folder)
        self._path = folder / FILE
        self._stamp = b""
        self._reading = Lock()
        self._ahead = False
        """Whether `refresh_now` has read a change that `refresh` has not returned yet."""
        self._known: dict[str, _Known] | None = {}
        self._numbers: dict[tuple[int, int], str] = {}
        self.rekeyed: set[str] = set()
        """Names whose key changed between the last two calls of `refresh`."""
        self._replaced: set[str] = set()
        text = f"{self._path}: the device registry cannot be read"
        self.reading = Job("registry", text, REGISTRY_S)
        self.looking = Job("boards", "the list of boards is not compared with the registry", LOOP_S)
        self.pending = SavedFile(folder / PENDING, "the list of boards that ask to be admitted")
        self.refresh()

    @property
    def jobs(self) -> list[Job]:
        saved = (self.pending, self.expected.saved, self.boards.saved)
        return [self.reading, self.looking, *(file.job for file in saved)]

    def refresh(self) -> bool:
        """Read the registry if it has changed. Return whether it has changed since the last call of
        this method. Any thread may call it.
        """
        with self._reading:
            changed = self._reread(_LOCKED_S) or self._ahead
            self._ahead = False
            self.rekeyed, self._replaced = self._replaced, set()
            return changed

    def refresh_now(self) -> bool:
        """Read the registry if it has changed. Called on the event loop before a board is refused,
        so it does not wait for a program that writes the registry. Return whether the registry has
        changed.
        """
        if not self._reading.acquire(blocking=False):
            return False
        try:
            changed = self._reread(0.0)
            self._ahead = self._ahead or changed
            return changed
        finally:
            self._reading.release()

    def _reread(self, patience_s: float) -> bool:
        stamp = self._look()
        if stamp in (b"", self._stamp):  # while the file is missing, nothing changes
            if stamp:
                self.reading.succeed()
            return False
        before = self._known or {}
        try:
            self._known = known = self._read(patience_s)
            self._numbers = {item.number: name for name, item in known.items() if item.number}
        except sqlite3.Error as error:
            if patience_s or getattr(error, "sqlite_errorcode", None) not in _LOCKED:
                self.reading.fail(error)
            if getattr(error, "sqlite_errorcode", None) in _LOCKED:
                return False
            if self._known is not None:
                log.error("%s: boards are refused until this file can be read", self._path)
            self._known, self._stamp = None, b""
            return False
        self.reading.succeed()
        self._stamp = stamp
        self._replaced |= {
            name for name, old in before.items() if name in known and known[name].key != old.key
        }
        return True

    def admits(self, name: str, stranger: bool) -> bool:
        """Whether this device may connect. stranger: the answer for a name that is not
        registered.
        """
        return self._known is not None and _welcome(self._known, name, stranger)

    def key(self, name: str) -> bytes | None:
        """Return the key of a device; None if no key is known."""
        found = (self._known or {}).get(name)
        return found.key if found else None

    def name(self, network: int, number: int) -> str | None:
        """Return the name of the radio board with this number in a network; None if there is
        none.
        """
        return self._numbers.get((network, number))

    def tolerates(self, names: set[str], stranger: bool) -> bool:
        """Whether a connection that was admitted under these names may stay. stranger: the answer
        for a name that is not registered. While the registry cannot be read, every connection may
        stay.
        """
        known = self._known
        return known is None or all(_welcome(known, name, stranger) for name in names)

    def knows(self, name: str) -> bool:
        """Whether the name is registered, even if revoked. While the registry cannot be read, every
        name counts as registered.
        """
        return self._known is None or name in self._known

    def reserves(self, name: str) -> bool:
        """Whether the name is registered, even if revoked. While the registry cannot be read, no
        name counts as registered.
        """
        return self._known is not None and name in self._known

    def is_by_radio(self, name: str) -> bool:
        """Whether this device has a number in a radio network."""
        found = (self._known or {}).get(name)
        return found is not None and found.number is not None

    def is_admitted_by_name(self, name: str) -> bool:
        """Whether a person has admitted this device by name, although the registry has no key for
        it.
        """
        found = (self._known or {}).get(name)
        return found is not None and found.status == "admitted" and found.key is None

    @property
    def readable(self) -> bool:
        return self._known is not None

    def registered(self) -> "dict[str, Listed]":
        """Return all devices of the registry, by name; empty while the registry cannot be read."""
        return {name: item.listed for name, item in (self._known or {}).items()}

    def _look(self) -> bytes:
        """Return a value that differs after each change: the change counter in the file's header
        (SQLite's "Database File Format", section 1.3.7). Empty while there is no registry.
        """
        try:
            with self._path.open("rb") as file:
                file.seek(_COUNTER_AT)
                return file.read(_COUNTER_SIZE)
        except FileNotFoundError:
            return b""
        except OSError as error:
            self.reading.fail(error)
            return b""

    def _read(self, patience_s: float) -> "dict[str, _Known]":
        with closing(
            sqlite3.connect(
                f"{self._path.absolute().as_uri()}?mode=ro", uri=True, timeout=patience_s
            )
        ) as database:
            database.row_factory = sqlite3.Row
            rows = map(dict, database.execute("SELECT * FROM device ORDER BY name"))
            return {
                row["name"]: _Known(
                    row["status"],
                    row["key"],
                    Listed(row["status"], row["board"], row["firmware"], row.get("port")),
                    _number(row.get("radio")),
                )
                for row in rows
            }


@dataclass(frozen=True, slots=True)
class Listed:
    """The public facts about a device. status: such as `admitted` or `revoked`. board: kind of the
    board. firmware: SHA-256 of the HEX file that it got. port: the port at which it was flashed
    last. The last three are None if unknown.
    """

    status: str
    board: str | None
    firmware: str | None
    port: str | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    """The registry's entry of a device. key: 16 bytes, or None. number: network number and device
    number of a radio board, or None.
    """

    status: str
    key: bytes | None = field(repr=False)
    listed: Listed
    number: tuple[int, int] | None = None


def _number(radio: str | None) -> tuple[int, int] | None:
    """Return network number and device number of a radio board; None for other boards. radio: JSON
    of provisioning/radio_plan.py, or None, as in older registries.
    """
    if radio is None:
        return None
    plan = json.loads(radio)
    return plan["network"], plan["device"]


def _welcome(known: dict[str, _Known], name: str, stranger: bool) -> bool:
    return stranger if name not in known else known[name].status != "revoked"


class DeviceAccess(ByAcl):
    """The access rules of a serial port. stranger: whether a board that is not registered may
    connect. A reload may change `stranger`.
    """

    def __init__(self, registry: Registry, stranger: bool) -> None:
        self._registry = registry
        self.stranger = stranger

    def greets(self, name: str, proved: bool) -> LinkRefusal | None:
        """Return why a board with this name may not connect, or None if it may. proved: whether the
        board has proved its key.
        """
        if name.startswith(OWN_NAMES) or not self._registry.admits(name, self.stranger):
            return LinkRefusal.STRANGER
        if not proved and self.key(name) and self._registry.boards.has_proved(name):
            return LinkRefusal.NO_PROOF
        if not proved and self._registry.reserves(name):
            self._registry.boards.greeted(name, keyed=False)
        admitted = proved or self.stranger or self._registry.is_admitted_by_name(name)
        return None if admitted else LinkRefusal.NO_PROOF

    def key(self, name: str) -> bytes | None:
        """Return the key of the device with this name, or None if no key is known."""
        return self._registry.key(name)

    def refuses_connect(self, caller: Caller, packet: Connect) -> Refusal | None:
        device = caller.peer.device
        if self._registry.admits(packet.client_id, self.stranger):
            if device is not None and device.proved:
                self._registry.boards.greeted(device.name, keyed=True)
            return None
        return (
            ReasonCode.NOT_AUTHORIZED,
            f"device {packet.client_id!r} is revoked, or not in the device registry",
        )

    def heard(self, identity: Identity, payload: bytes, monotonic: int) -> None:
        self._registry.boards.last_publications.hear(identity, payload, monotonic)

    def note_publication(
        self,
        device: str,
        topic: str,
        payload: bytes,
        reason: ReasonCode | None,
        monotonic: int,
        utc: int | None,
    ) -> None:
        self._registry.boards.note_publication(device, topic, payload, reason, monotonic, utc)
        if reason is None and self._registry.reserves(device):
            _note(self._registry, device, topic, payload, utc)

    def holds(self, caller: Caller) -> bool:
        """Whether an admitted connection would be admitted again now. Always True while the
        registry cannot be read.
        """
        device = caller.peer.device
        names = {caller.client} | ({device.name} if device is not None else set())
        return self._registry.tolerates(names - {""}, self.stranger)


def _note(registry: Registry, device: str, topic: str, payload: bytes, utc: int | None) -> None:
    """Record a publication of a registered board. A reading goes into the history and into the
    facts by which the board is judged. Of a status, only the interval is recorded. Publications
    below `logs` are ignored. utc: µs since 1970, or None if the time is unknown.
    """
    if topic.endswith("/status"):
        interval = (registry.boards.status(device) or {}).get("interval")
        if interval is not None and interval >= 0:
            registry.expected.tell(device, interval)
    elif not topic.startswith("logs/"):
        try:
            found = readings(device, topic, payload, utc)
        except Exception:  # hostile bytes; still, the board has sent
            found = []
        times = [one.time for one in found if one.time is not None and one.quality != "unknown"]
        registry.history.take(device, found)
        last = [{"name": one.name, "value": one.value, "unit": one.unit} for one in found[-1:]]
        registry.expected.hear(
            device,
            max(times) / 1_000_000 if times else None,
            last[0] if last else None,
        )


def commanded(registry: Registry, run: PublishRun) -> None:
    """Record a command to a board, from any sender, if it sets an interval. run: PUBLISH packets on
    any topic.
    """
    if (name := run.topic.name.removeprefix(COMMANDS)).count("/") == 0 and run.size <= _LONGEST:
        registry.expected.command(name, run.payload(run.count - 1).decode(errors="replace"))


class Watch:
    """A check of registry and ports that runs every second, from its creation until `close`. Disk
    access runs on a separate thread. ports: returns the status of each serial port. changed: called
    when the registry has changed. holders, is_first: see `Nowhere`.
    """

    def __init__(
        self,
        folder: Path,
        registry: Registry,
        engine: Engine,
        ports: Callable[[], list[PortStatus]],
        changed: Callable[[], None] = lambda: None,
        holders: Holders | None = None,
        is_first: Callable[[], bool] = lambda: True,
    ) -> None:
        self._file = folder / PENDING
        registry.looking.begin()
        self._nowhere = Nowhere(holders, is_first)
        self._settings = SharedSettings(engine, registry.expected)
        self._changed = changed
        self._registry = registry
        self._engine = engine
        self._ports = ports
        self._written: str | None = None
        registry.expected.clock = lambda: engine.broker.now
        registry.history.clock = lambda: (engine.broker.now, engine.broker.utc)
        self._logged: set[str] = set()
        self._thread = ThreadPoolExecutor(1, "registry")
        self._looks = asyncio.Lock()
        self._task = asyncio.create_task(self._watch())

    def close(self) -> None:
        self._task.cancel()
        self._nowhere.close()
        self._thread.shutdown(cancel_futures=True)
        if news := self._registry.expected.news(at_end=True):
            self._registry.expected.write(news)
        self._registry.history.write()
        with suppress(OSError):
            self._file.unlink(missing_ok=True)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self.look()
                if news := self._registry.expected.news():
                    await loop.run_in_executor(self._thread, self._registry.expected.write, news)
                text = json.dumps(self._strangers())
                if text != self._written or self._registry.pending.unwritten:
                    self._written = text
                    await loop.run_in_executor(self._thread, self._registry.pending.write, text)
                if news := self._registry.boards.news():
                    await loop.run_in_executor(self._thread, self._registry.boards.write, news)
                self._registry.looking.go_round()
            except Exception as error:
                self._registry.looking.fail(error)
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Read the registry if it has changed, and judge the boards."""
        async with self._looks:
            loop = asyncio.get_running_loop()
            if await loop.run_in_executor(self._thread, self._registry.refresh):
                self._dismiss()
                if self._registry.readable:
                    self._registry.history.forget(self._registry.registered())
                self._changed()
            self._look_at_boards()

    def _dismiss(self) -> None:
        """End connections of boards that were revoked or have a new key."""

        def is_rekeyed(caller: Attached) -> bool:
            device = caller.peer.device
            return device is not None and device.name in self._registry.rekeyed

        def is_revoked(caller: Attached) -> bool:
            access = caller.policy.access
            revoked = isinstance(access, DeviceAccess) and not access.holds(caller)
            if revoked:
                log.warning(
                    "%s: the device was revoked: its connection ends",
                    caller.name,
                    extra=about(**caller.about),
                )
            return revoked

        dismiss(self._engine, is_revoked, ReasonCode.NOT_AUTHORIZED, "the device was revoked")
        text = "the device has another key now"
        dismiss(self._engine, is_rekeyed, ReasonCode.ADMINISTRATIVE_ACTION, text)

    def _look_at_boards(self) -> None:
        """Judge the boards of the registry. In a site, each gateway judges the boards whose
        sessions it has, and one of the gateways judges the boards that have no session at any
        gateway.
        """
        registry, broker = self._registry, self._engine.broker
        if not registry.readable:
            return
        names = [name for name, row in registry.registered().items() if row.status != "revoked"]
        elsewhere: set[str] = set()
        if broker.config.site is not None:
            elsewhere = {name for name in names if name not in broker.sessions}
            missing = {name for name in elsewhere if registry.expected.was_problem(name)}
            elsewhere -= self._nowhere.among(elsewhere, broker.now, missing)
            self._settings.take({*names})
            names = [name for name in names if name not in elsewhere]
        forgotten = registry.expected.look(names, self._seen(names), elsewhere)
        if broker.config.site is not None:
            for name in forgotten:  # a later board of this name begins without settings
                share(self._engine, name, "paused", None)
                share(self._engine, name, "interval", None)

    def _seen(self, names: list[str]) -> dict[str, Seen]:
        """Return the gateway's current view of each of these boards."""
        ports = self._ports()
        paths = {port.path for port in ports}
        connected = {
            peer.device.name: peer.address not in paths
            for peer in (connection.peer for connection in self._engine.broker.connections)
            if peer.device is not None
        }
        path_of = {port.device: port.path for port in ports if port.device}
        open_devices = {os.path.realpath(port.path) for port in ports if port.is_open}
        lent = {os.path.realpath(port.path) for port in ports if port.problem == LENT}
        refused = {
            port.refused: (port.path, port.refusal) for port in ports if self._is_refused(port)
        }
        last = {
            name: os.path.realpath(port)  # a port has several names
            for name in names
            if (port := self._registry.expected.port_of(name)) is not None
        }
        return {
            name: Seen(
                name in connected,
                path_of.get(name),
                connected.get(name, False) or self._registry.is_by_radio(name),
                last.get(name) in open_devices,
                last.get(name) in lent,
                *refused.get(name, ()),
            )
            for name in names
        }

    def _is_refused(self, port: PortStatus) -> bool:
        """Whether a board of the registry is refused at this port. If the board was registered
        after the refusal, the answer is False: its next HELLO will succeed.
        """
        if port.refused is None or not port.is_open or port.refusal is LinkRefusal.STRANGER:
            return False
        entered = self._registry.key(port.refused) is not None
        return not (port.refusal is LinkRefusal.UNKNOWN_KEY and entered)

    def _strangers(self) -> list[dict[str, str]]:
        """Return the boards that are refused because they are not registered, with name and port.
        Log each once, except boards that show a key: `serial_port.py` logs these.
        """
        strangers = [
            {"name": port.refused, "port": port.path} | _unknown_key(port)
            for port in self._ports()
            if port.refused is not None and not self._registry.knows(port.refused)
        ]
        for stranger in strangers:
            if "key" in stranger:
                continue  # `serial_port.py` has logged how to admit it: not by name alone
            if stranger["name"] not in self._logged and len(self._logged) < _MOST_TOLD:
                self._logged.add(stranger["name"])
                log.warning(
                    "%s: the device %r is not registered: `onceway device admit NAME` lets it in",
                    stranger["port"],
                    stranger["name"],
                )
        return strangers


def _unknown_key(port: PortStatus) -> dict[str, str]:
    """Return `{"key": "unknown"}` if the board has a key that the gateway does not know. Such a
    board can't be admitted by its name alone. Return {} for other boards.
    """
    return {"key": "unknown"} if port.refusal is LinkRefusal.UNKNOWN_KEY else {}


def pending(folder: Path) -> list[dict[str, str]] | None:
    """Return the unregistered boards that ask the gateway of this data directory for admission,
    with `name` and `port`; None if no gateway uses the directory.
    """
    if holder(folder / "gateway.lock") is None:
        return None
    try:
        strangers: list[dict[str, str]] = json.loads((folder / PENDING).read_text())
    except FileNotFoundError:
        return []
    return strangers
