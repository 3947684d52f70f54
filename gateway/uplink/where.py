"""`onceway where DEVICE SEQUENCE`: the place of one reading.

In: a publication's key. Out: the places where it was found, from the spool to the table.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from gateway.commands.extras import how_to_get
from gateway.commands.options import (
    ConfigOption,
    DataOption,
    JsonOption,
    config_file,
    nothing_named,
)
from gateway.config import Config, load
from gateway.errors import OncewayError
from gateway.store import doubts
from gateway.store.doubts import Doubt
from gateway.uplink.keys import incarnations, unpack
from gateway.uplink.landing import without_password
from gateway.uplink.manifest import Manifest
from gateway.uplink.spool import Spool

app = typer.Typer()

_DOUBTS = 8
"""Largest number of a device's suspect sessions that are shown."""


_LOST = 8
"""Largest number of batches that one message names because the store has lost their lists of
readings.
"""


class NotFound(OncewayError):
    """Error: no searched place has the reading."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Place:
    """A place where the reading was found.

    place: `spool` (in no batch yet), `batch` (cut, not landed yet), `landed`, or `table`. Also
    `quarantine` (landed in a damaged batch), or `conflicts` (set aside, because its key is in the
    table with another payload). gateway, epoch, batch: the batch with the reading. since: when the
    reading landed or was set aside, µs UTC; for the table, the latest time at which it can have
    entered. landing: URL of the landing place, if the configuration was given. file: path of the
    landed file below this URL. payload: the payload that was set aside, in hex. reason: why the
    batch is in quarantine.
    """

    place: Literal["spool", "batch", "landed", "table", "quarantine", "conflicts"]
    incarnation: int
    gateway: str
    epoch: str
    batch: int | None = None
    since: int | None = None
    landing: str | None = None
    file: str | None = None
    payload: str | None = None
    reason: str | None = None

    def as_text(self) -> str:
        texts = {
            "spool": "waiting in the spool, in no batch yet",
            "batch": f"cut into batch {self.batch}, not landed yet",
            "landed": (
                f"landed in batch {self.batch} at {_moment(self.since or 0)},"
                f" {self.landing or 'LANDING'}/{self.file}"
            ),
            "table": (
                f"in the table since {_moment(self.since or 0)} at the latest, from batch"
                f" {self.batch} of {self.gateway}/{self.epoch}"
            ),
            "quarantine": (
                f"not in the table: batch {self.batch} has been in quarantine since"
                f" {_moment(self.since or 0)}: {self.reason}"
            ),
            "conflicts": (
                f"arrived again with another payload in batch {self.batch} of"
                f" {self.gateway}/{self.epoch}, set aside at {_moment(self.since or 0)}:"
                f" {self.payload}"
            ),
        }
        return f"(incarnation {self.incarnation}): {texts[self.place]}"


@app.command("where")
def where(
    device: Annotated[
        str,
        typer.Argument(help="Device name; @GATEWAY for a client without an identity of its own."),
    ],
    sequence: Annotated[
        int,
        typer.Argument(help="Sequence of the reading; for @GATEWAY, the sequence in the table."),
    ],
    config: ConfigOption = None,
    data: DataOption = None,
    table: Annotated[
        str | None, typer.Option("--table", help="Also search this Delta table: a path or URL.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show where one reading is: in the spool, in a batch, landed, in the table. With --table, show
    also payload conflicts, and whether the batch is in quarantine. In a site, show also when the
    device got a suspect session. Exit code 1: the reading is in none of these places.

    Example: onceway where sensor-1 4711
    """
    file = config if data or table else config_file(config)
    loaded = load(file) if file else None
    folder = data or (loaded.gateway.data if loaded else None)
    if folder is None and table is None:
        raise nothing_named(
            "Name the gateway with --config FILE or --data DIR, or the table with --table PATH"
        )
    found: list[Place] = []
    doubted: list[Doubt] = []
    if folder is not None:
        with Spool(folder, to_read=True) as spool:
            found += in_gateway(spool, device, sequence, _landing(loaded))
            doubted = doubts_of(folder, device)
            if not found and not as_json:
                typer.echo(unknown(spool, device, sequence), err=True)
    if table is not None:
        found += [*in_table(table, device, sequence), *in_quarantine(table, found)]
    if as_json:
        places = [
            {key: value for key, value in asdict(place).items() if value is not None}
            for place in found
        ]
        answer = {"device": device, "sequence": sequence, "places": places}
        typer.echo(json.dumps(answer | {"doubts": [item._asdict() for item in doubted]}))
    else:
        for place in found:
            typer.echo(f"{device} {sequence} {place.as_text()}")
        for item in doubted if found else ():
            typer.echo(f"{device} {_doubt(item)}")
    if not found:
        raise NotFound(
            f"there is no reading {sequence} of {device}"
            f" {'here' if table is None else 'here or in the table'}"
        )


