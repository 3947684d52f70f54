"""Faults of a site of several gateways: boards and clients that come back at another one.

In: the run. Out: evidence of where they were and whether their MQTT session was there, too.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field

from hil.faults.base import Kind, Seconds
from hil.faults.fault import Evidence, Fault
from hil.faults.under_test import SystemUnderTest

THERE_WITHIN = 60.0  # s in which the next gateway must have taken who comes
CLIENT = "client-"
"""How the names of clients begin."""
SESSION = {True: "its session is there", False: "its session is not there"}


class BoardReplugged(Kind):
    """A board's cable is pulled at its gateway, and plugged in at the next one."""

    text: ClassVar[str] = "board replugged at another gateway"
    part: ClassVar[str] = "board"
    lane: ClassVar[str] = "cable"
    looked: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    gateways: ClassVar[Literal["any", "one", "several"]] = "several"
    kind: Literal["board-replugged"]
    seconds: Seconds = Field(default=0.3, gt=0, le=60)
    """For how long it is at none."""

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        device = system.device(fault)
        # who kills a gateway in a window waits for what a board there says
        async with system.site.hands:
            since = system.look()
            gateway = system.next_gateway(system.gateway_of(fault.target))
            try:
                present = await device.replug(fault.id, gateway, self.seconds, THERE_WITHIN)
            except TimeoutError:
                return None
        where = {"gateway": gateway, "session_present": present}
        return Evidence(f"at {gateway}; {SESSION[present]}", {"since": since, **where})


class ClientMoves(Kind):
    """A client that keeps to the standard loses its gateway behind a PUBREC, and sends the PUBREL
    to the next one.
    """

    text: ClassVar[str] = "client moves between PUBREC and PUBREL"
    part: ClassVar[str] = "client"
    gateways: ClassVar[Literal["any", "one", "several"]] = "several"
    kind: Literal["client-moves"]

    def faults(self, seed: int, readings: dict[str, int]) -> Iterator[Fault]:
        for name, messages in readings.items():
            if name.startswith(CLIENT) and (not self.on or name in self.on):
                counter = f"messages {name}"
                yield from self._on(name, f"{name} client", counter, messages, seed, readings)

    def aim(self, fault: Fault) -> dict[str, Any]:
        return {"message": fault.at}

    async def arm(self, fault: Fault, system: SystemUnderTest) -> bool:
        system.client(fault.target).move_at(fault.at)
        return True

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        where = await system.client(fault.target).moved(fault.at)
        text = f"at {where['gateway']}; {SESSION[where['session_present']]}"
        return Evidence(text, {"hit": {"message": fault.at}, **where})
