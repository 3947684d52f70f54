"""A real board of a run, at a serial port, flashed and provisioned with the user's command. The rig
knows only what the board sends. In: the board's table in a bench. Out: its publications in the
history, and ways to break its wire, to reset the board by DTR, and, if it has a power switch, to
cut its power.
"""

import asyncio
import os
import select
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Literal

from gateway.errors import OncewayError
from hil.bench.bench import Bench
from hil.devices.commander import Commander
from hil.devices.heard import Heard
from hil.devices.power_switch import Switch
from hil.devices.wired_device import WiredDevice
from hil.faults.board import RESTART_WITHIN
from hil.faults.fault import Evidence, Fault
from hil.formats.frames import Who, write_handshake
from hil.formats.keys import identity_page
from hil.observe.counters import wait_until
from hil.observe.folder import Folder
from hil.observe.history import History
from hil.programs.process import Children
from hil.programs.site import COMMAND_WITHIN, onceway
from hil.wire.ports import open_board
from hil.wire.tap import Tap
from provisioning import boards

SAMPLING_OFF = 0xFFFF
GREETING_WITHIN = 30.0  # s
ASK_EVERY = 1.0  # s
SETTLE_S = 1.0  # s after which a board without power has sent its last byte


def hear_hello(port: Path, baud: int, within: float) -> dict[str, Any] | None:
    """Return the first HELLO from a port within `within` seconds, in the form of `hil.wire.tap`, or
    None. Asks the board for a HELLO, but does not answer, so no session begins. Raises OncewayError
    if the port cannot be opened, or fails.
    """
    heard: list[dict[str, Any]] = []
    tap = Tap(heard.append)
    fd = open_board(port, baud)
    try:
        end, ask_at = time.monotonic() + within, 0.0
        while not heard and (now := time.monotonic()) < end:
            with suppress(BlockingIOError):
                if now >= ask_at:
                    ask_at = now + ASK_EVERY
                    os.write(fd, write_handshake(Who(0)) + write_handshake(Who(None)))
                if select.select([fd], [], [], ASK_EVERY)[0]:
                    tap.feed("up", os.read(fd, 4096))
    except OSError as error:
        raise OncewayError(f"the board's port has failed ({error.strerror})", str(port)) from error
    finally:
        os.close(fd)
    return heard[0] if heard else None