def doubts_of(folder: Path, device: str) -> list[Doubt]:
    """Return the latest `_DOUBTS` records of answers that the device got while its session was
    suspect, oldest first.
    """
    return [item for item in doubts.read(folder) if item.client == device][-_DOUBTS:]


def in_gateway(spool: Spool, device: str, sequence: int, landing: str | None) -> Iterator[Place]:
    """Yield the places of the publications of a device with this sequence: the spool, a batch that
    has not landed, or a landed batch that this gateway remembers. Each incarnation of the device
    may have such a publication. landing: URL of the landing place.
    """
    origin = spool.origin()
    for incarnation, spool_id in spool.find(device, sequence):
        batch = spool.batch_of(spool_id)
        yield Place("batch" if batch else "spool", incarnation, origin.gateway, origin.epoch, batch)
    for cut, keys in spool.landed_batches():
        for incarnation in incarnations(keys, device, sequence):
            name = Manifest(origin, cut.number, cut.rows, cut.size, cut.sha256).data_name
            yield Place(
                "landed",
                incarnation,
                origin.gateway,
                origin.epoch,
                cut.number,
                cut.landed,
                landing,
                name,
            )


def in_table(table: str, device: str, sequence: int) -> Iterator[Place]:
    try:
        from gateway.uplink.delta_reader import arrivals, payload_conflicts
    except ModuleNotFoundError as error:
        raise OncewayError(
            f"--table needs the Python package {error.name}, which is not installed",
            hint=how_to_get("centre"),
        ) from error
    for row in arrivals(table, device, sequence):
        yield Place(
            "table",
            row.incarnation,
            row.gateway,
            row.epoch,
            row.batch,
            int(row.written.timestamp() * 1e6),
        )
    for other in payload_conflicts(table, device, sequence):
        yield Place(
            "conflicts",
            other.incarnation,
            other.gateway,
            other.epoch,
            other.batch,
            int(other.found.timestamp() * 1e6),
            payload=other.payload.hex(),
        )


def in_quarantine(table: str, found: list[Place]) -> Iterator[Place]:
    """Yield a place for each landed batch in `found` that is in quarantine."""
    from gateway.uplink.delta_reader import quarantined

    for place in found:
        if place.place != "landed" or place.batch is None:
            continue
        if entry := quarantined(table, place.gateway, place.epoch, place.batch):
            since, reason = entry
            yield replace(
                place, place="quarantine", since=int(since.timestamp() * 1e6), reason=reason
            )


def unknown(spool: Spool, device: str, sequence: int) -> str:
    """Return a text for a reading that this gateway does not know: where the reading may be."""
    oldest = spool.oldest_known_batch()
    epoch = spool.origin().epoch
    before = f", or it landed before batch {oldest} of epoch {epoch}" if oldest else ""
    lost = [cut.number for cut, keys in spool.landed_batches() if unpack(keys) is None]
    names = f"{', '.join(map(str, lost[:_LOST]))}{', ...' if len(lost) > _LOST else ''}"
    within = (
        f", or it is in a batch whose list of readings the store has lost ({names}). See:"
        " onceway store check"
        if lost
        else ""
    )
    return (
        f"{device} {sequence}: not in this gateway's spool or batches. Perhaps the reading was not"
        " measured yet, is still in the board, or arrived at another gateway. Perhaps it was"
        f" discarded, or it arrived while there was no [uplink]{before}{within}"
    )


def _doubt(item: Doubt) -> str:
    moment = "at an unknown time" if item.at is None else f"at {_moment(item.at)}"
    return (
        f"got a suspect session {moment}: {doubts.reason(item.silent)}. Messages that the device"
        " had published before may have arrived here again; the table keeps one of each"
    )


def _landing(config: Config | None) -> str | None:
    return without_password(config.uplink.landing).rstrip("/") if config and config.uplink else None


def _moment(us: int) -> str:
    return f"{datetime.fromtimestamp(us / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
