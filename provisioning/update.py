"""Updates the firmware of a board in service, or restores the old firmware.

In: a device of the registry, and a HEX file. Out: a board that greets with the new firmware. If it
does not, the board gets its old firmware back, and an OncewayError says why. The EEPROM with its
unsent readings is not touched.

Before the first byte is written, the board's old program is saved in the registry's folder, without
the identity page. This copy is deleted when the board greets. After an interruption at any point,
the same command continues the update, and can still restore the old firmware.
"""

import os
from dataclasses import replace
from pathlib import Path

from gateway.errors import OncewayError
from gateway.system.causes import cause
from gateway.system.sync import sync
from provisioning import avrdude, device, exclusive, plans
from provisioning.device import Contact, Target
from provisioning.identity import Identity
from provisioning.image import Image, without_identity
from provisioning.registry import Device, Registry

FOLDER = "before-update"
PUT_BACK_TRIES = 2


class RolledBack(OncewayError):
    """Error: the new firmware did not start; the board has its old firmware again."""


def update(
    registry: Registry, name: str, target: Target, progress: avrdude.Progress, contact: Contact
) -> Device:
    """Write the firmware of `target`. Raises RolledBack if the old firmware was restored, and
    OncewayError for other failures.
    """
    before = kept(registry, name)
    device.check(target)
    if registry.work(name) is None:
        _keep(registry, name, target, before, progress)
    try:
        done = device.write(registry, plans.flash(registry, name), target, progress, contact)
    except OncewayError as error:
        if registry.work(name) is None:  # nothing was written
            before.unlink(missing_ok=True)
            raise
        if not before.exists():
            raise
        return _restore(registry, name, target, before, error, progress, contact)
    before.unlink(missing_ok=True)
    return done


def kept(registry: Registry, name: str) -> Path:
    """Return the file that keeps a board's program during its update."""
    return registry.path.parent / FOLDER / f"{name}.hex"


def is_current(known: Device, image: Image) -> bool:
    """Whether a device has this firmware and, if it has a serial link, has greeted with it."""
    whole = "written" if known.radio else "ready"
    return known.status == whole and known.firmware == image.sha256


def _keep(
    registry: Registry, name: str, target: Target, before: Path, progress: avrdude.Progress
) -> None:
    """Save the program of a board to the file `before`. If the board carries another device's
    identity, or none, do nothing: `device.write` reports this error.
    """
    known = registry.get(name)
    with exclusive.port(target.port):
        carried = device.carried(target.board, target.port, progress)
        if carried is None or carried != Identity(name, known.key or carried.key):
            return
        # avrdude reads the key, too, so its file is on no disk
        with device.in_memory() as whole:
            avrdude.save(target.board, target.port, whole, progress)
            try:
                _write_durably(without_identity(whole, target.board), before)
            except OSError as error:
                raise OncewayError(
                    f"the old firmware cannot be kept ({error.strerror}), so nothing was written",
                    str(before),
                    cause(error).todo,
                ) from error


def _write_durably(program: str, before: Path) -> None:
    """Write a program to the file `before`, atomically. The file is on disk when this returns. If
    root calls this, the file and its folder get the owner of the folder above.
    """
    before.parent.mkdir(mode=0o700, exist_ok=True)
    new = before.with_suffix(".new")
    new.write_text(program)
    for path in (before.parent, new):
        if os.geteuid() == 0:
            owner = before.parent.parent.stat()
            os.chown(path, owner.st_uid, owner.st_gid)
    sync(new)
    new.replace(before)
    sync(before.parent)


def _restore(
    registry: Registry,
    name: str,
    target: Target,
    before: Path,
    error: OncewayError,
    progress: avrdude.Progress,
    contact: Contact,
) -> Device:
    old = replace(target, firmware=before, foreign=True, restores=True)
    for tries_left in reversed(range(PUT_BACK_TRIES)):
        try:
            device.write(registry, plans.flash(registry, name), old, progress, contact)
            break
        except OncewayError as again:
            if tries_left:
                continue  # a boot loader that was too late may be in time at the next try
            raise OncewayError(
                f"{error.what}. The old firmware cannot be written back, either ({again.what})",
                target.port,
                f"Check the board and the cable; `onceway device update {name}` continues the"
                " update, or writes the old firmware back",
            ) from error
    before.unlink(missing_ok=True)
    raise RolledBack(f"{error.what}. {name} has its old firmware again", target.port, error.hint)
