"""`onceway where DEVICE SEQUENCE`: where one reading is. In: a publication's key. Out: one line per place, from the spool to the table."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from gateway.config import load
from gateway.errors import OncewayError
from gateway.uplink.keys import incarnations
from gateway.uplink.landing import base
from gateway.uplink.manifest import Manifest
from gateway.uplink.spool import Spool

app = typer.Typer()


class NotHere(OncewayError):
    """This gateway knows nothing of the reading."""

    exit_code = 1


@app.command("where")
def where(
    device: Annotated[str, typer.Argument(help="Device name; @GATEWAY for a client without an identity of its own.")],
    sequence: Annotated[int, typer.Argument(help="Its sequence number; for @GATEWAY the spool id.")],
    config: Annotated[Path | None, typer.Option("--config", help="The gateway's configuration file.")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="The gateway's data directory, instead of --config.")] = None,
) -> None:
    """Where one reading is: in the spool, in a batch, or landed.

    Example: onceway where sensor-1 4711 --config /etc/onceway/gateway.toml
    """
    loaded = load(config) if config else None
    folder = data or (loaded.gateway.data if loaded else None)
    if folder is None:
        raise OncewayError("say where the spool is", hint="Use --config FILE or --data DIR.")
    landing = base.without_password(loaded.uplink.landing.rstrip("/")) if loaded and loaded.uplink else "LANDING"
    spool = Spool(folder)
    try:
        found = list(find(spool, device, sequence, landing))
        if not found:
            oldest = spool.oldest_known_batch()
            before = f", or it landed before batch {oldest} of epoch {spool.origin().epoch}" if oldest else ""
            raise NotHere(
                f"reading {sequence} of {device} is not in this gateway's spool or batches: it never came here{before}",
                hint="The table knows.",
            )
        for line in found:
            typer.echo(line)
    finally:
        spool.close()


def find(spool: Spool, device: str, sequence: int, landing: str) -> Iterator[str]:
    """One line per incarnation of the device that has this sequence."""
    origin = spool.origin()
    for incarnation, spool_id in spool.find(device, sequence):
        batch = spool.batch_of(spool_id)
        place = f"cut into batch {batch}, not landed yet" if batch else "waiting in the spool, in no batch yet"
        yield f"{device} {sequence} (incarnation {incarnation}): {place}"
    for cut, keys in spool.landed_batches():
        for incarnation in incarnations(keys, device, sequence):
            url = f"{landing}/{Manifest(origin, cut.number, cut.rows, cut.size, cut.sha256).data_name}"
            when = f"{datetime.fromtimestamp((cut.landed or 0) / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
            yield f"{device} {sequence} (incarnation {incarnation}): landed in batch {cut.number} at {when}, {url}"
