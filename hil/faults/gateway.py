"""Faults of the gateway's processes and of its power, and a publication that it refuses for good.
In: the run, and what the rig saw in the store, at the landing place and on the wire. Out: evidence;
a contradiction in the history if a program was suspended outside the fault's window, or if a board
does not continue after a refusal.
"""

import asyncio
import json
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from hil.faults.base import Kind, Seconds
from hil.faults.fault import Evidence, Fault
from hil.faults.landing_place import LandingPlace
from hil.faults.loop_disk import LoopDisk, missing
from hil.faults.preload import Machine
from hil.faults.under_test import DeviceUnderTest, SystemUnderTest
from hil.faults.windows import (
    OF_GATEWAY,
    OF_GATEWAYS_DISK,
    OF_RELEASES,
    OF_UPLINK,
    Window,
    WindowKind,
)
from hil.observe.counters import wait_until
from hil.observe.spool import SpoolHop

REFUSED_WITHIN = 180.0
"""Longest time, in seconds, from the denial of a topic to the refusal of a publication to it."""
GOES_ON_WITHIN = 8.0
"""Seconds within which the gateway must accept the board's next publication: less than the 10 s
after which a board repeats a temporarily refused publication (firmware/README.md).
"""

DOWN_S = 0.5  # s from a kill to the restart; systemd waits 1 s


class ProgramKill(WindowKind):
    """kill -9 of a program that is stopped in a window, and a restart soon after."""

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        assert self.machine_of  # noqa: S101
        async with system.site.process_lock:
            system = system.at(fault)  # its board may have moved during the wait
            machine, start = system.site.machine(self.machine_of), self.start(system)
            child = system.site.running[self.machine_of]
            since = system.look()
            text = await self.halt(fault, machine, child, system.is_at)
            if text is None:
                return None
            system.spool.look()
            if why := self.window_error(fault, machine, system.site.landing):
                system.history.add(self.machine_of, "contradiction", text=f"{text}: {why}")
            seen = await self.stop(system)
            machine.disarm()
            await asyncio.sleep(DOWN_S)
            await start()
        data = {**seen.data, "since": since, "hit": {"window": text}}
        return Evidence(f"{text}: {seen.text}", data, text)

    async def stop(self, system: SystemUnderTest) -> Evidence:
        """End the program, which is suspended in the fault's window."""
        assert self.machine_of  # noqa: S101
        return await kill(system, self.machine_of)

    def window_error(self, fault: Fault, machine: Machine, landing: LandingPlace) -> str | None:
        """Check the landing place while the program is stopped in the fault's window. Return a
        sentence if the state is not the one that the window names, else None.
        """
        return None

    @abstractmethod
    def start(self, system: SystemUnderTest) -> Callable[[], Awaitable[None]]:
        """Return the function that starts the program again."""


class GatewayKill(ProgramKill):
    text: ClassVar[str] = "kill -9 of the gateway"
    part: ClassVar[str] = "gateway"
    machine_of: ClassVar[str] = "gateway"
    windows: ClassVar[Mapping[str, Window]] = OF_GATEWAY
    kind: Literal["gateway-kill"]
    window: Literal["any", "received", "committed", "acknowledged"] = "any"

    def start(self, system: SystemUnderTest) -> Callable[[], Awaitable[None]]:
        return system.site.start_gateway


class GatewayKillAtRelease(ProgramKill):
    """kill -9 of the gateway between the PUBREC of a subscriber and its PUBCOMP, for a QoS 2
    message that the gateway has sent.
    """

    text: ClassVar[str] = "kill -9 of the gateway at a release"
    part: ClassVar[str] = "gateway"
    machine_of: ClassVar[str] = "gateway"
    windows: ClassVar[Mapping[str, Window]] = OF_RELEASES
    kind: Literal["gateway-kill-at-release"]
    window: Literal["any", "recorded", "released"] = "any"

    def start(self, system: SystemUnderTest) -> Callable[[], Awaitable[None]]:
        return system.site.start_gateway


class GatewayPause(Kind):
    """SIGSTOP, and SIGCONT after some seconds: a machine that hangs. Links and sessions may time
    out in the meantime.
    """

    text: ClassVar[str] = "gateway paused"
    part: ClassVar[str] = "gateway"
    looked: ClassVar[bool] = True
    kind: Literal["gateway-pause"]
    seconds: Seconds = Field(default=3.0, gt=0, le=60)
    """Length of the pause."""

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        child = system.site.running["gateway"]
        child.pause()
        await asyncio.sleep(DOWN_S)  # lets an open commit finish
        system.spool.look()
        before = system.spool.committed
        await asyncio.sleep(self.seconds)
        system.spool.look()
        paused, after = child.paused, system.spool.committed
        child.resume()
        return (
            Evidence(f"nothing committed for {self.seconds:g} s", {"pid": child.pid})
            if paused and after == before
            else None
        )


class UplinkKill(ProgramKill):
    text: ClassVar[str] = "kill -9 of the uplink"
    part: ClassVar[str] = "uplink"
    machine_of: ClassVar[str] = "uplink"
    windows: ClassVar[Mapping[str, Window]] = OF_UPLINK
    kind: Literal["uplink-kill"]
    window: Literal["any", "data", "landed", "deleted"] = "any"

    def start(self, system: SystemUnderTest) -> Callable[[], Awaitable[None]]:
        return system.site.start_uplink

    def window_error(self, fault: Fault, machine: Machine, landing: LandingPlace) -> str | None:
        manifest = landing.behind(Path(machine.found))
        if fault.detail["window"] == "deleted" or not manifest.stem.isdecimal():
            return None
        data = manifest.with_suffix(".parquet")
        if not data.exists():
            return f"{data.name} is missing"
        if fault.detail["window"] == "landed" and not manifest.exists():
            return f"{manifest.name} is missing"
        return None


