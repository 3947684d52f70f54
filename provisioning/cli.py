"""`onceway device …`: the commands that write to boards. Commands that write to no board are in
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

from gateway.access.peer import DeviceIdentity
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
            help="Time between two readings of the sensor example, e.g. 30s, 15min or 1d. An"
            " interval that wears out the EEPROM within a year is refused.",
            show_default="60s",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Accept the interval, however short the EEPROM's life becomes."
        ),
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
    """Put a bare board into service: provision it, then wait until it greets over its port, as it
    will greet the gateway. A radio board gets its channel, and greets by radio.

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
            f"{kind.title} does not accept an interval by cable",
            hint=f"When the board is on the air, publish `interval …` to commands/{name} at QoS 2;"
            " the board gets it when it sends next",
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
    job = _confirmed(job)
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
            print(f"with a reading every {wanted.text}, its EEPROM lasts about {years:g} years")


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
    (job if dry_run else _confirmed(job)).run(dry_run)


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
    """Write a new firmware to a device of the registry, at its last port. The identity stays.

    Example: onceway device flash greenhouse-1 --port /dev/ttyACM0 --hex
    build/firmware/uno/sensor.hex
    """
    opened = existing_registry(registry)
    plan = plans.flash(opened, name)
    target = _device_and_target(opened, name, board, port, hex_file, foreign, at_its_port=True)
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
    """Let a new board take over a name. It gets a new key and a new incarnation. If the board was a
    device before, even the same one, its EEPROM is emptied first, including unsent readings;
    `flash` keeps them. At a terminal, the command asks first if the board is the same device.

    Example: onceway device replace greenhouse-1 --port /dev/ttyACM0
    """
    opened = existing_registry(registry)
    target = _device_and_target(opened, name, board, port, hex_file, foreign)
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
    new_name: Annotated[str, typer.Argument(help="The new name.")],
    board: KnownBoard = None,
    port: Port = None,
    hex_file: Hex = None,
    foreign: Foreign = False,
    registry: RegistryFile = None,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """Give a device another name. The board is written again, because the name is in its flash.
    Earlier readings stay under the old name, and unsent ones are sent under the new name. A reading
    that is being sent at that moment may arrive under both names. To rule that out, set the
    interval to 65535 (no samples) and wait until no more readings arrive before you stop the
    gateway.

    Example: onceway device rename greenhouse-1 roof-1 --port /dev/ttyACM0
    """
    opened = existing_registry(registry)
    plan = plans.rename(opened, name, new_name)
    target = _device_and_target(opened, name, board, port, hex_file, foreign, at_its_port=True)
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
    """Give a device another key, for example because the old key may be known to others. Firmware
    and unsent readings stay.

    Example: onceway device rekey greenhouse-1 --port /dev/ttyACM0
    """
    opened = existing_registry(registry)
    plan = plans.rekey(opened, name)
    kind, where = _board_and_port(opened, name, board, port, at_its_port=True)
    target = Target(kind, os.path.abspath(where) if where else ports.find(kind), None)
    Job("given another key", opened, plan, target, as_json).run(dry_run)


