"""Plans: what a job will do to a board, decided from the registry alone. In: a registry and names.
Out: a `Plan`, or an OncewayError.
"""

from dataclasses import dataclass

from gateway.errors import OncewayError
from provisioning.identity import Identity, check_name
from provisioning.radio_plan import RadioPlan, check_radio_name
from provisioning.registry import Device, Registry, Work


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked job for one board.

    name: the board's name after the job. known: the registry row of that name; the plan is valid as
    long as the row is unchanged. identity: name and key to write; None: keep the board's name and
    key, because the registry has no key. was: the present name, if the board is to be renamed.
    new_board: whether any board may be used, not only the one in the registry. interrupted: the
    earlier job that this one continues. rekeys: whether the job changes only the key. The board
    must have the name `name`, but its present key is not compared. radio: channel and number of a
    radio board.
    """

    name: str
    known: Device | None
    identity: Identity | None
    was: str | None = None
    new_board: bool = False
    interrupted: Work | None = None
    rekeys: bool = False
    radio: RadioPlan | None = None


def provision(registry: Registry, name: str, radio: RadioPlan | None = None) -> Plan:
    """Plan a new device. If an earlier job for this device was interrupted, keep its identity and
    channel. A device that was only admitted by name, and for which the registry has no key, can be
    provisioned, too.
    """
    check_name(name)
    known, begun = registry.find(name), registry.work(name)
    if begun is not None:
        return Plan(
            name,
            known,
            begun.identity,
            begun.was,
            new_board=begun.was is None,
            interrupted=begun,
            radio=begun.channel or radio,
        )
    if known is not None and known.status != "admitted":
        raise _name_taken(registry, known)
    if radio is not None:
        check_radio_name(name)
    return Plan(name, known, Identity.create(name), new_board=True, radio=radio)


def flash(registry: Registry, name: str) -> Plan:
    """Plan new firmware for a device, which keeps its identity. Raises OncewayError if revoked."""
    known, begun = _not_revoked(registry, name), registry.work(name)
    identity = Identity(name, known.key) if known.key else None
    return Plan(
        name,
        known,
        identity,
        begun.was if begun else None,
        interrupted=_interrupted(registry, name),
        radio=known.channel,
    )


def rekey(registry: Registry, name: str) -> Plan:
    """Plan another key for a device, and no other change. Raises OncewayError if the device was
    revoked or is being renamed.
    """
    known, begun = _not_revoked(registry, name), registry.work(name)
    if begun is not None and begun.was is not None:
        raise _name_taken(registry, known)
    identity = begun.identity if begun else Identity.create(name)
    work = _interrupted(registry, name)
    return Plan(name, known, identity, interrupted=work, rekeys=True, radio=known.channel)


def replace(registry: Registry, name: str, radio: RadioPlan | None = None) -> Plan:
    """Plan the replacement of a device: a new board gets its name, and a new key. The device may be
    revoked. radio: the new board's channel, if it has a radio.
    """
    known, begun = registry.get(name), registry.work(name)
    if begun is not None and begun.was is not None:
        raise _name_taken(registry, known)
    if radio is not None:
        check_radio_name(name)
    identity = Identity.create(name)
    return Plan(name, known, identity, new_board=True, interrupted=begun, radio=radio)


def rename(registry: Registry, name: str, new_name: str) -> Plan:
    """Plan another name for a device, which keeps its key. Raises OncewayError if the new name is
    in use, unless an interrupted run of this job uses it.
    """
    check_name(new_name)
    begun, existing = registry.work(new_name), registry.find(new_name)
    if begun is not None and begun.was == name:
        return Plan(
            new_name, existing, begun.identity, name, interrupted=begun, radio=begun.channel
        )
    known = _not_revoked(registry, name)
    if existing is not None:
        raise _name_taken(registry, existing)
    if known.channel is not None:
        check_radio_name(new_name)
    return Plan(
        new_name,
        existing,
        Identity(new_name, known.key) if known.key else None,
        name,
        interrupted=_interrupted(registry, name),
        radio=known.channel,
    )


def _interrupted(registry: Registry, name: str) -> Work | None:
    return next((work for work in registry.works() if name in (work.name, work.was)), None)


def _not_revoked(registry: Registry, name: str) -> Device:
    device = registry.get(name)
    if device.status == "revoked":
        hint = f"`onceway device replace {name}` gives the name to a board again, with a new key"
        raise OncewayError(f"the device {name!r} was revoked", str(registry.path), hint)
    return device


def _name_taken(registry: Registry, known: Device) -> OncewayError:
    renamed = next(
        (
            work
            for work in registry.works()
            if work.was is not None and known.name in (work.name, work.was)
        ),
        None,
    )
    if renamed is not None:
        hint = (
            f"The renaming of {renamed.was!r} was interrupted; `onceway device rename {renamed.was}"
            f" {renamed.name}` continues it"
        )
    else:
        hint = (
            f"Choose another name; `onceway device flash {known.name}` writes to that device,"
            " `replace` gives its name to a new board"
        )
    return OncewayError(
        f"the name {known.name!r} is in use by a device that was registered on {known.created}"
        f" ({known.status})",
        str(registry.path),
        hint,
    )
