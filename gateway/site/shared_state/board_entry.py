"""What a site knows of one board: an entry of the device registry, as members tell one another.

In: what two members say of a board. Out: what holds, the same at whatever member (`merged`).

- A board is revoked while `revoked` has reached `lifted`. To revoke is to bring it there; to let
  the board in again is to go one beyond it. Members keep the higher of each number. So a revocation
  beats whatever was done by somebody who had not heard of it, and somebody who had can end it.
- Of the rest, the entry that was changed more often holds (`version`); of two that were changed as
  often the later one by its time (`at`), and at the same second the one whose JSON is greater.
- `board` is None once the name is gone: its board was renamed.

The port of a board is not among it: that is for the gateway where it is plugged in.
"""

import hashlib
import json
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MOST_BYTES = 2_000
"""Of an entry as JSON."""
GROUPS = 256
_HIGHEST = 1 << 40
"""Of its numbers: nobody counts so far."""
_NUMBERS = "network", "device"


def _radio(text: str) -> str:
    """As provisioning/radio_plan.py writes it, as far as a gateway reads it."""
    plan = json.loads(text)
    if not isinstance(plan, dict) or not all(type(plan.get(k)) is int for k in _NUMBERS):
        raise ValueError("no plan of a radio")
    return text


_Text = Annotated[str, Field(pattern=r"^[ -~]{1,64}$")]
_Key = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
_Count = Annotated[int, Field(ge=0, lt=_HIGHEST)]


class _Strict(BaseModel):
    # what is wrong is said without the values: there are keys among them
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class Board(_Strict):
    """Columns of the registry. status: while it is not revoked. key: in hex."""

    board: _Text | None
    key: Annotated[_Key | None, Field(repr=False)]
    status: Literal["ready", "written", "admitted"]
    firmware: _Text | None
    created: _Text
    flashed: _Text | None
    radio: Annotated[str, Field(max_length=300), AfterValidator(_radio)] | None


class Entry(_Strict):
    """changed: when somebody changed it last, by that member's clock; for people."""

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
        """The same with these fields. (`model_copy` would copy what is cached.)"""
        return Entry(**{name: getattr(self, name) for name in Entry.model_fields} | changes)

    @cached_property
    def text(self) -> str:
        """The entry as JSON."""
        return self.model_dump_json()

    @cached_property
    def mark(self) -> int:
        """64 bits that tell it from every other one."""
        return int.from_bytes(hashlib.sha256(self.text.encode()).digest()[:8], "big")


def group_of(name: str) -> int:
    """Of a name in a digest: below GROUPS."""
    return hashlib.sha256(name.encode()).digest()[0]


def merged(one: Entry, other: Entry) -> Entry:
    """What holds of what two members say of a board, in either order."""
    return max(one, other, key=_rank).but(
        lifted=max(one.lifted, other.lifted),
        revoked=max(one.revoked, other.revoked),
        changed=max(one.changed, other.changed),
    )


def _rank(entry: Entry) -> tuple[int, str, str]:
    return entry.version, entry.at, entry.board.model_dump_json() if entry.board else ""
