"""The channel and number of a board by radio. In: what the user wants, the device registry, and the
radios of the gateway in the registry's folder, if one runs there. Out: a `RadioPlan`.

What the user leaves open is as the gateway's radio has it, else as the board has it, else as a
`[[lora]]` section has it by default. A number is the board's own, else the lowest that nobody has.
"""

from dataclasses import dataclass
from typing import Any

from gateway.commands.control_client import NotRunning, ask
from gateway.config.regions import REGIONS
from gateway.errors import OncewayError
from provisioning.radio_plan import POWER, RadioPlan
from provisioning.registry import Registry

_NUMBERS = range(1, 255)


@dataclass(frozen=True, slots=True)
class Wanted:
    """None: the user leaves it open. mhz: of the channel. power: dBm."""

    network: int | None = None
    number: int | None = None
    mhz: float | None = None
    factor: int | None = None
    power: int | None = None


OPEN = Wanted()


def radios(registry: Registry) -> list[dict[str, Any]]:
    """Those of the running gateway, as its control socket tells them."""
    try:
        return ask(registry.path.parent, do="radios")
    except NotRunning:
        return []


def channel(registry: Registry, name: str, wanted: Wanted = OPEN) -> RadioPlan:
    """For a board of this name. Raises OncewayError: no number is free, the gateway has several
    radios, or the law does not allow it.
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
    _ = plan.silence  # what the law forbids is said before anything is written
    return plan


def _radio(registry: Registry, name: str, wanted: Wanted) -> dict[str, Any]:
    found = radios(registry)
    if wanted.network is not None:
        found = [radio for radio in found if radio["network"] == wanted.network]
    if len({radio["network"] for radio in found}) > 1:
        raise OncewayError(
            "the gateway has several radios",
            str(registry.path.parent),
            "Say by --network which one the board is for",
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
    """The one that the gateway's configuration names, else the lowest that nobody has."""
    numbers = {int(number): owner for number, owner in radio["numbers"].items()}
    if own := [number for number, owner in numbers.items() if owner == name]:
        return own[0]
    taken = set(numbers)
    for device in registry.devices():
        there = device.channel
        if there is not None and there.network == network and device.name != name:
            taken.add(there.device)
    if free := [number for number in _NUMBERS if number not in taken]:
        return free[0]
    raise OncewayError(
        f"all {len(_NUMBERS)} numbers of network {network} are taken", str(registry.path)
    )
