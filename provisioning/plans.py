"""What a job is about to do to a board, judged by the registry alone. In: a registry, names. Out: a
`Plan`, or why it cannot be.
"""

from dataclasses import dataclass

from gateway.errors import OncewayError
from provisioning.identity import Identity, check_name
from provisioning.radio_plan import RadioPlan, check_radio_name
from provisioning.registry import Device, Registry, Work


@dataclass(frozen=True, slots=True)
class Plan:
    """name: which the board shall have. known: what the registry says of that name; the plan is
    good as long as it says so. identity: None when the board's own key is to stay, since the
    registry does not know it. was: the name that it has now, when it is renamed. new_board: the
    board need not be the one that the registry knows. interrupted: the work that this one takes up.
    rekeys: only the key is another one; the board must have the name, with whatever key. radio: the
    channel and number that a board by radio gets, or has.
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
    """A new device; or one that was begun, with the identity and channel that it had; or one that
    was admitted, as long as it has no key here.
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
        raise _taken(registry, known)
    if radio is not None:
        check_radio_name(name)
    return Plan(name, known, Identity.create(name), new_board=True, radio=radio)


def flash(registry: Registry, name: str) -> Plan:
    """A device of the registry keeps its identity. Raises OncewayError if it was revoked."""
    known, begun = _welcome(registry, name), registry.work(name)
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
    """A device gets another key and keeps all else. Raises OncewayError if it was revoked, or is
    being renamed.
    """
    known, begun = _welcome(registry, name), registry.work(name)
    if begun is not None and begun.was is not None:
        raise _taken(registry, known)
    identity = begun.identity if begun else Identity.create(name)
    work = _interrupted(registry, name)
    return Plan(name, known, identity, interrupted=work, rekeys=True, radio=known.channel)


def replace(registry: Registry, name: str, radio: RadioPlan | None = None) -> Plan:
    """A new board takes over a name: it gets a key of its own. So does the board of a device that
    was revoked. radio: of the new board, if it has one.
    """
    known, begun = registry.get(name), registry.work(name)
    if begun is not None and begun.was is not None:
        raise _taken(registry, known)
    if radio is not None:
        check_radio_name(name)
    identity = Identity.create(name)
    return Plan(name, known, identity, new_board=True, interrupted=begun, radio=radio)


def rename(registry: Registry, name: str, new_name: str) -> Plan:
    """A device gets another name and keeps its key. Raises OncewayError if the new name is taken,
    by anything but this very job.
    """
    check_name(new_name)
    begun, taken = registry.work(new_name), registry.find(new_name)
    if begun is not None and begun.was == name:
        return Plan(new_name, taken, begun.identity, name, interrupted=begun, radio=begun.channel)
    known = _welcome(registry, name)
    if taken is not None:
        raise _taken(registry, taken)
    if known.channel is not None:
        check_radio_name(new_name)
    return Plan(
        new_name,
        taken,
        Identity(new_name, known.key) if known.key else None,
        name,
        interrupted=_interrupted(registry, name),
        radio=known.channel,
    )


def _interrupted(registry: Registry, name: str) -> Work | None:
    return next((work for work in registry.works() if name in (work.name, work.was)), None)


def _welcome(registry: Registry, name: str) -> Device:
    device = registry.get(name)
    if device.status == "revoked":
        hint = f"`onceway device replace {name}` gives the name to a board again, with a new key"
        raise OncewayError(f"the device {name!r} was revoked", str(registry.path), hint)
    return device


def _taken(registry: Registry, known: Device) -> OncewayError:
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
            f" {renamed.name}` goes on with it"
        )
    else:
        hint = (
            f"Choose another one; `onceway device flash {known.name}` writes to that device,"
            " `replace` gives its name to a new board"
        )
    return OncewayError(
        f"the name {known.name!r} is taken by a device that was entered on {known.created}"
        f" ({known.status})",
        str(registry.path),
        hint,
    )
