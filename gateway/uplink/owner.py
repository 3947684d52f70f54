"""The owner mark: LANDING/GATEWAY/owner.json says which store may write below LANDING/GATEWAY.

In: the store's owner number (drawn once, kept in `meta`) and the mark at the landing place. Out: permission, or an error that says who owns
the name.
"""

import json
import secrets
import socket
from datetime import UTC, datetime

from gateway.errors import OncewayError
from gateway.uplink.landing import Landing, Unreachable
from gateway.uplink.spool import Spool

OWNER = "uplink.owner"


class OwnedByAnother(OncewayError):
    """Another store uses this gateway's name at this landing place."""

    exit_code = 3


def mark_name(gateway: str) -> str:
    return f"{gateway}/owner.json"


def check(spool: Spool, landing: Landing) -> None:
    """Return when the name is ours; a name that nobody owns becomes ours if this store has landed nothing yet.

    Raises OwnedByAnother, or Unreachable: also when batches of ours have landed and the mark is gone, as in an unmounted folder.
    """
    gateway = spool.origin().gateway
    owner = spool.get(OWNER)
    if owner is None:
        owner = secrets.token_hex(8)
        spool.put({OWNER: owner})
    name = mark_name(gateway)
    mark = landing.read(name)
    if mark is None:
        landed, _ = spool.last_landed()
        if landed:
            raise Unreachable(
                f"{landed} batches of {gateway} have landed here, but its owner mark {name} is gone",
                landing.url,
                "Is the right place mounted? If it was moved or emptied on purpose, run `onceway uplink claim`.",
            )
        landing.create(name, _mark(gateway, owner))
        mark = landing.read(name)
    held = _parse(mark, landing.url, name)
    if held["owner"] != owner:
        raise OwnedByAnother(
            f"the gateway name {gateway} belongs to another gateway here: host {held['host']}, since {held['since']}",
            landing.url,
            "Give this gateway a name of its own. If it replaces the other one for good, run `onceway uplink claim`.",
        )


def _mark(gateway: str, owner: str) -> bytes:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({"schema": 1, "gateway": gateway, "owner": owner, "host": socket.gethostname(), "since": since}).encode()


def _parse(mark: bytes | None, url: str, name: str) -> dict[str, str]:
    try:
        held = json.loads(mark or b"")
        return {key: str(held[key]) for key in ("owner", "host", "since")}
    except (ValueError, KeyError, TypeError) as error:
        raise OncewayError(
            f"the owner mark {name} is not readable: {error}", url, "Look who wrote it; `onceway uplink claim` writes a new one."
        ) from error
