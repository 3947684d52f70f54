"""A publication that the gateway refuses for good, because an access rule denies its topic. The
board's next publications must arrive. In: the board's packets on the wire. Out: evidence; a
contradiction if these publications do not arrive.
"""

import asyncio
import json
from typing import ClassVar, Literal

from hil.faults.base import Kind
from hil.faults.fault import Evidence, Fault
from hil.faults.gateway import restart
from hil.faults.under_test import DeviceUnderTest, SystemUnderTest
from hil.observe.counters import wait_until

REFUSED_WITHIN = 180.0
"""Longest time, in seconds, from the denial of a topic to the refusal of a publication to it."""
GOES_ON_WITHIN = 8.0
"""Seconds within which the gateway must accept the board's next publication: less than the 10 s
after which a board repeats a temporarily refused publication (firmware/README.md).
"""


class PublicationRefused(Kind):
    """The gateway denies a board its topic until one publication is refused. The board must set
    this publication aside and send the next ones. Then the gateway is killed, and on the next
    connection the board tries the publication again. If the board stops sending, the run fails.
    """

    text: ClassVar[str] = "publication refused for good"
    part: ClassVar[str] = "board"
    lane: ClassVar[str] = "refusal"
    needs_traffic: ClassVar[bool] = True
    kind: Literal["publication-refused"]

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        device, site = system.device(fault), system.site
        topic = f"sensors/{device.name}/adc0"
        before = len(device.refused)
        async with site.process_lock:
            plain = site.folder.config.read_text()
            gateway = site.running["gateway"]
            rule = f"[[acl]]\nboards = true\ndeny_write = [{json.dumps(topic)}]\n"
            try:
                site.folder.config.write_text(plain + rule)
                gateway.reload()
                async with asyncio.timeout(REFUSED_WITHIN):
                    await wait_until(lambda: len(device.refused) > before)
            except TimeoutError:
                return None
            finally:
                site.folder.config.write_text(plain)
                gateway.reload()
            behind = await _goes_on(device, before)
        refused = sorted({identifier for identifier, _ in device.refused[before:]})
        if behind is None:
            system.history.add(
                "board",
                "contradiction",
                device=device.name,
                text=f"publication {refused[0]} was refused for good, but no later"
                f" one arrived for {GOES_ON_WITHIN:g} s",
            )
        seen = await restart(system, "gateway", site.start_gateway)
        text = f"publication {refused[0]} was refused, and {behind} arrived after it; {seen.text}"
        return Evidence(text, {**seen.data, "refused": refused, "behind": behind})


async def _goes_on(device: DeviceUnderTest, before: int) -> int | None:
    """Return the packet identifier of a publication accepted after the refusal, or None."""
    earlier = set(device.accepted)
    aside = {identifier for identifier, _ in device.refused[before:]}

    def new() -> set[int]:
        return set(device.accepted) - earlier - aside

    try:
        async with asyncio.timeout(GOES_ON_WITHIN):
            await wait_until(new)
    except TimeoutError:
        return None
    return min(new())
