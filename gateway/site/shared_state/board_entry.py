"""A site's knowledge of one board: an entry of the device registry, as members exchange it.

In: entries of two members for a board. Out: the valid entry, the same at every member (`merged`).

- A board is revoked while `revoked` is at least `lifted`. Revocation sets it equal to `lifted`;
  admitting the board again sets `lifted` one higher. Members keep the higher of each number. So a
  revocation
  overrides actions of members that had not heard of it, and a member that had can end it.
- For all other fields, the entry with more changes is valid (`version`); with equal numbers the
  later one
  by its time (`at`), and in the same second the one with the greater JSON.
- `board` is None once the name is gone because its board was renamed.

The port of a board is not included: it concerns only the gateway with the board.
"""

import hashlib
import json
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MOST_BYTES = 2_000
"""Largest number of bytes of an entry as JSON."""
GROUPS = 256
_HIGHEST = 1 << 40
"""Bound of the entry's numbers, which no counter reaches."""
_NUMBERS = "network", "device"


def _radio(text: str) -> str:
    """Return a plan as provisioning/radio_plan.py writes it, checked as far as a gateway
    uses it.
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
    """An entry. changed: time of the last change by a person, by that member's clock; for users."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,22}$")]
    lifted: _Count
    revoked: Annotated[int, Field(ge=-1, lt=_HIGHEST)]
    version: _Count
    at: _Text
    changed: _Text
    board: Board | None

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
        """Return 64 bits that identify the entry."""
        return int.from_bytes(hashlib.sha256(self.text.encode()).digest()[:8], "big")


def group_of(name: str) -> int:
    """Return the group of a name in a digest, from 0 to GROUPS - 1."""
    return hashlib.sha256(name.encode()).digest()[0]


def merged(one: Entry, other: Entry) -> Entry:
    """Return the valid entry for two entries of a board, in either order."""
    return max(one, other, key=_rank).but(
        lifted=max(one.lifted, other.lifted),
        revoked=max(one.revoked, other.revoked),
        changed=max(one.changed, other.changed),
    )


def _rank(entry: Entry) -> tuple[int, str, str]:
    return entry.version, entry.at, entry.board.model_dump_json() if entry.board else ""
