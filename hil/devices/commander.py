"""Commands to the boards, as a person or a program sends them: MQTT over TCP, QoS 2, through the
gateway under test.

In: a `[commands]` section of a bench. Out: `interval N` to each board at places of its own, each
with another N, so that what the board has obeyed can be read from its EEPROM; events `command` in
the history.
"""

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from hil.faults.base import Evidence, Fault, Kind
from hil.judge.checker import COMMAND
from hil.observe.counters import wait_until

if TYPE_CHECKING:
    from hil.run.system import Rig


class Commander:
    """A client whose session lasts; what it has sent and is not acknowledged it sends again when it
    is connected again.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id="commander", clean_session=False
        )
        self._client.reconnect_delay_set(1, 2)

    def start(self) -> None:
        self._client.connect_async("127.0.0.1", self.port)
        self._client.loop_start()

    def send(self, device: str, text: str) -> None:
        self._client.publish(f"commands/{device}", text, qos=2)

    def stop(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Commands(Kind):
    """The workload's commands stand in the plan like faults: each has a place, and must have been
    sent for a verdict. count: to each board.
    """

    text: ClassVar[str] = COMMAND
    part: ClassVar[str] = "board"
    kind: Literal["command"] = Field(default="command", exclude=True)
    count: int = Field(default=1, ge=1, le=1000)
    between: tuple[float, float] = (0.2, 0.9)

    @field_validator("kind")
    @classmethod
    def _no_key(cls, _: str) -> str:
        """There is one kind of commands; nobody names it."""
        raise PydanticCustomError("extra_forbidden", "there is no such key")

    def faults(self, seed: int, readings: dict[str, int]) -> Iterator[Fault]:
        for device, total in readings.items():
            yield from self._on(
                device, f"{device} commands", f"sampled {device}", total - 2, seed, readings
            )

    async def inject(self, fault: Fault, rig: "Rig") -> Evidence | None:
        device = rig.device(fault)
        # it has met the gateway, and subscribed before it published
        await wait_until(lambda: device.journalled > device.waiting)
        interval = device.next_interval()
        rig.history.add("rig", "command", device=device.name, interval=interval)
        rig.commander.send(device.name, f"interval {interval}")
        return Evidence(f"interval {interval}", {"interval": interval})
