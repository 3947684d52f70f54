"""Chooses channel and number of a radio board. In: the user's options, the device registry, and
the radios of the gateway that runs in the registry's folder, if any. Out: a `RadioPlan`.

For an option that the user leaves out, the value comes from the gateway's radio, else from the
board, else from the defaults of a `[[lora]]` section. Only the power is POWER whenever it is left
out. A board keeps its number; a new board gets the lowest free one.
"""

from dataclasses import dataclass
from typing import Any

from gateway.commands.control_client import NotRunning, ask
from gateway.errors import OncewayError
from gateway.system.regions import REGIONS
from provisioning.radio_plan import POWER, RadioPlan
from provisioning.registry import Registry

_NUMBERS = range(1, 255)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The user's options; None if an option was left out. mhz: frequency of the channel. power: in
    dBm.
    """

    network: int | None = None
    number: int | None = None
    mhz: float | None = None
    factor: int | None = None
    power: int | None = None


OPEN = Wanted()
"""The options of a user who gave none: this module chooses each value."""


def radios(registry: Registry) -> list[dict[str, Any]]:
    """Return the radios of the running gateway, from its control socket; none if no gateway
    runs.
    """
    try:
        return ask(registry.path.parent, do="radios")
    except NotRunning:
        return []


def channel(registry: Registry, name: str, wanted: Wanted = OPEN) -> RadioPlan:
    """Return the radio plan of the board with this name. Raises OncewayError if no number is free,
    the gateway has several radios, or the law does not allow the plan.
    """
    radio = _radio(registry, name, wanted)
    network = radio["network"] if wanted.network is None else wanted.network
    region = REGIONS[radio["region"]]
    plan = RadioPlan(
        network,
        wanted.number or _free(registry, name, network, radio),
        wanted.factor or radio["factor"],
        radio["frequency"] if wanted.mhz is None else round(wanted.mhz * 1e6),
        POWER if wanted.power is None else wanted.power,
        region,
    )
    _ = plan.silence  # raises before anything is written if the law forbids the plan
    return plan


def _radio(registry: Registry, name: str, wanted: Wanted) -> dict[str, Any]:
    found = radios(registry)
    if wanted.network is not None:
        found = [radio for radio in found if radio["network"] == wanted.network]
    if len({radio["network"] for radio in found}) > 1:
        raise OncewayError(
            "the gateway has several radios",
            str(registry.path.parent),
            "Name the network of the board's radio with --network",
        )
    if found:
        return found[0]
    known = registry.find(name)
    plan = known.channel if known else None
    if plan is None or wanted.network not in (None, plan.network):
        plan, numbers = RadioPlan(0, 1), {}
    else:
        numbers = {plan.device: name}
    return {
        "network": plan.network,
        "region": plan.region.name,
        "frequency": plan.frequency,
        "factor": plan.factor,
        "numbers": numbers,
    }


def _free(registry: Registry, name: str, network: int, radio: dict[str, Any]) -> int:
    """Return the number that the board has already, else the lowest free number."""
    numbers = {int(number): owner for number, owner in radio["numbers"].items()}
    if own := [number for number, owner in numbers.items() if owner == name]:
        return own[0]
    used = set(numbers)
    for device in registry.devices():
        channel = device.channel
        if channel is not None and channel.network == network and device.name != name:
            used.add(channel.device)
    if free := [number for number in _NUMBERS if number not in used]:
        return free[0]
    raise OncewayError(
        f"all {len(_NUMBERS)} numbers of network {network} are in use", str(registry.path)
    )