class GatewayPowerCut(WindowKind):
    """Gateway and uplink are killed while the gateway is suspended in a window. They restart with
    the data on the disk: pages that only the kernel had are lost.
    """

    gateways: ClassVar[Literal["any", "one", "several"]] = "one"
    text: ClassVar[str] = "power cut of the gateway"
    part: ClassVar[str] = "gateway"
    machine_of: ClassVar[str] = "gateway"
    windows: ClassVar[Mapping[str, Window]] = OF_GATEWAYS_DISK
    kind: Literal["gateway-power-cut"]
    window: Literal["any", "received", "committed", "acknowledged"] = "any"

    def impossible(self) -> str | None:
        return missing()

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        site = system.site
        assert site.disk is not None  # noqa: S101
        async with site.process_lock:
            victims = [site.running[name] for name in ("gateway", "uplink")]
            machine = site.machine("gateway")
            since = system.look()
            # even a program that never reaches the window, because it never syncs, loses its power
            window = await self.halt(fault, machine, victims[0], system.is_at)
            for child in victims:
                child.check()  # a program that ended by itself is not killed here
                child.pause()
            await wait_until(lambda: all(child.paused for child in victims))
            written = contents(site.folder.data)
            copy = await asyncio.to_thread(site.disk.freeze)
            with system.spool.covered():
                for child in victims:
                    await child.kill()
                machine.disarm()
                site.disk.restart(copy)  # at once, so that no file of the rig is open on it
            lost = [
                name
                for name, data in contents(site.folder.data).items()
                if written.get(name) != data
            ]
            place = system.counters["spooled"]
            await asyncio.sleep(DOWN_S)
            await site.start_gateway()
            await site.start_uplink()
        if window is None:
            return None
        text = (
            f"{window}: the gateway had spooled {place} publications, and started on a copy of its"
            f" disk with {len(lost)} older file(s)"
        )
        data = {"older": sorted(lost), "since": since, "hit": {"window": window}}
        return Evidence(text, data, window)


class LandingPowerCut(UplinkKill):
    """The uplink is killed while it is suspended in a window. At this moment the landing place, a
    separate disk, loses its power: pages that only the kernel had are lost there.
    """

    gateways: ClassVar[Literal["any", "one", "several"]] = "one"
    text: ClassVar[str] = "power cut of the landing place"
    kind: Literal["landing-power-cut"]  # type: ignore[assignment]

    def impossible(self) -> str | None:
        return missing()

    async def stop(self, system: SystemUnderTest) -> Evidence:
        return await cut_power(system, "uplink", system.site.landing_disk)


class GatewayRestored(Kind):
    """A backup of the running gateway's store is made. After `later` more publications, the gateway
    stops, and the uplink lands the whole spool, which would be lost otherwise. A user's commands
    restore the backup, and both programs start again.
    """

    gateways: ClassVar[Literal["any", "one", "several"]] = "one"
    text: ClassVar[str] = "gateway's store restored from a backup"
    part: ClassVar[str] = "gateway"
    looked: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    kind: Literal["gateway-restored"]
    later: int = Field(default=8, ge=4, le=1000)
    """Smallest number of publications that the backup lacks."""

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        site, spool = system.site, system.spool
        async with site.process_lock:
            since = system.look()
            copy = site.folder.root / f"{fault.id}.db"
            await site.store("backup", "--to", str(copy))
            backed_up = spool.committed
            await wait_until(lambda: _committed(spool) >= backed_up + self.later)
            await site.running["gateway"].stop()
            await wait_until(lambda: not spool.waits())
            await site.running["uplink"].stop()
            system.look()
            lacks = spool.committed - backed_up
            restored = time.monotonic_ns()
            await site.store("restore", "--from", str(copy))
            last = spool.restored()
            await site.start_gateway()
            await site.start_uplink()
        text = f"started on a backup of {last} publications; {lacks} came later and had landed"
        return Evidence(text, {"since": since, "restored": restored, "lacks": lacks})


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


def _committed(spool: SpoolHop) -> int:
    spool.look()
    return spool.committed


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


async def restart(
    system: SystemUnderTest,
    name: str,
    start: Callable[[], Awaitable[None]],
    disk: LoopDisk | None = None,
) -> Evidence:
    """Kill a program with SIGKILL, and restart it soon after. disk: a disk that loses its power at
    the same moment, or None.
    """
    async with system.site.process_lock:
        evidence = await (cut_power(system, name, disk) if disk else kill(system, name))
        await asyncio.sleep(DOWN_S)
        await start()
        return evidence


async def cut_power(system: SystemUnderTest, name: str, disk: LoopDisk | None) -> Evidence:
    """Kill a program and cut its disk's power. The disk keeps only what the kernel had written."""
    assert disk is not None  # noqa: S101
    child = system.site.running[name]
    child.pause()
    await wait_until(lambda: child.paused)
    written = set(names(disk.mount))
    copy = await asyncio.to_thread(disk.freeze)
    killed = await kill(system, name)
    disk.restart(copy)  # at once, so that no file of the rig is open on it
    lost = sorted(written - set(names(disk.mount)))
    text = f"{killed.text}; {len(lost)} file(s) were lost from its disk"
    return Evidence(text, {**killed.data, "gone": lost})


async def kill(system: SystemUnderTest, name: str) -> Evidence:
    child = system.site.running[name]
    child.check()  # a program that ended by itself is not killed here
    await child.kill()
    return Evidence(
        f"process {child.pid} killed at {system.counters['spooled']} publications in the store",
        {"pid": child.pid},
    )


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
