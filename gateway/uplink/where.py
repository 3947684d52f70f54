"""`onceway where DEVICE SEQUENCE`: where one reading is. In: a publication's key. Out: one line per place, from the spool to the table."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from gateway.config import Config, load
from gateway.errors import OncewayError
from gateway.uplink.keys import incarnations
from gateway.uplink.landing import without_password
from gateway.uplink.manifest import Manifest
from gateway.uplink.spool import Spool

app = typer.Typer()


class NotFound(OncewayError):
    """Nobody who was asked knows of the reading."""

    exit_code = 1


@app.command("where")
def where(
    device: Annotated[str, typer.Argument(help="Device name; @GATEWAY for a client without an identity of its own.")],
    sequence: Annotated[int, typer.Argument(help="Its sequence number; for @GATEWAY the spool id.")],
    config: Annotated[Path | None, typer.Option("--config", help="The gateway's configuration file.")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="The gateway's data directory, instead of --config.")] = None,
    table: Annotated[str | None, typer.Option("--table", help="Look into this Delta table too: a path or URL.")] = None,
) -> None:
    """Where one reading is: in the spool, in a batch, landed, in the table.

    Example: onceway where sensor-1 4711 --config /etc/onceway/gateway.toml --table /srv/onceway/publications
    """
    loaded = load(config) if config else None
    folder = data or (loaded.gateway.data if loaded else None)
    if folder is None and table is None:
        raise OncewayError("say where to look", hint="Use --config FILE or --data DIR for a gateway, --table PATH for the table.")
    found: list[str] = []
    if folder is not None:
        with closing(Spool(folder)) as spool:
            found += in_gateway(spool, device, sequence, _landing(loaded))
            if not found:
                typer.echo(_unknown(spool, device, sequence), err=True)
    if table is not None:
        found += in_table(table, device, sequence)
    for line in found:
        typer.echo(f"{device} {sequence} {line}")
    if not found:
        raise NotFound(f"there is no reading {sequence} of {device} {'here' if table is None else 'here or in the table'}")


def in_gateway(spool: Spool, device: str, sequence: int, landing: str) -> Iterator[str]:
    """One line per incarnation of the device that has this sequence."""
    origin = spool.origin()
    for incarnation, spool_id in spool.find(device, sequence):
        batch = spool.batch_of(spool_id)
        place = f"cut into batch {batch}, not landed yet" if batch else "waiting in the spool, in no batch yet"
        yield f"(incarnation {incarnation}): {place}"
    for cut, keys in spool.landed_batches():
        for incarnation in incarnations(keys, device, sequence):
            name = Manifest(origin, cut.number, cut.rows, cut.size, cut.sha256).data_name
            yield f"(incarnation {incarnation}): landed in batch {cut.number} at {_moment(cut.landed or 0)}, {landing}/{name}"


def in_table(table: str, device: str, sequence: int) -> Iterator[str]:
    try:
        from gateway.uplink.table import arrivals
    except ModuleNotFoundError as error:
        raise OncewayError(
            f"--table needs the Python package {error.name}, which is not installed", hint="pip install 'onceway[where]'"
        ) from error
    for row in arrivals(table, device, sequence):
        since = f"{row.written:%Y-%m-%d %H:%M:%S} UTC at the latest"
        yield f"(incarnation {row.incarnation}): in the table since {since}, from batch {row.batch} of {row.gateway}/{row.epoch}"


def _unknown(spool: Spool, device: str, sequence: int) -> str:
    oldest = spool.oldest_known_batch()
    before = f", or landed before batch {oldest} of epoch {spool.origin().epoch}" if oldest else ""
    return f"{device} {sequence}: not in this gateway's spool or batches; it never came here{before}"


def _landing(config: Config | None) -> str:
    return without_password(config.uplink.landing).rstrip("/") if config and config.uplink else "LANDING"


def _moment(us: int) -> str:
    return f"{datetime.fromtimestamp(us / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
