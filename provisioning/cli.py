"""`onceway device …`: the commands that write to boards. Those that only look or mark are in
`listing_cli.py`.
"""

import dataclasses
import json
import os
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from gateway.broker.peer import DeviceIdentity
from gateway.errors import OncewayError
from provisioning import batch, boards, device, listing_cli, plans, ports, update_cli
from provisioning.channel import OPEN, Wanted, channel
from provisioning.contact import await_greeting, hear
from provisioning.device import Target
from provisioning.firmware import hex_for
from provisioning.identity import Identity
from provisioning.interval import Interval, parse
from provisioning.lending import borrowed
from provisioning.options import (
    BoardName,
    DryRun,
    Empty,
    Factor,
    Foreign,
    Hex,
    Json,
    KnownBoard,
    Mhz,
    Name,
    Network,
    Number,
    Port,
    Power,
    RegistryFile,
    existing_registry,
    open_registry,
)
from provisioning.plans import Plan
from provisioning.progress import shown
from provisioning.registry import Device, Registry

app = typer.Typer(
    help="Flash and provision devices, and keep their registry.", no_args_is_help=True
)
app.add_typer(listing_cli.app)
app.add_typer(update_cli.app)


@app.command()
def add(
    name: Name,
    board: BoardName = "uno",
    port: Port = None,
    hex_file: Hex = None,
    empty: Empty = False,
    interval: Annotated[
        str | None,
        typer.Option(
            help="Time between two readings of the sensor example, e.g. 30s, 15min or 1d. One that"
            " wears the EEPROM out within a year is refused.",
            show_default="60s",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Take the interval, whatever it leaves the EEPROM.")
    ] = False,
    network: Network = None,
    number: Number = None,
    mhz: Mhz = None,
    factor: Factor = None,
    power: Power = None,
    registry: RegistryFile = None,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """From a bare board to its first greeting: provision it, then wait until it speaks over its
    port as it will to the gateway. A board by radio is told its channel, and greets by radio.

    Example: onceway device add greenhouse-1 --board uno --interval 15min
    """
    wanted = parse(interval) if interval is not None else None
    if wanted is not None and not force:
        wanted.check()
    kind, radio = boards.board(board), Wanted(network, number, mhz, factor, power)
    if radio != OPEN and not kind.radio:
        raise OncewayError(f"{kind.title} has no radio", hint="Did you mean --board uno-lora?")
    if wanted is not None and kind.radio:
        raise OncewayError(
            f"{kind.title} takes no interval by cable",
            hint=f"When it is on the air, publish `interval …` to commands/{name} at QoS 2;"
            " it obeys when it speaks next",
        )
    opened = open_registry(registry, make=not dry_run)
    job = Job(
        "provisioned",
        opened,
        _provision(opened, name, kind, radio),
        _target(kind, port, hex_file, empty=empty),
        as_json,
    )
    if dry_run:
        job.rehearse()
        return
    job = _asked(job)
    if kind.radio:
        job.run(dry_run=False)
        return
    done, met = job.write_and_meet(wanted, force)
    years = wanted and round(wanted.years(met.next_sequence), 1)
    if as_json:
        print(
            json.dumps(
                done.public()
                | {
                    "incarnation": met.incarnation,
                    "next_sequence": met.next_sequence,
                    "interval_s": wanted and wanted.seconds,
                    "life": years,
                },
                indent=2,
            )
        )
    else:
        print(
            f"{name} provisioned on {done.port}; it greets with incarnation {met.incarnation:08x},"
            f" next sequence {met.next_sequence}"
        )
        if wanted is not None:
            print(f"a reading each {wanted.text}: its EEPROM lives {years:g} years")


@app.command()
def provision(
    name: Name,
    board: BoardName = "uno",
    port: Port = None,
    hex_file: Hex = None,
    foreign: Foreign = False,
    empty: Empty = False,
    registry: RegistryFile = None,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """Give a bare board an identity and a firmware, and enter it in the registry when it greets.

    Example: onceway device provision greenhouse-1 --port /dev/ttyACM0
    """
    opened = open_registry(registry, make=not dry_run)
    target = _target(boards.board(board), port, hex_file, foreign, empty)
    job = Job("provisioned", opened, _provision(opened, name, target.board), target, as_json)
    (job if dry_run else _asked(job)).run(dry_run)


@app.command()
def flash(
    name: Name,
    board: KnownBoard = None,
    port: Port = None,
    hex_file: Hex = None,
    foreign: Foreign = False,
    registry: RegistryFile = None,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """Write a new firmware to a device of the registry, at the port that it had; its identity
    stays.

    Example: onceway device flash greenhouse-1 --port /dev/ttyACM0 --hex
    build/firmware/uno/sensor.hex
    """
    opened = existing_registry(registry)
    plan = plans.flash(opened, name)
    target = _known(opened, name, board, port, hex_file, foreign, at_its_port=True)
    Job("flashed", opened, plan, target, as_json).run(dry_run)


@app.command()
def replace(
    name: Name,
    board: KnownBoard = None,
    port: Port = None,
    hex_file: Hex = None,
    foreign: Foreign = False,
    registry: RegistryFile = None,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """Let a new board take over a name; it gets a new key and a new incarnation. If it was a device
    before, even this one, its EEPROM is emptied first, with the readings in it that were not sent.
    `flash` keeps them. At a terminal you are asked first if the board is this very device.

    Example: onceway device replace greenhouse-1 --port /dev/ttyACM0
    """
    opened = existing_registry(registry)
    target = _known(opened, name, board, port, hex_file, foreign)
    radio = channel(opened, name) if target.board.radio else None
    job = Job(
        "given to a new board",
        opened,
        plans.replace(opened, name, radio),
        dataclasses.replace(target, empty=True),
        as_json,
    )
    if sys.stdin.isatty() and not (dry_run or as_json):
        _ask_unless_new(opened, name, job.target)
    job.run(dry_run)


@app.command()
def rename(
    name: Name,
    new_name: Annotated[str, typer.Argument(help="The name it shall have.")],
    board: KnownBoard = None,
    port: Port = None,
    hex_file: Hex = None,
    foreign: Foreign = False,
    registry: RegistryFile = None,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """Give a device another name: it is written again, since the name is in its flash. What it
    published stays under the old one. What it has not sent yet goes out under the new one, and a
    reading that is under way just then may arrive under both: to rule that out, set its interval to
    65535 (no samples), and wait until nothing more arrives before you stop the gateway.

    Example: onceway device rename greenhouse-1 roof-1 --port /dev/ttyACM0
    """
    opened = existing_registry(registry)
    plan = plans.rename(opened, name, new_name)
    target = _known(opened, name, board, port, hex_file, foreign, at_its_port=True)
    Job(f"(was {name}) renamed", opened, plan, target, as_json).run(dry_run)


@app.command()
def rekey(
    name: Name,
    board: KnownBoard = None,
    port: Port = None,
    registry: RegistryFile = None,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """Give a device another key, for example after somebody has read the one that it had. Its
    firmware stays, and so do the readings that it has not sent.

    Example: onceway device rekey greenhouse-1 --port /dev/ttyACM0
    """
    opened = existing_registry(registry)
    plan = plans.rekey(opened, name)
    kind, where = _where(opened, name, board, port, at_its_port=True)
    target = Target(kind, os.path.abspath(where) if where else ports.find(kind), None)
    Job("given another key", opened, plan, target, as_json).run(dry_run)


@app.command("import")
def import_list(
    file: Annotated[
        Path, typer.Argument(help="CSV file with the columns name, port and, as you like, board.")
    ],
    hex_file: Hex = None,
    foreign: Foreign = False,
    empty: Empty = False,
    registry: RegistryFile = None,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """Provision the boards of a list, those on different ports at the same time. Those that are
    ready are left alone, and an error ends that board only: run it again after you have mended it.

    Example: onceway device import boards.csv
    """
    entries = batch.read(file)
    path = open_registry(registry, make=not dry_run).path

    def one(number: int, entry: batch.Entry) -> dict[str, Any]:
        place = f"[{number}/{len(entries)}]"
        try:
            opened = Registry(path, make=not dry_run)  # a connection serves one thread
            target = _target(entry.board, entry.port, hex_file, foreign, empty)
            return _import(opened, entry, place, target, as_json, dry_run)
        except OncewayError as error:
            failed = OncewayError(
                f"{error.where}: {error.what}" if error.where else error.what,
                f"{file}:{entry.line}",
                error.hint,
            )
            if not as_json:
                _say(f"{place} {entry.name} failed")
                _say(f"error: {failed}", sys.stderr)
            return {"name": entry.name, "port": entry.port, "status": None, "error": str(failed)}

    done = batch.by_port(entries, one)
    if as_json:
        print(json.dumps(done, indent=2))
    failed = sum("error" in row for row in done)
    if failed:
        raise OncewayError(
            f"{failed} of {len(done)} boards failed",
            str(file),
            "Mend that and run the command again: it leaves alone those that are ready",
        )
    if not as_json:
        print(f"{len(done)} of {len(done)} boards {'can be written' if dry_run else 'are done'}")


def _say(line: str, where: TextIO | None = None) -> None:
    """A line in one piece: several threads have something to say."""
    stream = where or sys.stdout
    stream.write(f"{line}\n")
    stream.flush()


def _import(
    registry: Registry,
    entry: batch.Entry,
    place: str,
    target: Target,
    as_json: bool,
    dry_run: bool,
) -> dict[str, Any]:
    known = registry.find(entry.name)
    if known is not None and known.status in ("ready", "written"):
        if not as_json:
            _say(f"{place} {entry.name} is {known.status}")
        return known.public()
    plan = _provision(registry, entry.name, entry.board)
    job = Job("provisioned", registry, plan, target, as_json)
    if not as_json:
        _say(f"{place} {entry.name} on {entry.port}")
    if dry_run:
        with borrowed(registry.path.parent, target.port):
            device.check(target)
        return {"name": entry.name, "port": entry.port, "status": known.status if known else None}
    done = job.write(quiet=True)
    if not as_json:
        _say(f"{place} {entry.name} is {done.status}")
    return done.public()


@dataclass(frozen=True, slots=True)
class Job:
    """One plan on its way to one board. verb: what was done then, for the message."""

    verb: str
    registry: Registry
    plan: Plan
    target: Target
    as_json: bool

    def run(self, dry_run: bool) -> None:
        """Do it, or only say what would be done."""
        if dry_run:
            self.rehearse()
            return
        done = self.write()
        if self.as_json:
            print(json.dumps(done.public(), indent=2))
        else:
            print(
                f"{done.name} {self.verb} on {done.port}, read back and entered in the registry as"
                f" {done.status}"
            )
            if done.channel:
                print(f"by radio: {done.channel}")

    def rehearse(self) -> None:
        """Check all that can be checked without touching the board."""
        target = self.target
        with self._port():
            image = device.check(target)
        firmware = str(target.firmware) if target.firmware else None
        if self.as_json:
            would = {
                "name": self.plan.name,
                "port": target.port,
                "board": target.board.name,
                "firmware": firmware,
                "size": image.size if image else None,
                "radio": str(self.plan.radio) if self.plan.radio else None,
            }
            print(json.dumps({"dry_run": True} | would, indent=2))
        else:
            what = f" with {firmware} ({image.size} bytes)" if image else ""
            print(f"{self.plan.name} would be {self.verb} on {target.port}{what}")
            if self.plan.radio:
                print(f"by radio: {self.plan.radio}")

    def write(self, quiet: bool = False) -> Device:
        """Before the board is entered, it must greet."""
        with self._port(), shown(self.as_json or quiet) as progress:

            def greet(identity: Identity) -> None:
                progress("greet", 0.0)
                hear(self.target.port, identity, self.target.board)
                progress("greet", 1.0)

            return device.write(self.registry, self.plan, self.target, progress, greet)

    def write_and_meet(
        self, interval: Interval | None, forced: bool
    ) -> tuple[Device, DeviceIdentity]:
        """The same, and it is answered as a gateway would, and told its interval."""
        met: list[DeviceIdentity] = []
        with self._port(), shown(self.as_json) as progress:

            def greet(identity: Identity) -> None:
                progress("greet", 0.0)
                target = self.target
                met.append(
                    await_greeting(
                        target.port, identity, target.board, interval=interval, forced=forced
                    )
                )
                progress("greet", 1.0)

            return device.write(self.registry, self.plan, self.target, progress, greet), met[0]

    def _port(self) -> AbstractContextManager[None]:
        return borrowed(self.registry.path.parent, self.target.port)


def _provision(registry: Registry, name: str, kind: boards.Board, wanted: Wanted = OPEN) -> Plan:
    """With a channel, if it is a board by radio."""
    return plans.provision(registry, name, channel(registry, name, wanted) if kind.radio else None)


def _target(
    board: boards.Board,
    port: str | None,
    hex_file: Path | None,
    foreign: bool = False,
    empty: bool = False,
) -> Target:
    where = os.path.abspath(port) if port else ports.find(board)
    return Target(board, where, hex_file or hex_for(board), foreign, empty)


def _asked(job: Job) -> Job:
    """At a terminal, ask whether the readings of a board that was another device may go."""
    target, plan = job.target, job.plan
    if target.empty or job.as_json or not sys.stdin.isatty() or plan.identity is None:
        return job
    with borrowed(job.registry.path.parent, target.port), shown(quiet=False) as progress:
        device.check(target)
        carried = device.read(target.board, target.port, progress)
    if carried is None or not device.deletes(job.registry, plan.identity, carried):
        return job
    print(
        f"The board on {target.port} was {carried.name!r}. Readings that it has not sent will be"
        " deleted."
    )
    typer.confirm("Go on?", abort=True)
    return dataclasses.replace(job, target=dataclasses.replace(target, empty=True))


def _ask_unless_new(registry: Registry, name: str, target: Target) -> None:
    """Most who have this very board here want another command, and one that keeps its readings."""
    known = registry.get(name)
    with borrowed(registry.path.parent, target.port), shown(quiet=False) as progress:
        carried = device.read(target.board, target.port, progress)
    if carried is not None and (carried.name, carried.key) == (known.name, known.key):
        print(
            f"The board on {target.port} is {known.name!r} itself. Readings that it has not sent"
            " will be deleted; `flash` keeps them."
        )
        typer.confirm("Go on?", abort=True)


def _known(
    registry: Registry,
    name: str,
    board: str | None,
    port: str | None,
    hex_file: Path | None,
    foreign: bool = False,
    *,
    at_its_port: bool = False,
) -> Target:
    """at_its_port: without a port that is named it is the one where the board was written last, if
    there is still one of that name.
    """
    return _target(*_where(registry, name, board, port, at_its_port=at_its_port), hex_file, foreign)


def _where(
    registry: Registry, name: str, board: str | None, port: str | None, *, at_its_port: bool
) -> tuple[boards.Board, str | None]:
    """Kind of board and port of a device; None: the only such port."""
    known = registry.get(name)
    kind = board or known.board
    if port is None and at_its_port and known.port and os.path.exists(known.port):
        port = known.port
    if kind is None:
        raise OncewayError(
            f"{name!r} was admitted, so its kind of board is not known",
            str(registry.path),
            "Name it with --board",
        )
    return boards.board(kind), port
