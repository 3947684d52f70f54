"""Rows of the page's list of boards. In: connections, ports, the device registry, last readings and
status reports of boards. Out: one row for each board. A row is rebuilt when its board has changed,
and at least once a minute, so that ten thousand boards take little time.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import Protocol

from gateway.links.serial_port import PortStatus
from gateway.mirror.last import LastReadings
from gateway.payload.answers import Answer
from gateway.web.sight import Row, newest, value
from gateway.web.source import Source

ROUND = 60
"""Number of calls of `changes` in which each row is rebuilt at least once."""
MOST_AT_ONCE = 1000
"""Largest number of rows that one call of `changes` builds. Further rows follow in later calls."""


class Listed(Protocol):
    """A device of the registry."""

    @property
    def status(self) -> str: ...

    @property
    def board(self) -> str | None: ...

    @property
    def firmware(self) -> str | None: ...


class Kind(Protocol):
    """A kind of board."""

    @property
    def title(self) -> str: ...

    @property
    def sha256(self) -> str | None: ...


class BoardRows:
    """The rows of all boards. registered: the device registry. kinds: kinds of boards by name."""

    def __init__(
        self,
        source: Source,
        readings: LastReadings,
        registered: Callable[[], Mapping[str, Listed]],
        kinds: Callable[[], Mapping[str, Kind]],
    ) -> None:
        self._source = source
        self._readings = readings
        self._registered = registered
        self._kinds = kinds
        self._rows: dict[str, Row] = {}
        self._dirty: set[str] = set()
        self._turn = 0
        self._connected: dict[str, str] = {}
        """Address of each connected board, by name."""
        self._listed: dict[str, Listed] = {}
        self._words: dict[str, str] = {}

    @property
    def connected(self) -> Collection[str]:
        """Names of the connected boards."""
        return self._connected.keys()

    @property
    def rows(self) -> dict[str, Row]:
        """All rows by name, in the state of the last call of `changes`."""
        return self._rows

    def touch(self, name: str) -> None:
        """Note that a board has changed, so that its row is rebuilt."""
        self._dirty.add(name)

    def changes(self) -> tuple[list[Row], list[str]]:
        """Return the rows that have changed since the last call (at most MOST_AT_ONCE), and the
        names of boards that no longer exist.
        """
        ports = {port.device: port for port in self._source.ports() if port.device}
        pending = {
            port.refused: port.path
            for port in self._source.ports()
            if port.refused and port.refused not in self._listed
        }
        connected, listed = dict(self._connections()), dict(self._registered())
        self._dirty |= self._changed_states()
        for before, now in ((self._connected, connected), (self._listed, listed)):
            self._dirty |= {
                name for name in before.keys() | now.keys() if before.get(name) != now.get(name)
            }
        self._connected, self._listed = connected, listed
        by_radio = self._source.by_radio
        names = {*self._readings.devices, *connected, *listed, *pending}
        self._dirty |= names - self._rows.keys()
        self._dirty |= {row["name"] for row in self._rows.values() if row["state"] == "pending"}
        self._turn = (self._turn + 1) % ROUND
        self._dirty.update([*self._rows][self._turn :: ROUND])
        removed = [name for name in self._rows if name not in names]
        for name in removed:
            del self._rows[name]
        changed = []
        self._dirty &= names
        for name in list(islice(self._dirty, MOST_AT_ONCE)):
            self._dirty.discard(name)
            row = self._row(name, ports.get(name), pending.get(name), name in by_radio)
            if self._rows.get(name) != row:
                self._rows[name] = row
                changed.append(row)
        return changed, removed

    def _changed_states(self) -> set[str]:
        """Return the names of the boards whose state has changed since the last call."""
        states = self._source.expected.states if self._source.expected is not None else {}
        words: dict[str, str] = {name: state.word for name, state in states.items()}
        before, self._words = self._words, words
        return {name for name, _ in words.items() ^ before.items()}

    def _connections(self) -> Iterator[tuple[str, str]]:
        for connection in self._source.broker.connections:
            if connection.peer.device is not None:
                yield connection.peer.device.name, connection.peer.address

    def _row(self, name: str, port: PortStatus | None, pending: str | None, radio: bool) -> Row:
        listed = self._listed.get(name)
        kind = self._kinds().get((listed and listed.board) or "")
        firmware = listed.firmware if listed else None
        boards = self._source.boards
        status = (boards.status(name) if boards else None) or {}
        answer = boards.answers.get(name) if boards else None
        last = newest(self._readings.of(name).values())
        return {
            "name": name,
            "state": self._state(name, listed, pending),
            "problem": self._problem(name),
            "registered": listed is not None and listed.status != "revoked",
            "place": self._connected.get(name) or pending,
            "radio": radio,
            "kind": kind.title if kind else None,
            "last": last and value(last),
            "seen": self._readings.received(name),
            "heard": self._heard(name),
            "per_hour": self._readings.per_hour(name, self._source.broker.utc),
            "again": port.statistics.retransmissions if port else None,
            "bad": port.statistics.crc_errors if port else None,
            "life": status.get("life"),
            "answer": answer and _answer(answer),
            "firmware": firmware and firmware[:12],
            "outdated": bool(firmware and kind and kind.sha256 and kind.sha256 != firmware),
        }

    def _state(self, name: str, listed: Listed | None, pending: str | None) -> str:
        if listed is not None and listed.status in ("revoked", "flashing"):
            return "online" if name in self._connected else listed.status
        expected = self._source.expected
        state = expected.states.get(name) if expected is not None else None
        if state is not None and (state.is_problem or state.word == "paused"):
            return state.word
        if name in self._connected:
            return "online"
        return "pending" if pending else "offline"

    def _heard(self, name: str) -> int | None:
        """Return when the last reading arrived, in µs on the broker's time axis (`Broker.now`), or
        None.
        """
        expected = self._source.expected
        state = expected.states.get(name) if expected is not None else None
        return None if state is None or state.heard is None else int(state.heard * 1e6)

    def _problem(self, name: str) -> str | None:
        """Return a board's problem and its remedy in one text; None if the board has no problem."""
        expected = self._source.expected
        state = expected.states.get(name) if expected is not None else None
        return f"{state.sentence}. {state.todo}" if state is not None and state.is_problem else None


def _answer(answer: Answer) -> dict[str, str]:
    """Return a board's answer to its last command, as JSON fields. `to` is the command's
    Correlation Data, in hexadecimal.
    """
    return {"to": answer.correlation.hex(), "kind": answer.kind, "words": answer.words}
