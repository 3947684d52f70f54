"""Writes one board. In: registry, plan, board, port, HEX file. Out: a written and verified board,
and its registry row.

The board's identity is read first, so that a wrong port does not overwrite another device's
firmware. The registry lists the board as `flashing` from the first byte written until the last one
is read back, and until its first contact if that is awaited. The same command continues an
interrupted job.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.errors import OncewayError
from provisioning import avrdude, eeprom, exclusive, ports
from provisioning.boards import Board
from provisioning.identity import SIZE, Identity
from provisioning.image import Image, write_identity
from provisioning.plans import Plan
from provisioning.registry import Device, Registry

_TICK_S = 0.1

Contact = Callable[[Identity], None]


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a job. board: the kind of board. port: its serial port. firmware: HEX file;
    None if the board keeps its firmware. foreign: whether the firmware may lack the Onceway
    library. empty: whether unsent readings of the board's former device may be deleted. restores:
    whether the HEX file was read from this board. If so, the registry keeps its present SHA-256.
    """

    board: Board
    port: str
    firmware: Path | None
    foreign: bool = False
    empty: bool = False
    restores: bool = False


def check(target: Target) -> Image | None:
    """Check everything that can be checked without touching the board. Return the firmware; None if
    the board keeps its firmware. Raises OncewayError if the file is missing or does not fit the
    chip, if the firmware has no signature (unless `target.foreign`), or if the port is missing or
    busy.
    """
    image = Image(target.firmware, target.board) if target.firmware else None
    if image is not None and not (image.signed or target.foreign):
        raise OncewayError(
            "this HEX file has no signature of the Onceway library, so a board with this firmware"
            " would not greet the gateway",
            str(target.firmware),
            "If it was built with an older library, build it again, or write it anyway with"
            " --foreign",
        )
    ports.look(target.port)
    return image


def read(board: Board, port: str, progress: avrdude.Progress) -> Identity | None:
    """Read the identity from a board's flash; None if the flash has no identity page."""
    ports.look(port)
    with exclusive.port(port):
        return carried(board, port, progress)


def carried(board: Board, port: str, progress: avrdude.Progress) -> Identity | None:
    """Read the identity from a board's flash, on a port that this process holds already; None if
    the flash has no identity page.
    """
    ports.check(port)
    ports.drop_dtr(port)
    page = avrdude.read(
        board, port, board.identity, SIZE, lambda stage, share: progress("connect", 0.0)
    )
    return Identity.from_bytes(page)


def write(
    registry: Registry,
    plan: Plan,
    target: Target,
    progress: avrdude.Progress,
    contact: Contact = lambda identity: None,
) -> Device:
    """Carry out a plan: read the board's identity, write, read back, add the board to the registry.
    Raises OncewayError.

    contact: a last check of the written board, which raises OncewayError if the board fails. It is
    left out for radio boards, and for firmware without the Onceway library.
    """
    image = check(target)
    with ExitStack() as ours:
        ours.enter_context(exclusive.port(target.port))
        for name in {plan.name, plan.was or plan.name}:
            ours.enter_context(exclusive.name(registry.path, name))
        return _write(registry, plan, target, image, progress, contact)


def _write(
    registry: Registry,
    plan: Plan,
    target: Target,
    image: Image | None,
    progress: avrdude.Progress,
    contact: Contact,
) -> Device:
    if registry.find(plan.name) != plan.known:
        hint = "See `onceway device list`, then run the command again"
        raise OncewayError(
            f"{plan.name!r} was changed by another command meanwhile", str(registry.path), hint
        )
    found = carried(target.board, target.port, progress)
    _recognise(registry, plan, found, target.port)
    _check_radio(plan, target)
    if plan.identity is not None:
        identity = plan.identity
    elif found is not None:
        identity = Identity(plan.name, found.key)
    else:
        raise _wrong_board(plan, "carries no identity", target.port)
    wiping = not plan.rekeys and found is not None and found.key != identity.key
    if wiping and not target.empty and found and deletes(registry, identity, found):
        raise OncewayError(
            f"the board on this port was {found.name!r}: its unsent readings would be deleted",
            target.port,
            "To delete them, add --empty",
        )
    earlier = registry.work(plan.name)
    work = registry.begin(identity, target.board.name, target.port, plan.was, plan.radio)
    touched = False

    def watch(stage: str, share: float) -> None:
        nonlocal touched
        touched = touched or stage == "write"
        progress("wipe" if wiping and stage != "connect" else stage, share)

    try:
        if wiping:
            _wipe(target, watch)
            wiping = False
        with in_memory() as patched:
            if image is None:
                write_identity(patched, target.board, identity, plan.radio)
            else:
                image.write(patched, identity, plan.radio)
            avrdude.write(target.board, target.port, patched, watch)
        greets = image.signed if image else plan.known is None or plan.known.status != "written"
        greets = greets and not target.board.radio  # a radio board greets on the air only
        if greets:
            contact(identity)
    except OncewayError:
        if not touched:  # the board is unchanged, so its registry row stays too
            registry.abandon(work, earlier)
        raise
    return registry.finish(work, image.sha256 if image and not target.restores else None, greets)