class RealBoard(WiredDevice):
    """A real board. contradictions: events that no correct firmware causes."""

    obeyed = 0  # a real board gets no commands of faults: the rig cannot see their effect

    counted = False  # it has no counts, so a fault cannot be ordered for an exact place

    def __init__(
        self,
        name: str,
        folder: Folder,
        bench: Bench,
        children: Children,
        history: History,
        commander: Commander,
    ) -> None:
        """Create the board. commander: sends the interval, and the order to stop sampling."""
        super().__init__(name, folder, bench, children, history)
        self._commander = commander
        self._table = bench.real[name]
        self._board = boards.board(self._table.kind)
        self._switch: Switch | None = None
        self._sent = Heard(name, history)
        self._bytes = 0
        self._interval_told = False
        self._next: int | None = None

    @property
    def port(self) -> Path:
        return Path(self._table.port)

    @property
    def contradictions(self) -> list[str]:
        return self._sent.contradictions

    @property
    def waiting(self) -> int:
        return self._sent.waiting

    @property
    def journalled(self) -> int:
        return self._sent.journalled

    def look(self) -> int:
        return self._sent.readings

    def wire_options(self) -> list[str]:
        return [
            *("--real", "--baud", str(self._board.link_baud)),
            *("--flash", str(self._page), "--page", "0"),
        ]

    def heard(self, event: str, data: dict[str, Any]) -> None:
        super().heard(event, data)
        self._sent.take(event, data)
        if event == "count":
            self._bytes = data["up"]["sent"]
        # a board subscribes before it publishes
        if self._sent.journalled > self._sent.waiting and not self._interval_told:
            self._interval_told = True
            self._commander.send(self.name, f"interval {self._bench.interval_ms} force")

    async def start(self) -> None:
        if power := self._table.power:
            self._switch = await asyncio.to_thread(Switch, Path(power.labgrid), power.target)
            await asyncio.to_thread(self._switch.turn, True)
            with suppress(TimeoutError):
                async with asyncio.timeout(RESTART_WITHIN):
                    await wait_until(self.port.exists)  # it appears now if USB powers the board

    async def stop(self) -> None:
        """Do nothing: the board stays as it is."""

    async def hold(self) -> None:
        """Switch the board off until `release`, if it has a power switch. If the port disappears
        with the power, the wire waits until the port is back.
        """
        if self._switch:
            await asyncio.to_thread(self._switch.turn, False)
            self.idle = True

    async def release(self) -> None:
        if self._switch:
            await asyncio.to_thread(self._switch.turn, True)

    async def arm(self, fault: Fault, command: str) -> bool:
        """Return False: a real board accepts no orders. The injector watches for the place."""
        return False

    async def provision(self) -> None:
        """Write firmware, identity and an empty EEPROM, so that earlier publications do not count.
        Raises OncewayError.
        """
        await self._provision("provision")
        await asyncio.to_thread(self._keep_key)
        if (await self._greeted())["incarnation"]:
            await self._provision("replace")  # a new key, and so an empty EEPROM
            await asyncio.to_thread(self._keep_key)
            if (await self._greeted())["incarnation"]:
                raise OncewayError(
                    "the board has been provisioned, but its EEPROM still has an earlier journal",
                    str(self.port),
                )

    @property
    def _page(self) -> Path:
        return self._folder.board(self.name) / "identity.bin"

    def _keep_key(self) -> None:
        """Write the board's identity page to a file. The key comes from the registry, because
        the rig cannot read the memory of a running board.
        """
        with closing(sqlite3.connect(self._folder.registry)) as registry:
            row = registry.execute("SELECT key FROM device WHERE name = ?", [self.name]).fetchone()
        self._page.parent.mkdir(parents=True, exist_ok=True)
        self._page.touch(mode=0o600)
        self._page.write_bytes(identity_page(self.name, row[0]))

    async def _provision(self, command: Literal["provision", "replace"]) -> None:
        argv = [
            onceway(),
            "device",
            command,
            self.name,
            "--port",
            str(self.port),
            "--board",
            self._board.name,
        ]
        argv += [
            "--registry",
            str(self._folder.registry),
            *(["--hex", self._bench.firmware] if self._bench.firmware else []),
            *(["--empty"] if command == "provision" else []),
        ]
        await self._children.run(f"{command}-{self.name}", argv, COMMAND_WITHIN)

    async def _greeted(self) -> dict[str, Any]:
        """Return the board's HELLO, at its own port. Raises OncewayError if no HELLO comes, or if
        the HELLO is another board's.
        """
        hello = await asyncio.to_thread(
            hear_hello, self.port, self._board.link_baud, GREETING_WITHIN
        )
        if hello is None or hello["name"] != self.name:
            greeting = f"greets as {hello['name']!r}" if hello else "does not greet"
            raise OncewayError(
                f"the board on this port should be {self.name}, but {greeting}", str(self.port)
            )
        return hello

    async def disconnect(self) -> None:
        """Remove the wire, and ask the board for its next sequence. Raises OncewayError."""
        await super().disconnect()
        self._next = int((await self._greeted())["next_sequence"])

    def close_ledgers(self) -> bool:
        """Record the publications that were never seen, and those that the board still has. Return
        False, and record nothing, if the board's next sequence is unknown.
        """
        if self._next is None:
            return False
        self._sent.close(self._next)
        return True

    async def stop_sampling(self) -> None:
        """Order the board to stop sampling, and restart it. Return when the board has sent all
        publications, including the status of that start.
        """
        command = f"interval {SAMPLING_OFF}"
        self._commander.send(self.name, command)
        await wait_until(lambda: command in self._sent.obeyed)
        if await self.reset(f"{self.name}/end"):
            report = self._sent.next
            await wait_until(lambda: self._sent.published(report))
        await wait_until(lambda: not self._sent.waiting)

    async def reset(self, fault: str) -> Evidence | None:
        """Reset the board with an edge of DTR. Return None if no start was seen in time."""
        before = self._sent.boot
        try:
            await self.strike(fault, [{"do": "reset"}], RESTART_WITHIN)
        except TimeoutError:
            return None
        return await self._started(before, lambda: True)

    async def switched_off(self, fault: str, seconds: float) -> Evidence | None:
        """Switch the board's power off for `seconds`. Return None if the board sent bytes
        meanwhile, or did not start in time. An interrupted run switches the power on again.
        """
        assert self._switch is not None  # noqa: S101 - the bench was checked
        before = self._sent.boot
        try:
            await asyncio.to_thread(self._switch.turn, False)
            await asyncio.sleep(SETTLE_S)
            count = self._bytes
            await asyncio.sleep(seconds)
            silent = self._bytes == count
        finally:
            await asyncio.to_thread(self._switch.turn, True)
        return await self._started(before, lambda: silent)

    async def _started(self, before: int, really: Callable[[], bool]) -> Evidence | None:
        try:
            async with asyncio.timeout(RESTART_WITHIN):
                await wait_until(lambda: self._sent.boot not in (0, before))
        except TimeoutError:
            return None
        boot = self._sent.boot
        return (
            Evidence(f"the board has started (start {boot})", {"boot": boot, "before": before})
            if really()
            else None
        )
