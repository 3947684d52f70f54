"""A site's knowledge of one board: an entry of the device registry, as members exchange it.

In: entries of two members for a board. Out: the valid entry, the same at every member (`merged`).

- A board is revoked while `revoked` is at least `lifted`. Revocation sets `revoked` equal to
  `lifted`; admitting the board again sets `lifted` one higher. Members keep the higher of each
  number. So a revocation overrides actions of members that had not heard of the revocation. A
  member that had heard of the revocation can end it.
- For all other fields, the entry with more changes is valid (`version`). If both entries have the
  same number of changes, the entry with the later time (`at`) is valid. If both times are in the
  same second, the entry with the greater JSON is valid.
- `board` is None once the name is unused because its board was renamed.
- `at` also contains the member that made the change, and digests of the earlier changes (`stamp`).
  By these, two changes that were made without knowing of each other are found (`conflict`). Onceway
  0.2.0 writes a time alone.

The port of a board is not included, because it concerns only the gateway with the board.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MOST_BYTES = 2_000
"""Largest number of bytes of an entry as JSON."""
GROUPS = 256
CONFLICT = "conflict "
"""Prefix of an output line of `provisioning.share_pipe` with a `Conflict`, in contrast to lines
with an entry.
"""
_HIGHEST = 1 << 40
"""Upper bound of the numbers in an entry, exclusive. No counter reaches it."""
_NUMBERS = "network", "device"
_STAMP, _MEMBER, _BEFORE = 64, 4, 5
"""_STAMP: largest number of characters of `at`. _MEMBER, _BEFORE: number of hexadecimal digits in
`at` for the member, and for each earlier change.
"""


def _radio(text: str) -> str:
    """Return `text` if it is the plan of a radio, as provisioning/radio_plan.py writes it. Raises
    ValueError for any other JSON, or if a number that a gateway uses is missing.
    """
    plan = json.loads(text)
    if not isinstance(plan, dict) or not all(type(plan.get(k)) is int for k in _NUMBERS):
        raise ValueError("not the plan of a radio")
    return text


_Text = Annotated[str, Field(pattern=r"^[ -~]{1,64}$")]
_Key = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
_Count = Annotated[int, Field(ge=0, lt=_HIGHEST)]


class _Strict(BaseModel):
    # errors must not contain the values, because some are keys
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class Board(_Strict):
    """Columns of the registry. status: the status while the board is not revoked. key: in hex."""

    board: _Text | None
    key: Annotated[_Key | None, Field(repr=False)]
    status: Literal["ready", "written", "admitted"]
    firmware: _Text | None
    created: _Text
    flashed: _Text | None
    radio: Annotated[str, Field(max_length=300), AfterValidator(_radio)] | None


class Entry(_Strict):
    """The site's entry of a board. changed: time of the last change by a person, by the clock of
    the member where the change was made; information for users.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,22}$")]
    lifted: _Count
    revoked: Annotated[int, Field(ge=-1, lt=_HIGHEST)]
    version: _Count
    at: _Text
    changed: _Text
    board: Board | None

    @property
    def before(self) -> tuple[str, ...]:
        """Digests of the earlier changes of this entry, the latest one first."""
        return tuple(self.at.split(" ")[1:])

    @cached_property
    def digest(self) -> str:
        """Digest of the entry's last change. A revocation does not change the digest."""
        return _hex(repr(_rank(self)), _BEFORE)

    @property
    def is_revoked(self) -> bool:
        return self.revoked >= self.lifted

    def but(self, **changes: Any) -> "Entry":
        """Return the entry with changed fields. (`model_copy` would copy cached values.)"""
        return Entry(**{name: getattr(self, name) for name in Entry.model_fields} | changes)

    @cached_property
    def text(self) -> str:
        """The entry as JSON."""
        return self.model_dump_json()

    @cached_property
    def mark(self) -> int:
        """The first 64 bits of the entry's hash, which identify the entry."""
        return int.from_bytes(hashlib.sha256(self.text.encode()).digest()[:8], "big")


def group_of(name: str) -> int:
    """Return the group of a name in a digest, from 0 to GROUPS - 1."""
    return hashlib.sha256(name.encode()).digest()[0]


def merged(one: Entry, other: Entry) -> Entry:
    """Merge two entries of a board, in either order: return the valid one, with the higher `lifted`
    and `revoked`, and the later `changed`, of both.
    """
    return max(one, other, key=_rank).but(
        lifted=max(one.lifted, other.lifted),
        revoked=max(one.revoked, other.revoked),
        changed=max(one.changed, other.changed),
    )


def stamp(time: str, member: str, known: Entry) -> str:
    """Return `Entry.at` for a change: its time and member, and the digests of earlier changes.
    known: the entry before the change.
    """
    parts = [f"{time[:32].replace(' ', 'T')}@{_hex(member, _MEMBER)}"]
    for digest in (known.digest, *known.before)[: known.version]:
        if sum(map(len, parts)) + len(parts) + len(digest) <= _STAMP:
            parts.append(digest)
    return " ".join(parts)


class Conflict(_Strict):
    """Two changes of a board. Each was made by a member that did not know of the other change.
    lost: `Entry.at` of the change that is overridden. holds: `Entry.at` of the change that is
    valid. is_revoked: whether a revocation overrides the lost change. twin: name of another radio
    board with the same board number, "" if the conflict is about one board. With a twin no change
    is overridden: `lost` belongs to the board `name`, and `holds` to the twin.
    """

    name: str
    lost: str
    holds: str
    is_revoked: bool = False
    twin: str = ""

    def sentence(self, members: Iterable[str]) -> str:
        """Return the conflict as a sentence with the names of the members that made the changes.
        members: names of all members.
        """
        names = {_hex(member, _MEMBER): member for member in members}
        lost, holds = _described(self.lost, names), _described(self.holds, names)
        if self.twin:
            return (
                f"devices {self.name} ({lost}) and {self.twin} ({holds}) have the same radio"
                " number: write one of them again with another --number"
            )
        holds = "a revocation elsewhere" if self.is_revoked else f"the change {holds}"
        return (
            f"device {self.name}: the change {lost} is lost, because {holds} overrides it and was"
            " made without knowledge of it"
        )


def _described(at: str, names: Mapping[str, str]) -> str:
    time, _, member = at.partition(" ")[0].partition("@")
    return f"at {names.get(member, 'another member')} ({time})"


def conflict(one: Entry, other: Entry) -> Conflict | None:
    """Return the conflict if a merge of two entries of a board loses a change, else None.
    `Entry.at` lists a limited number of earlier changes. If the losing entry is older than these,
    no conflict is reported.
    """
    holds, lost = (one, other) if _rank(one) >= _rank(other) else (other, one)
    revoked = max(one, other, key=lambda entry: entry.revoked)
    is_revoked = revoked.is_revoked and one.revoked != other.revoked
    if is_revoked:
        holds, lost = revoked, other if revoked is one else one
    if lost.version < holds.version - len(holds.before) or _same(one, other):
        return None
    if lost.digest in (holds.digest, *holds.before):
        return None
    return Conflict(name=one.name, lost=lost.at, holds=holds.at, is_revoked=is_revoked)


def _same(one: Entry, other: Entry) -> bool:
    """Whether the boards of two entries are equal, apart from `created` and `flashed`."""
    first, second = (
        entry.board and entry.board.model_copy(update={"created": "", "flashed": None})
        for entry in (one, other)
    )
    return first == second


def _hex(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def _rank(entry: Entry) -> tuple[int, str, str]:
    return entry.version, entry.at, entry.board.model_dump_json() if entry.board else ""
