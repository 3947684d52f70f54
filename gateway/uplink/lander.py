"""Landing of one batch: write its file, verify it, write its manifest, verify it, and only then
remove its rows from the spool.

In: a cut batch. Out: its Parquet file and manifest at the landing place, verified, and its rows
removed from the spool. A power cut is safe at each step, here and at the landing place: the
manifest is read back from its disk (`Landing.read_synced`). The next start repeats all steps; those
that were finished change nothing.
"""

from gateway.errors import OncewayError
from gateway.uplink.cutter import Cutter
from gateway.uplink.landing import Claimed, Landing, Unreachable
from gateway.uplink.manifest import Manifest, sha256
from gateway.uplink.signing import Signer
from gateway.uplink.spool import Cut, Spool


class NumberLost(OncewayError):
    """The batch can never land under its number: other bytes are stored under it, or the batch's
    own bytes are lost. A new epoch is needed.
    """


class NumberTaken(NumberLost):
    """Another gateway with this name, or another generation of this store, has used the number."""


def land(
    cut: Cut,
    spool: Spool,
    cutter: Cutter,
    landing: Landing,
    signer: Signer,
    read_back: bool = False,
) -> None:
    """Land a batch. Raises Unreachable (try again) and NumberLost. read_back: whether to fetch the
    whole file again, even if the landing place can prove its contents at less cost.
    """
    manifest = Manifest(spool.origin(), cut.number, cut.rows, cut.size, cut.sha256)
    data = cutter.load(cut)
    if data is None:
        _must_have_landed(manifest, signer, landing)
    else:
        _put(landing, manifest.data_name, data, read_back)
        _put(landing, manifest.name, signer.publish(manifest), read_back=True)
    spool.landed(cut)
    cutter.forget(cut)


def _put(landing: Landing, name: str, data: bytes, read_back: bool) -> None:
    """Write a file and verify it: if `read_back` is set, by reading it, else by `Landing.holds`. If
    the name exists already, its file must have the same bytes. Raises NumberTaken if it has other
    bytes, and Unreachable if the file is missing or not as it was written.
    """
    try:
        fresh = landing.create(name, data)
    except Claimed as error:
        raise NumberTaken(error.what, error.where) from error
    if fresh:
        if landing.read_synced(name) == data if read_back else landing.holds(name, data):
            return
        raise Unreachable(f"{name} was written, but reads back with other bytes", landing.url)
    found = landing.read_synced(name)
    if found == data:
        return
    if found is None:
        raise Unreachable(
            f"the landing place refused {name} because the name exists, but it has no file of that"
            " name",
            landing.url,
        )
    raise NumberTaken(
        f"a file {name} with other bytes exists already: another gateway has the same gateway name,"
        " or ran with a copy of this store",
        landing.url,
    )


def _must_have_landed(manifest: Manifest, signer: Signer, landing: Landing) -> None:
    """Raise NumberLost if a batch whose bytes are lost here has not landed."""
    if (
        landing.read_synced(manifest.name) == signer.publish(manifest)
        and sha256(landing.read(manifest.data_name) or b"") == manifest.sha256
    ):
        return
    raise NumberLost(f"batch {manifest.number} is damaged on this disk and has not landed")
