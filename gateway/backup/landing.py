"""A backup at the landing place. In: the encrypted file of a gateway. Out: it stands there whole,
under the name of its day, in place of the one that is `keep` days old: so there is never more than
so many, and nothing needs to be deleted.
"""

from datetime import date
from pathlib import Path

from gateway.errors import OncewayError
from gateway.uplink.landing import Landing, Unreachable

FOLDER = "backups"
MOST_BYTES = 256_000_000
"""It goes there in one piece, from memory."""


def put(landing: Landing, gateway: str, file: Path, keep: int, today: date) -> str:
    """Returns where it stands. Raises OncewayError; what stood there before then stays."""
    size = file.stat().st_size
    if size > MOST_BYTES:
        raise OncewayError(
            f"the backup has {size:,} bytes; at most {MOST_BYTES:,} go to the landing place",
            landing.url,
            "Much waits in the spool: does the uplink run? `onceway backup FILE` takes any size",
        )
    name = f"{gateway}/{FOLDER}/{today.toordinal() % keep}.owback"
    data = file.read_bytes()
    landing.replace(name, data)
    if not landing.holds(name, data):
        raise Unreachable(f"{name} was written and does not read back the same", landing.url)
    return f"{landing.url.rstrip('/')}/{name}"