def _check_radio(plan: Plan, target: Target) -> None:
    """Raise OncewayError if a radio board has no channel, or a wired board has one."""
    if target.board.radio and plan.radio is None:
        raise OncewayError(
            f"the registry has no radio channel for {plan.was or plan.name!r}",
            target.port,
            "`onceway device replace` gives it one, and a new key",
        )
    if plan.radio is not None and not target.board.radio:
        raise OncewayError(
            f"{plan.was or plan.name!r} is a radio board, but {target.board.title} has no radio",
            target.port,
            "Leave out --board",
        )


def deletes(registry: Registry, identity: Identity, carried: Identity) -> bool:
    """Whether a board may lose readings if it gets this identity. This is so if the key changes,
    because the board's EEPROM may have readings under the old key; but not if the board's present
    device was revoked. carried: the identity in the board's flash.
    """
    known = registry.find(carried.name)
    return carried.key != identity.key and (known is None or known.status != "revoked")


def _recognise(registry: Registry, plan: Plan, carried: Identity | None, port: str) -> None:
    """Raise OncewayError if the board on this port belongs to another device."""
    if carried is None:
        if not plan.new_board and plan.interrupted is None:
            raise _wrong_board(plan, "carries no identity", port)
        return
    known = registry.find(carried.name)
    if carried.name not in (plan.name, plan.was):
        alive = known is not None and known.status != "revoked" and known.key in (None, carried.key)
        if not plan.new_board or alive:
            raise _wrong_board(
                plan, f"is {carried.name!r}" + (f" ({known.status})" if known else ""), port
            )
    elif (
        not (plan.new_board or plan.rekeys)
        and plan.identity is not None
        and carried.key != plan.identity.key
    ):
        raise _wrong_board(
            plan, f"had the name {carried.name!r} before another board took that name", port
        )


def _wrong_board(plan: Plan, difference: str, port: str) -> OncewayError:
    name = plan.was or plan.name
    if not plan.new_board:
        return OncewayError(
            f"the board on this port {difference}: it is not {name!r}",
            port,
            f"Is the port right? `onceway device replace {name}` gives the name to another board",
        )
    hint = (
        "Is that the right port? To rename the device: `onceway device rename`. To use its board"
        " for another device, first: `onceway device revoke`"
    )
    return OncewayError(
        f"the board on this port {difference}: that device would be overwritten", port, hint
    )


@contextmanager
def in_memory() -> Iterator[Path]:
    """Yield a file in memory for avrdude. The file holds the key. If the file were on a disk, a
    killed process would leave it there.
    """
    file = os.memfd_create("firmware")
    try:
        yield Path(f"/proc/{os.getpid()}/fd/{file}")
    finally:
        os.close(file)


def _wipe(target: Target, progress: avrdude.Progress) -> None:
    """Empty the EEPROM of a board that had another key: its content belongs to another device."""
    with in_memory() as eraser:
        eeprom.write_eraser(eraser, target.board.eeprom)
        avrdude.write(target.board, target.port, eraser, progress)
    start, wait = time.monotonic(), eeprom.seconds(target.board.eeprom)
    while (elapsed := time.monotonic() - start) < wait:
        progress("wipe", elapsed / wait)
        time.sleep(_TICK_S)
