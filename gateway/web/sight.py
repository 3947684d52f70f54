"""The filter of the page: what each user may see, for all answers and streams.

In: a user, and topics, rows, sessions and problems of the whole gateway. Out: those that this user
may see. An operator sees everything. If `[page]` names neither operators nor viewers, each user
sees everything. A viewer whose `[[acl]]` forbids nothing sees everything as well. Any
other viewer sees only what the access rules let it read by MQTT:

- a value, if the viewer may read each topic on which the board published the value, or the topic of
  the value in the mirror;
- a board, if the viewer may see one of its values or read its state in the mirror; without any
  values, if the viewer may read `sensors/NAME/status`;
- the viewer's own sessions, and sessions of visible boards;
- problems of visible boards, and of parts whose problems have no names. Of other problems, the
  viewer sees only the number.
"""

import secrets
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any
from weakref import WeakValueDictionary

from gateway.broker.broker import Broker
from gateway.config import PageSection
from gateway.mirror.last import UNKNOWN, LastReadings, Series
from gateway.payload.readings import Reading
from gateway.store.session_views import SessionView
from gateway.system.amounts import amount

Row = dict[str, Any]

_MOST_KNOWN = 16_384
_NAMELESS = ("store", "spool", "publishers", "process", "late", "stranded", "clock", "restored")
"""Parts whose problems name no client, board, address or topic."""


def advice(section: PageSection | None) -> list[str]:
    """Return a warning if the page has no roles, or if its roles name no user; else []."""
    if section is None:
        return []
    if not section.names_roles:
        return [
            "page: every user with a password may look, and sees all values, client identifiers,"
            " addresses and users. Users whom you name in viewers = [...] see only what [[acl]]"
            " lets them read; those in operators = [...] see and change everything"
        ]
    if not section.operators and not section.viewers:
        return ["page: operators and viewers are empty, so no user may log in. Name users in them"]
    return []


class Sight:
    """The part of the page that one user may see. whole: whether the user may see everything."""

    def __init__(
        self, user: str, broker: Broker, readings: LastReadings, mirror: str | None, *, whole: bool
    ) -> None:
        self.user = user
        self._broker = broker
        self._acl = broker.acl
        self._readings = readings
        self._mirror = mirror
        self._free = whole
        self.whole = whole or self._forbids_nothing()
        self._known: dict[str, bool] = {}

    @property
    def is_current(self) -> bool:
        """Whether the broker still has the access rules from which this object was made."""
        return self._acl is self._broker.acl

    @property
    def holds(self) -> bool:
        """Whether all that was shown may still be shown: the user may see everything, or the access
        rules have not changed.
        """
        return self._free or self.is_current

    def topic(self, topic: str) -> bool:
        """Whether the user may read messages of a topic. Access rules also hold for operators."""
        known = self._known.get(topic)
        if known is None:
            # a rule for the client identifier that equals the user name may deny the topic
            known = self._acl.may_read(self.user, "", topic) and (
                self._free or self._acl.may_read(self.user, self.user, topic)
            )
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[topic] = known
        return known

    def value(self, device: str, name: str) -> bool:
        series = self._readings.of(device).get(name)
        return self.whole or (series is not None and self._series(device, series))

    def board(self, device: str) -> bool:
        if self.whole:
            return True
        known = self._readings.of(device).values()
        return (
            any(self._series(device, series) for series in known)
            or (self._mirror is not None and self.topic(f"{self._mirror}/{device}/$state"))
            or (not known and self.topic(f"sensors/{device}/status"))
        )

    def session(self, shown: SessionView) -> bool:
        return (
            self.whole
            or shown.user == self.user
            or (shown.device and shown.user is None and self.board(shown.client))
        )

    def row(self, row: Row) -> Row | None:
        """Return what the user may see of a board's row, or None if the board is hidden."""
        name = row["name"]
        if self.whole or not self.board(name):
            return row if self.whole else None
        seen = newest(self._readings.of(name).values(), lambda item: self.value(name, item))
        return row | {
            "last": seen and value(seen),
            "life": row["life"] if self.value(name, "life") else None,
            "answer": row["answer"] if self.topic(f"logs/{name}") else None,
        }

    def problems(self, found: list[Row], owners: dict[str, str]) -> list[Row]:
        """Return the visible problems. If problems are hidden, one more problem states their
        number. owners: name of a board, by the text of its problem.
        """
        shown = [
            item
            for item in found
            if self.whole
            or item["part"] in _NAMELESS
            or (item["what"] in owners and self.board(owners[item["what"]]))
        ]
        hidden = len(found) - len(shown)
        if hidden:
            text = f"{amount(hidden, 'problem')} of boards or parts that you may not see"
            shown.append({"part": "hidden", "what": text, "todo": "Ask an operator"})
        return shown

    def overview(self, whole: Row, owners: dict[str, str], boards: tuple[int, int]) -> Row:
        """Return the visible part of an overview. boards: numbers of connected and known boards."""
        if self.whole:
            return whole
        return whole | {
            "problems": self.problems(whole["problems"], owners),
            "boards": {"connected": boards[0], "known": boards[1]},
            "members": 0,  # a site's rows have addresses
        }

    def _series(self, device: str, series: Series) -> bool:
        if self._mirror is not None and self.topic(f"{self._mirror}/{device}/{series.last.name}"):
            return True
        return bool(series.topics) and all(
            topic != UNKNOWN and self.topic(topic) for topic in series.topics
        )

    def _forbids_nothing(self) -> bool:
        """Whether this user may read all topics: no rule denies a topic, and the rules allow `#` or
        have no list of topics to read.
        """
        mine = [
            section
            for section in self._broker.config.acl
            if any(fnmatchcase(self.user, pattern) for pattern in section.named_users)
        ]
        if any(section.deny_read for section in mine):
            return False
        name = secrets.token_hex(8)  # a topic that does not exist: only a wide filter matches
        may = all(self._acl.may_read(self.user, client, name) for client in ("", self.user))
        read = [item for section in mine for item in section.read]
        return may and (not read or "#" in read)


class Sights:
    """The `Sight` of each user, which all streams of the user share. section: `[page]` of the
    configuration at the start.
    """

    def __init__(
        self,
        broker: Broker,
        readings: LastReadings,
        section: PageSection | None,
        mirror: str | None,
    ) -> None:
        self._broker = broker
        self._readings = readings
        self._narrows = section is not None and section.names_roles
        self._mirror = mirror
        self._made: WeakValueDictionary[tuple[str, bool], Sight] = WeakValueDictionary()

    def of(self, user: str, *, operator: bool) -> Sight:
        """Return the user's `Sight`, by the access rules that are in force now."""
        found = self._made.get((user, operator))
        if found is None or not found.is_current:
            whole = operator or not self._narrows
            found = Sight(user, self._broker, self._readings, self._mirror, whole=whole)
            self._made[user, operator] = found
        return found


def newest(
    known: Iterable[Series], wanted: Callable[[str], bool] = lambda name: True
) -> Reading | None:
    """Return the measurement that arrived last among the series whose names are wanted, or None."""
    measured = [item.last for item in known if not item.last.status and wanted(item.last.name)]
    return max(measured, key=lambda item: item.received or 0, default=None)


def value(reading: Reading) -> Row:
    """Return a reading as JSON for the page. Its `time` is in µs since 1970."""
    return {
        "name": reading.name,
        "value": reading.value,
        "unit": reading.unit,
        "time": reading.time,
        "quality": reading.quality,
        "time_error_s": reading.time_error_s,
    }