@app.command("import")
def import_list(
    file: Annotated[
        Path, typer.Argument(help="CSV file with the columns name, port and, optionally, board.")
    ],
    hex_file: Hex = None,
    foreign: Foreign = False,
    empty: Empty = False,
    registry: RegistryFile = None,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """Provision the boards of a list, those on different ports at the same time. Boards that are
    ready are skipped. An error stops only its own board: fix the cause and run the command again.

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
                _print_line(f"{place} {entry.name} failed")
                _print_line(f"error: {failed}", sys.stderr)
            return {"name": entry.name, "port": entry.port, "status": None, "error": str(failed)}

    done = batch.by_port(entries, one)
    if as_json:
        print(json.dumps(done, indent=2))
    failed = sum("error" in row for row in done)
    if failed:
        raise OncewayError(
            f"{failed} of {len(done)} boards failed",
            str(file),
            "Fix the cause and run the command again: boards that are ready are skipped",
        )
    if not as_json:
        print(f"{len(done)} of {len(done)} boards {'can be written' if dry_run else 'are done'}")


def _print_line(line: str, where: TextIO | None = None) -> None:
    """Print a line in one piece, because several threads print."""
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
            _print_line(f"{place} {entry.name} is {known.status}")
        return known.public()
    plan = _provision(registry, entry.name, entry.board)
    job = Job("provisioned", registry, plan, target, as_json)
    if not as_json:
        _print_line(f"{place} {entry.name} on {entry.port}")
    if dry_run:
        with borrowed(registry.path.parent, target.port):
            device.check(target)
        return {"name": entry.name, "port": entry.port, "status": known.status if known else None}
    done = job.write(quiet=True)
    if not as_json:
        _print_line(f"{place} {entry.name} is {done.status}")
    return done.public()


@dataclass(frozen=True, slots=True)
class Job:
    """Runs one plan for one board. verb: past participle of the work, such as `provisioned`."""

    verb: str
    registry: Registry
    plan: Plan
    target: Target
    as_json: bool

    def run(self, dry_run: bool) -> None:
        """Carry out the plan, or only check and print it."""
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
        """Check everything that can be checked without touching the board, and print what the job
        would do.
        """
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
            contents = f" with {firmware} ({image.size} bytes)" if image else ""
            print(f"{self.plan.name} would be {self.verb} on {target.port}{contents}")
            if self.plan.radio:
                print(f"by radio: {self.plan.radio}")

    def write(self, quiet: bool = False) -> Device:
        """Write the board, and enter it in the registry: after its greeting if it greets here."""
        with self._port(), shown(self.as_json or quiet) as progress:

            def greet(identity: Identity) -> None:
                progress("greet", 0.0)
                hear(self.target.port, identity, self.target.board)
                progress("greet", 1.0)

            return device.write(self.registry, self.plan, self.target, progress, greet)

    def write_and_meet(
        self, interval: Interval | None, forced: bool
    ) -> tuple[Device, DeviceIdentity]:
        """Write the board, answer its greeting as a gateway would, and set its interval."""
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
    """Return the plan for provisioning a board. wanted: the user's options for a radio board."""
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


def _confirmed(job: Job) -> Job:
    """At a terminal, if the job would delete unsent readings of the board's former device, ask the
    user. Return the job, with permission to delete them if the user agreed. Raises typer.Abort if
    the user disagrees.
    """
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
    """If the board already is the device `name`, ask at the terminal before its readings are
    deleted: the user probably wants a command that keeps them.
    """
    known = registry.get(name)
    with borrowed(registry.path.parent, target.port), shown(quiet=False) as progress:
        carried = device.read(target.board, target.port, progress)
    if carried is not None and (carried.name, carried.key) == (known.name, known.key):
        print(
            f"The board on {target.port} is {known.name!r} itself. Readings that it has not sent"
            " will be deleted; `flash` keeps them."
        )
        typer.confirm("Go on?", abort=True)


def _device_and_target(
    registry: Registry,
    name: str,
    board: str | None,
    port: str | None,
    hex_file: Path | None,
    foreign: bool = False,
    *,
    at_its_port: bool = False,
) -> Target:
    """Return the target of a job for a device of the registry. at_its_port: if no port is named,
    use the port where the board was written last, if that port still exists.
    """
    return _target(
        *_board_and_port(registry, name, board, port, at_its_port=at_its_port), hex_file, foreign
    )


def _board_and_port(
    registry: Registry, name: str, board: str | None, port: str | None, *, at_its_port: bool
) -> tuple[boards.Board, str | None]:
    """Return a device's kind of board and its port. at_its_port: if `port` is None, return the
    device's port in the registry, provided that this port exists. A returned port of None stands
    for the only port with such a board.
    """
    known = registry.get(name)
    kind = board or known.board
    if port is None and at_its_port and known.port and os.path.exists(known.port):
        port = known.port
    if kind is None:
        raise OncewayError(
            f"the registry has no kind of board for {name!r}",
            str(registry.path),
            "Name the kind of board with --board",
        )
    return boards.board(kind), port
