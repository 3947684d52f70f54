"""Takes one batch to the landing place: put, verify, publish, verify, and only then out of the spool.

In: a cut batch. Out: its Parquet file and manifest at the landing place, read back as present, and its rows gone from the spool.
Each step may be the last before a power cut; the next start does all of them again and finds what already stands there.
"""

from gateway.errors import OncewayError
from gateway.uplink.batch import Manifest
from gateway.uplink.cutter import Cutter
from gateway.uplink.landing import Landing, Unreachable
from gateway.uplink.spool import Cut, Spool


class NumberTaken(OncewayError):
    """Another content stands under this batch's number: this store is older than the landing place, or has a twin."""


def land(cut: Cut, spool: Spool, cutter: Cutter, landing: Landing) -> None:
    """Raises Unreachable (try again) and NumberTaken."""
    data = cutter.load(cut)
    manifest = Manifest(spool.origin(), cut.number, cut.rows, cut.size, cut.sha256)
    _put(landing, manifest.data_name, data)
    _put(landing, manifest.name, manifest.to_json())
    spool.landed(cut)
    cutter.forget(cut)


def _put(landing: Landing, name: str, data: bytes) -> None:
    """Put and verify. Something that stands there already must be the same bytes."""
    fresh = landing.create(name, data)
    if landing.holds(name, data):
        return
    if fresh:
        raise Unreachable(f"{name} was written and does not read back the same", landing.url)
    raise NumberTaken(f"other bytes stand at {name} already", landing.url)
