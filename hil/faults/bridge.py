"""Faults of the broker at the other end of the gateway's bridge."""

import asyncio
from typing import ClassVar, Literal

from pydantic import Field

from hil.faults.base import Kind, Seconds
from hil.faults.fault import Evidence, Fault
from hil.faults.under_test import SystemUnderTest


class OtherBrokerRestart(Kind):
    """SIGTERM to the other broker, which writes its sessions and retained messages to disk, and a
    start after some seconds. Meanwhile retained messages change at the gateway only.
    """

    text: ClassVar[str] = "other broker restarted"
    part: ClassVar[str] = "other broker"
    looked: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    gateways: ClassVar[Literal["any", "one", "several"]] = "one"
    kind: Literal["other-broker-restart"]
    seconds: Seconds = Field(default=2.0, gt=0, le=60)
    """Time without the other broker, in seconds."""

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        broker = system.other_broker
        assert broker is not None  # noqa: S101 - the bench has checked that there is one
        code = await broker.stop()
        await asyncio.sleep(self.seconds)
        await broker.start()
        return None if code else Evidence(f"away for {self.seconds:g} s")
