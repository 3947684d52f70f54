"""Commands to the boards: a workload that is planned in the same way as faults. In: a `[commands]`
section of a bench. Out: commands `interval N force` to each board at its own places; events
`command` in the history. Each command has a different N, in milliseconds or seconds, so that EEPROM
and samples of the board show which commands it obeyed.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from hil.faults.base import Kind
from hil.faults.fault import Evidence, Fault
from hil.faults.under_test import SystemUnderTest
from hil.observe.counters import wait_until
from hil.observe.history import COMMAND


class Commands(Kind):
    """Commands, planned like faults: each has a place. The verdict is *holds* only if all were
    sent. count: number of commands to each board.
    """

    text: ClassVar[str] = COMMAND
    part: ClassVar[str] = "board"
    kind: Literal["command"] = Field(default="command", exclude=True)
    count: int = Field(default=1, ge=1, le=1000)
    between: tuple[float, float] = (0.2, 0.9)

    @field_validator("kind")
    @classmethod
    def _no_key(cls, _: str) -> str:
        """Refuse the key `kind`: there is only one kind of command."""
        raise PydanticCustomError("extra_forbidden", "there is no such key")

    def faults(self, seed: int, readings: dict[str, int]) -> Iterator[Fault]:
        for device, total in readings.items():
            yield from self._on(
                device, f"{device} commands", f"sampled {device}", total - 2, seed, readings
            )

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        device = system.device(fault)
        # the gateway has answered a publication, and the board subscribes before it publishes
        await wait_until(lambda: device.journalled > device.waiting)
        interval = device.next_interval()
        system.history.add("rig", "command", device=device.name, interval=interval)
        text = f"{interval // 1000} s" if interval % 1000 == 0 else str(interval)
        system.commander.send(device.name, f"interval {text} force")
        return Evidence(f"interval {text}", {"interval": interval})
