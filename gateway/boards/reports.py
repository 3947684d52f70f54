"""Status reports of boards, and refusals of their publications.

In: each publication of a board, and the reason if it is refused. Out: the board facts in `gateway
status`, /healthz, metrics and `onceway device list`; the same facts in `DATA/boards.json`, for
restarts and for commands without a gateway: `{"roof-1": {"life": 11.4, "worn": 0, …, "seen":
UTC}}`; and a log line for each command that a board does not know.

A status comes on a topic that ends with `/status`, in SenML-CBOR (RFC 8428) under the board's own
name; see firmware/README.md. A payload that cannot be read is ignored. If a board does not know a
command, it publishes `unknown command: TEXT` on `logs/NAME`.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.boards.payload_conflicts import LastPublications
from gateway.broker.refusals import words
from gateway.mqtt.errors import quote
from gateway.mqtt.reason import ReasonCode
from gateway.payload import answers
from gateway.payload.faults import FAULT
from gateway.payload.faults import words as fault_words
from gateway.payload.loss import LOST
from gateway.system.jobs import SavedFile
from gateway.system.log_throttle import LogThrottle
from gateway.system.logs import about

log = logging.getLogger(__name__)

FILE = "boards.json"
MOST_BOARDS = 10_000
FORGET_US = 3 * 3_600_000_000
"""Time in µs after which a refusal, a lost publication or a payload conflict is no longer reported.
It is longer than an hour: a board repeats a permanently refused publication about once an hour
(firmware/src/ow_flow.c).
"""
MOST_FAULTS = 16
"""Largest number of sensor faults kept for one board."""
FIGURES = ("life", "worn", "aside", "denied", "boot", "bad", "again", "interval")
_TOPIC_END = "/status"
_MOST_BYTES = 256
_BASE_NAME, _NAME, _VALUE = -2, 0, 2
UNKNOWN_COMMAND = "unknown command: "
"""Beginning of the line by which a board says that it does not know a command. The command follows,
and may be incomplete.
"""
_KNOWN_COMMANDS = "`interval N s`, `identify` and `reboot`"

KEYED = "keyed"
Status = dict[str, float]
"""The FIGURES that a board has reported. Other keys: `seen`, the UTC of the report in seconds, if
the clock was known; `keyed`, 1 if the board has ever proved its key, and 0 if not, for example with
older firmware; and one key for each fault of a sensor.
"""


@dataclass(slots=True)
class Refusal:
    """The latest refusals for good of one board's publications, all on one topic. count: their
    number, which begins again if another topic is refused. last: time of the last one, in µs of any
    origin.
    """

    topic: str
    reason: ReasonCode
    count: int
    last: int


@dataclass(slots=True)
class Loss:
    """The publications that one board has lost to damaged memory since the gateway's start.
    sequence: sequence of the last lost publication. last: time of its report, µs of any clock.
    """

    sequence: int
    count: int
    last: int


class Boards:
    """The reports of boards, by name. If there are more than MOST_BOARDS boards, the one that
    reported least recently is dropped.
    """

    def __init__(self, folder: Path) -> None:
        self.saved = SavedFile(folder / FILE, "the reports of boards")
        self._statuses = read(folder)
        self._refusals: dict[str, Refusal] = {}
        self._losses: dict[str, Loss] = {}
        self._new = False
        self._throttle = LogThrottle(time.monotonic)
        self.last_publications = LastPublications()
        self.answers: dict[str, answers.Answer] = {}
        """Each board's answer to its last command, since the gateway's start."""
        self.on_publication: Callable[[str, str, bytes, int | None], None] | None = None
        """Callback for each accepted publication. Arguments: the board's name, topic, payload, and
        the time in µs since 1970, or None.
        """

        self.answered: Callable[[str], None] | None = None
        """Callback for each answer of a board to a command, with the name of the board."""

    def note_publication(
        self,
        name: str,
        topic: str,
        payload: bytes,
        reason: ReasonCode | None,
        monotonic: int,
        utc: int | None,
    ) -> None:
        """Record a publication of a board. reason: why it is refused, or None. monotonic: µs of any
        origin. utc: µs since 1970, or None.
        """
        if topic == f"logs/{name}":
            self._hear_log(name, payload, monotonic)
        known = self._refusals.get(name)
        if reason is None:
            if known is not None and known.topic == topic:
                del self._refusals[name]
            if self.on_publication is not None:
                self.on_publication(name, topic, payload, utc)
            if topic.endswith(_TOPIC_END) and len(payload) <= _MOST_BYTES:
                self._take(name, payload, utc)
            elif any(self._faults(name)):
                self._find_well(name, topic, payload)
        elif reason != ReasonCode.QUOTA_EXCEEDED:  # temporary: the spool is full, the board is fine
            count = known.count if known is not None and known.topic == topic else 0
            _put(self._refusals, name, Refusal(topic, reason, count + 1, monotonic))

    def greeted(self, name: str, *, keyed: bool) -> None:
        """Record that a board of the registry has connected. keyed: whether it has proved its
        key.
        """
        known = self._statuses.get(name, {})
        if known.get(KEYED) != keyed:
            self._new = True
            _put(self._statuses, name, known | {KEYED: float(keyed)})

    def has_proved(self, name: str) -> bool:
        """Whether the board has ever proved its key. If it has, a peer without the key is not the
        board.
        """
        return self._statuses.get(name, {}).get(KEYED) == 1

    def problems(self, monotonic: int) -> list[tuple[str, str]]:
        """Return the refusals, losses, payload conflicts and sensor faults of boards: for each an
        identifier, which stays the same when the sentence changes, and a sentence. monotonic:
        present time in µs, of the same origin as in `note_publication`.
        """
        refused = [
            (
                f"{name} refused",
                f"{name}: publications to {found.topic!r} are refused"
                f" ({words(found.reason)}, 0x{found.reason:02X}; {found.count} so far)",
            )
            for name, found in self._refusals.items()
            if monotonic - found.last < FORGET_US
        ]
        lost = [
            (
                f"{name} lost",
                f"{name}: publication {found.sequence} was damaged in the board's memory and is"
                f" lost ({found.count} since the gateway's start): if this happens again, replace"
                " the board",
            )
            for name, found in self._losses.items()
            if monotonic - found.last < FORGET_US
        ]
        contradicted = [
            (
                f"{name} contradicts",
                f"{name}: sequence {found.sequence} arrived again with another payload"
                f" ({found.count} since the gateway's start): the board counts wrongly, or two"
                " boards have one identity",
            )
            for name, found in self.last_publications.payload_conflicts.items()
            if monotonic - found.last < FORGET_US
        ]
        broken = [
            (
                f"{name} {key}",
                f"{name}: {quote(key.removesuffix(FAULT))} {fault_words(int(status[key]))}",
            )
            for name, status in self._statuses.items()
            for key in status
            if key.endswith(FAULT)
        ]
        return refused + lost + contradicted + broken

    @property
    def payload_conflicts(self) -> int:
        """The number of payload conflicts since the start."""
        return sum(found.count for found in self.last_publications.payload_conflicts.values())

    def status(self, name: str) -> Status | None:
        return self._statuses.get(name)

    def news(self) -> str | None:
        """Return the text for `write` if the statuses have changed since the last call, or if the
        last write failed; else None.
        """
        if not self._new:
            return self.saved.unwritten
        self._new = False
        return json.dumps(self._statuses)

    def write(self, text: str) -> None:
        """Write a text that `news` has returned to the file of reports. Any thread may call it."""
        self.saved.write(text)

    def _hear_loss(self, name: str, sequence: int, monotonic: int) -> None:
        known = self._losses.get(name)
        _put(self._losses, name, Loss(sequence, known.count + 1 if known else 1, monotonic))
        if self._throttle.has_room():
            log.warning(
                "%s: publication %d is lost: its bytes in the board's memory changed while it"
                " waited",
                name,
                sequence,
                extra=about(client=name),
            )

    def _hear_log(self, name: str, payload: bytes, monotonic: int) -> None:
        text = payload[:_MOST_BYTES].decode(errors="replace")
        # A log line of eight characters, such as "3 resets", has the form of an answer.
        is_text = payload.isascii() and text.isprintable()
        if not is_text and (answer := answers.read(payload)):
            _put(self.answers, name, answer)
            if self.answered is not None:
                self.answered(name)
            log.info("%s: answers a command: %s", name, answer.words, extra=about(client=name))
        if (
            payload == LOST
            and (identity := self.last_publications.newest) is not None
            and identity[0] == name
        ):
            self._hear_loss(name, identity[2], monotonic)
        if text.startswith(UNKNOWN_COMMAND) and self._throttle.allows(f"{name} {text}"):
            log.warning(
                "%s: the board does not know the command %s; Onceway's sensor knows %s",
                name,
                quote(text.removeprefix(UNKNOWN_COMMAND)),
                _KNOWN_COMMANDS,
                extra=about(client=name),
            )

    def _take(self, name: str, payload: bytes, utc: int | None) -> None:
        if figures := _figures(name, payload):
            known = self._statuses.get(name, {})
            self._new = True
            figures = {**dict(self._faults(name)), **figures}
            faults = [key for key in figures if key.endswith(FAULT)]
            for key in faults[MOST_FAULTS:]:
                del figures[key]
            for key in faults[:MOST_FAULTS]:
                self._tell_fault(name, key, int(figures[key]), int(known.get(key, 0)))
                if not figures[key]:
                    del figures[key]
            kept = {key: value for key, value in known.items() if key == KEYED}
            if not any(key in FIGURES for key in figures):  # faults only: the other figures stay
                kept = {key: value for key, value in known.items() if not key.endswith(FAULT)}
            seen = {} if utc is None else {"seen": float(utc // 1_000_000)}
            _put(self._statuses, name, kept | figures | seen)

    def _faults(self, name: str) -> Iterator[tuple[str, float]]:
        """Yield the key and the number of each fault of a board's sensors. A key is the name of the
        quantity and FAULT.
        """
        for key, value in self._statuses.get(name, {}).items():
            if key.endswith(FAULT):
                yield key, value

    def _find_well(self, name: str, topic: str, payload: bytes) -> None:
        """End the faults of quantities that have a value again. If a board restarts with a good
        sensor, the board itself does not report that the fault is over.
        """
        from gateway.payload.readings import readings  # not needed on a gateway without boards

        status = self._statuses[name]
        for reading in readings(name, topic, payload, None):
            if number := status.pop(reading.name + FAULT, 0):
                self._new = True
                self._tell_fault(name, reading.name + FAULT, 0, int(number))

    def _tell_fault(self, name: str, key: str, number: int, before: int) -> None:
        if number != before and self._throttle.allows(f"{name} {key} {number}"):
            level = logging.WARNING if number else logging.INFO
            quantity = quote(key.removesuffix(FAULT))
            log.log(
                level, "%s: %s %s", name, quantity, fault_words(number), extra=about(client=name)
            )


def read(folder: Path) -> dict[str, Status]:
    """Return the saved statuses of this data directory, by board; empty if there are none."""
    try:
        found = json.loads((folder / FILE).read_text())
        return {
            str(name): {str(key): float(value) for key, value in status.items()}
            for name, status in found.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _put(table: dict[str, Any], name: str, value: Any) -> None:
    table.pop(name, None)
    table[name] = value
    if len(table) > MOST_BOARDS:
        del table[next(iter(table))]


def _figures(name: str, payload: bytes) -> Status:
    """Return the figures and faults in a status; empty if the payload is not a status."""
    from cbor2 import loads  # not needed on a gateway without boards

    figures: Status = {}
    try:
        pack: Any = loads(payload)
        if pack[0][_BASE_NAME] != f"{name}:":
            return {}
        for record in pack:
            if record[_NAME] in FIGURES or _is_fault(record[_NAME]):
                figures[record[_NAME]] = float(record[_VALUE])
    except Exception:  # hostile bytes may break the decoder: not a status
        return {}
    return figures if all(abs(value) < 1e9 for value in figures.values()) else {}


def _is_fault(key: Any) -> bool:
    return isinstance(key, str) and key.endswith(FAULT) and key != FAULT
