"""The owner mark: the file LANDING/GATEWAY/owner.json, which names the store that may write below
LANDING/GATEWAY, and that store's progress.

In: the store's owner number (random, generated once, stored in `meta`) and the mark at the landing
place. Out: permission, or an error that names the owner. A copy of a store (backup, cloned card)
has the same owner number. The copy is detected if its progress is behind the mark, or if its next
batch number exists. Then `gateway.uplink.epoch` generates a new owner number, which excludes the
other store. A refused gateway leaves a note, LANDING/GATEWAY/refused.json, from which the owner
learns of the refusal.
"""

import json
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from gateway.errors import OncewayError
from gateway.system.gateway_name import shown
from gateway.uplink.lander import NumberTaken
from gateway.uplink.landing import Claimed, Landing, Unreachable
from gateway.uplink.manifest import parse_refused, refused_name
from gateway.uplink.spool import Spool

OWNER = "uplink.owner"
# this store's first mark, kept until the next one, so that an interrupted write is repeated with
# the same bytes
FIRST_MARK = "uplink.owner_mark"
# time at which this store first claimed its name; older versions wrote it without FIRST_MARK
SINCE = "uplink.owner_since"
# the owner number that this store is about to take; set while its mark may not be written yet
SUCCESSOR = "uplink.successor"


class OwnedByAnother(OncewayError):
    """Another store uses this gateway's name at this landing place."""

    exit_code = 11


@dataclass(frozen=True, slots=True)
class Mark:
    """The content of owner.json. owner: owner number of the store. landed: number of the newest
    batch of `epoch` when the mark was written. host: host name of the owner. since: time of the
    mark. `host` and `since` are only shown to people.
    """

    owner: str
    epoch: str
    landed: int
    host: str
    since: str

    def to_json(self, gateway: str) -> bytes:
        fields = {
            "schema": 1,
            "gateway": gateway,
            "owner": self.owner,
            "epoch": self.epoch,
            "landed": self.landed,
        }
        return json.dumps({**fields, "host": self.host, "since": self.since}).encode()


DAMAGED = Mark("", "", 0, "unknown", "unknown")
"""Placeholder for a mark that cannot be read."""


def mark_name(gateway: str) -> str:
    return f"{gateway}/owner.json"


def new_number() -> str:
    return secrets.token_hex(8)


def check(spool: Spool, landing: Landing) -> None:
    """Check that this store owns the gateway's name, and update the mark. If the name has no owner,
    and no batch of this store has landed, this store becomes its owner.

    Raises OwnedByAnother, NumberTaken if this store is older than the mark, and Unreachable.
    Unreachable is also raised if batches of this store have landed and there is no mark, as in an
    unmounted folder.
    """
    origin = spool.origin()
    landed, _ = spool.last_landed()
    mark = read(landing, origin.gateway)
    owner = spool.get(OWNER)
    # an epoch is generated once per store, so a mark with our epoch was written by a later
    # generation of this store
    if owner is None:
        owner = mark.owner if mark and mark.epoch == origin.epoch else new_number()
        spool.put({OWNER: owner})
    if mark is None:
        must_be_the_place(landing, origin.gateway, landed)
        with suppress(Claimed):
            landing.create(mark_name(origin.gateway), _first_mark(spool, owner))
        mark = read(landing, origin.gateway)
    successor = spool.get(SUCCESSOR)
    if successor is not None and mark is not None and mark.owner in (owner, successor):
        take(spool, landing, successor)
    elif mark is None or mark.owner != owner:
        _leave_note(landing, origin.gateway, owner)
        if mark == DAMAGED:
            raise OwnedByAnother(
                f"the owner mark {mark_name(origin.gateway)} is damaged, so the owner of the name"
                " is unknown",
                landing.url,
                "If this is the only gateway with this name, run `onceway uplink claim`.",
            )
        present = f"host {mark.host}, since {mark.since}" if mark else "which claims it just now"
        raise OwnedByAnother(
            f"the gateway name {origin.gateway} belongs to another gateway here ({present})",
            landing.url,
            "Give this gateway a name of its own. If it replaces the other one for good, run"
            " `onceway uplink claim`.",
        )
    elif mark.epoch == origin.epoch and mark.landed > landed:
        raise NumberTaken(
            f"{mark.landed} batches have landed, but this store knows of only {landed}: this store"
            " is an older copy",
            landing.url,
        )
    elif (mark.epoch, mark.landed) != (origin.epoch, landed):
        take(spool, landing, owner)


def must_be_the_place(landing: Landing, gateway: str, landed: int) -> None:
    """Raise Unreachable if the landing place has no owner mark although batches have landed.
    landed: number of landed batches.
    """
    if landed and read(landing, gateway) is None:
        raise Unreachable(
            f"the owner mark {mark_name(gateway)} is gone, although batches of {gateway} have"
            f" landed ({landed})",
            landing.url,
            "Is the right place mounted? If it was moved or emptied on purpose, run `onceway uplink"
            " claim`.",
        )


def take(spool: Spool, landing: Landing, owner: str) -> None:
    """Write this store's owner mark over any existing one. owner: owner number that this store
    takes.
    """
    gateway = spool.origin().gateway
    landing.replace(mark_name(gateway), _ours(spool, owner).to_json(gateway))
    spool.put({OWNER: owner, SUCCESSOR: None, FIRST_MARK: None})


def read(landing: Landing, gateway: str) -> Mark | None:
    """Return the mark at the landing place, None if there is none, DAMAGED if it is invalid."""
    data = landing.read(mark_name(gateway))
    if data is None:
        return None
    try:
        fields = json.loads(data)
        return Mark(
            str(fields["owner"]),
            str(fields["epoch"]),
            int(fields["landed"]),
            shown(str(fields["host"])),
            shown(str(fields["since"])),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return DAMAGED


def rival(landing: Landing, spool: Spool) -> tuple[str, str] | None:
    """Return a sentence about another gateway that was refused at the landing place, and the time
    of its note by that gateway's clock. None if there is no note, or the note is this gateway's
    own.
    """
    gateway = spool.origin().gateway
    note = parse_refused(landing.read(refused_name(gateway)) or b"")
    if note is None or note[0] == spool.get(OWNER):
        return None
    _, host, at = note
    return f"another gateway named {gateway} was refused at the landing place (host {host})", at


def _leave_note(landing: Landing, gateway: str, owner: str) -> None:
    fields = {
        "schema": 1,
        "gateway": gateway,
        "owner": owner,
        "host": socket.gethostname(),
        "at": _now(),
    }
    with suppress(Unreachable):  # only a help for the owner
        landing.replace(refused_name(gateway), json.dumps(fields).encode())


def _ours(spool: Spool, owner: str, since: str | None = None) -> Mark:
    return Mark(
        owner,
        spool.origin().epoch,
        spool.last_landed()[0],
        socket.gethostname(),
        since or _now(),
    )


def _first_mark(spool: Spool, owner: str) -> bytes:
    """Return the mark with which this store claims its name. The bytes are the same at each
    attempt, even if the host was renamed.
    """
    gateway = spool.origin().gateway
    kept = spool.get(FIRST_MARK)
    if kept is not None and _is_of(kept, gateway, owner):
        return kept.encode()
    since = spool.get(SINCE) or _now()
    mark = _ours(spool, owner, since).to_json(gateway)
    spool.put({SINCE: since, FIRST_MARK: mark.decode()})
    return mark


def _is_of(mark: str, gateway: str, owner: str) -> bool:
    fields = json.loads(mark)
    return bool((fields["gateway"], fields["owner"]) == (gateway, owner))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
