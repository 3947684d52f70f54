"""A simulated Arduino Uno (`firmware/sim`) as an object. In: a folder for its serial port, memory
images and logs, and commands (power, reset, cut, ADC). Out: its answers and its events. The
simulator is a separate process, because libsimavr is GPL-3. It ends with its parent. EEPROM and
flash stay in the folder, so a board can be stopped and started again.
"""

import asyncio
import json
import os
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from gateway.errors import OncewayError
from hil.boards.images import write_flash

BUILD = Path(__file__).resolve().parents[2] / "build" / "firmware"
HZ = 16_000_000
"""Frequency of the clock that counts board time."""
OFF_S = 0.5
"""Seconds that the rig leaves a board without power."""

_START_SECONDS = 20.0
_ANSWER_SECONDS = 20.0
_STOP_SECONDS = 2.0


class BoardError(OncewayError):
    """The simulated board could not start, or refused a command."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event on the board. name: such as boot, reset, power, cut, struck or radio. cycle: board
    time. details: see firmware/sim/README.md.
    """

    name: str
    cycle: int
    details: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters since the process started, and the present state. tx, rx: bytes on the wire.
    overruns: bytes that the receiver lost. samples: conversions on channel 0. writes: EEPROM
    writes, complete or torn. stuck_writes: writes whose value was changed by worn-out bits.
    memory_writes: bytes written to the memory on the bus, complete or torn. frames: frames that the
    radio began to send. stack: largest stack since power-on, in bytes. left: remaining cycles,
    bytes or writes until an ordered cut. slipped: cycles by which the board is behind real time.
    """

    cycle: int
    power: bool
    asleep: bool
    cause: str
    boots: int
    tx: int
    rx: int
    overruns: int
    samples: int
    writes: int
    torn_writes: int
    stuck_writes: int
    memory_writes: int
    frames: int
    armed: str
    left: int  # prose: JSON key
    cuts: dict[str, int]
    stack: int
    open: bool
    slipped: int


@dataclass(frozen=True, slots=True)
class Air:
    """The ether of a board's radio. socket: Unix socket of the ether. place: x and y in metres."""

    socket: Path
    name: str
    place: tuple[float, float]


class EventStream:
    """Events from the moment of subscription on. Ends with the board's process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def __aiter__(self) -> AsyncIterator[Event]:
        while line := await self._reader.readline():
            details = json.loads(line)
            yield Event(details.pop("event"), details.pop("cycle"), details)

    async def wait_for(self, name: str, seconds: float = 10.0) -> Event:
        """Return the next event with this name. Other events are skipped. Raises TimeoutError, and
        BoardError if the board's process ends first.
        """
        async with asyncio.timeout(seconds):
            async for event in self:
                if event.name == name:
                    return event
        raise BoardError(f"the board's process ended before the event `{name}`")

    def close(self) -> None:
        self._writer.close()


def _peer(writer: asyncio.StreamWriter) -> int:
    """Return the process id at the other end of a Unix socket."""
    pid, _, _ = struct.unpack(
        "3i", writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    )
    return int(pid)


def _last_line(messages: Path) -> str:
    return "".join(messages.read_text(errors="replace").strip().splitlines()[-1:])


class SimulatedBoard:
    """One board in one folder. Use `start` and `stop`, or `async with`.

    - firmware: an Intel HEX file put into the flash before the first start, as a programmer would;
      without it the flash keeps its content.
    - speed: `real`, `max` (as fast as possible) or `step` (time passes in `run` only, and there is
      no port: opening one resets the board, so a run would not be repeatable).
    - seed: for torn cells and RAM noise.
    - off: start without power.
    - adc_from: A0 has another voltage at each conversion, beginning with this step of the ADC's
      1024.
    - record: keep all inputs, and each byte that the board sends, with their time (`inputs`,
      `tx_log`).
    - ds18b20: a thermometer at pin 2, in sixteenths of a degree Celsius.
    - dht22: a sensor at pin 3, in tenths of a degree and of a percent.
    - memory: the memory on its I2C bus; its image is `memory.bin`.
    - drift: how much faster its clock is than this machine's, in millionths, at speed `real`.
    - port: whether it has a serial port; opening it resets the board.
    - radio: an SX1276 on its SPI bus.
    - air: the ether of the radio.
    - bootloader: a HEX file; True is Optiboot, as on a new Uno.
    """

    def __init__(
        self,
        directory: Path,
        *,
        firmware: Path | None = None,
        speed: Literal["real", "max", "step"] = "real",
        seed: int = 1,
        off: bool = False,
        adc_from: int | None = None,
        record: bool = False,
        drift: int = 0,
        ds18b20: int | None = None,
        dht22: tuple[int, int] | None = None,
        memory: Literal["fram", "i2c-eeprom"] | None = None,
        bootloader: bool | Path = True,
        port: bool = True,
        radio: bool = False,
        air: Air | None = None,
    ) -> None:
        self.directory = directory
        self.port = directory / "tty"
        self.eeprom_image = directory / "eeprom.bin"
        self.flash_image = directory / "flash.bin"
        self.eeprom_log = directory / "eeprom.log"
        self.tx_log = directory / "tx.log"
        self.adc_log = directory / "adc.log"
        self.inputs = directory / "inputs"
        self.cycle, self.powered = 0, False
        self._messages = directory / "simboard.log"
        self._firmware = firmware
        self._options = ["--speed", speed, "--seed", str(seed)]
        self._options += ["--pty-link", "tty"] if port and speed != "step" else []
        loader = BUILD / "sim" / "optiboot.hex" if bootloader is True else bootloader
        self._options += ["--bootloader", str(loader)] if loader else []
        self._options += ["--off"] if off else []
        self._options += [] if adc_from is None else ["--adc-from", str(adc_from)]
        self._options += [f"--{memory}", "memory.bin"] if memory else []
        self._options += ["--ds18b20", str(ds18b20)] if ds18b20 is not None else []
        self._options += ["--dht22", "{},{}".format(*dht22)] if dht22 else []
        self._options += ["--radio"] if radio or air else []
        if air is not None:
            place = f"{air.place[0]},{air.place[1]}"
            self._options += ["--air", str(air.socket), "--name", air.name, "--at", place]
        self._options += ["--drift", str(drift)] if drift else []
        self._options += ["--record", "inputs", "--tx-log", "tx.log"] if record else []
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.returncode is None else None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the process and connect to it. Raises BoardError if that fails."""
        program = BUILD / "sim" / "simboard"
        if not program.exists():
            raise BoardError(
                "the simulated board is not built", str(program), "Run `make firmware`"
            )
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._firmware:
            write_flash(self.flash_image, self._firmware)
            self._firmware = None
        images = ["--flash=flash.bin", "--eeprom=eeprom.bin", "--eeprom-log=eeprom.log"]
        images += ["--adc-log=adc.log"]
        command = [str(program), "--with-parent", "--control=control", *images, *self._options]
        with self._messages.open("ab") as messages:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                cwd=self.directory,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=messages,
                stderr=messages,
            )
        try:
            self._reader, self._writer = await self._connect()
        except BaseException:
            await self.stop()
            raise

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect through /proc, because a socket's name may have at most 107 bytes."""
        folder = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            async with asyncio.timeout(_START_SECONDS):
                while self.pid is not None:
                    try:
                        reader, writer = await asyncio.open_unix_connection(
                            f"/proc/self/fd/{folder}/control"
                        )
                    except (FileNotFoundError, ConnectionRefusedError):
                        pass
                    else:
                        if _peer(writer) == self.pid:
                            return reader, writer
                        writer.close()  # the connection of an earlier board in this folder
                    await asyncio.sleep(0.002)
        except TimeoutError:
            pass
        finally:
            os.close(folder)
        last = _last_line(self._messages)
        raise BoardError(
            "the simulated board did not start" + (f" ({last})" if last else ""),
            str(self.directory),
        )

    async def stop(self) -> None:
        """End the board's process, if any; images and logs stay."""
        process, self._process = self._process, None
        if self._writer:
            self._writer.close()
            self._reader = self._writer = None
        if process is None:
            return
        for end in (process.terminate, process.kill):
            try:
                if process.returncode is None:
                    end()
                async with asyncio.timeout(_STOP_SECONDS):
                    await process.wait()
                return
            except TimeoutError:
                continue

    async def kill(self) -> None:
        if self._process and self._process.returncode is None:
            self._process.kill()
        await self.stop()

    async def command(self, line: str) -> dict[str, Any]:
        """Send one command line and return its answer. Raises BoardError if refused."""
        async with self._turn:
            if self._reader is None or self._writer is None:
                raise BoardError("the simulated board is not running", str(self.directory))
            self._writer.write(line.encode() + b"\n")
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    answer = await self._reader.readline()
            except ConnectionError:
                answer = b""
        if not answer:
            raise BoardError(
                "the simulated board has died",
                str(self.directory),
                f"Its last message: {_last_line(self._messages) or 'none'}",
            )
        fields: dict[str, Any] = json.loads(answer)
        if not fields.pop("ok"):
            raise BoardError(
                f"the simulated board refused `{line[:60]}`: {fields['error']}", str(self.directory)
            )
        return fields

    async def subscribe(self) -> EventStream:
        """Return a stream of all events that happen from now on."""
        reader, writer = await self._connect()
        writer.write(b"events\n")
        await reader.readline()
        return EventStream(reader, writer)

    async def power(self, on: bool) -> None:
        await self.command("power on" if on else "power off")

    async def reset(self) -> None:
        await self.command("reset")

    async def brownout(self) -> None:
        """Cause a dip of the supply: a reset that keeps RAM and tears an EEPROM write."""
        await self.command("brownout")

    async def hang(self) -> None:
        """Stop the crystal until the next reset. The watchdog, with its own oscillator, runs on."""
        await self.command("hang")

    async def stick(self, address: int, bits: int, value: int) -> None:
        """Wear out bits of an EEPROM cell: from its next write on, these bits read as the bits of
        `value`, until `stop` ends the simulator.
        """
        await self.command(f"stick {address} {bits} {value}")

    async def cut(
        self, kind: Literal["cycles", "tx", "eeprom"], count: int, *, torn: bool = False
    ) -> None:
        """Cut the power `count` cycles, TX bytes or EEPROM writes from now. torn: whether the cut
        comes in the middle of the last EEPROM write. The board stays off.
        """
        await self.command(f"cut {kind} {count}" + (" torn" if torn else ""))

    async def at(self, sample: int, name: str, command: str) -> None:
        """Order a command in advance. The board executes it at the start of its `sample`th
        conversion on channel 0, and an event `struck` with this name reports that.
        """
        await self.command(f"at {sample} {name} {command}")

    async def cancel(self) -> None:
        await self.command("cancel")

    async def adc(self, channel: int, millivolts: int) -> None:
        await self.command(f"adc {channel} {millivolts}")

    async def sensor(self, kind: Literal["ds18b20", "dht22"], fault: str) -> None:
        """Replace a sensor at its pin by a faulty one (faults: firmware/sim/README.md)."""
        await self.command(f"sensor {kind} {fault}")

    async def unplug(self) -> None:
        """Remove the serial port; programs that have it open get a hang-up."""
        await self.command("unplug")

    async def plug(self) -> None:
        await self.command("plug")

    async def stats(self) -> Stats:
        return Stats(**await self.command("stats"))

    async def eeprom(self) -> bytes:
        return bytes.fromhex((await self.command("eeprom"))["eeprom"])

    async def wear(self) -> list[int]:
        """Return the number of writes of each EEPROM cell since the process started."""
        return list((await self.command("wear"))["wear"])

    async def speed(self, speed: Literal["real", "max", "step"]) -> None:
        await self.command(f"speed {speed}")

    async def send(self, data: bytes) -> None:
        """Let the board's UART receive bytes that bypass its port, at most 1024 in one call."""
        await self.command(f"rx {data.hex()}")

    async def hear(
        self, frame: bytes, *, rssi: float = -80, snr: float = 9, good: bool = True
    ) -> None:
        """Hand a frame to the board's radio, at the frame's end. good: whether its CRC is right."""
        damaged = "" if good else " damaged"
        await self.command(f"heard {rssi} {snr} {frame.hex()}{damaged}")

    async def radio(self, on: bool) -> None:
        await self.command("radio on" if on else "radio off")

    async def run(self, cycles: int, *, burst: bool = False) -> bytes:
        """Run the board for `cycles`. The speed must be `step`. Return the bytes that the board has
        sent since the last call, at most 4096. `cycle` and `powered` then have the board time and
        whether it has power. burst: whether to return earlier, when the board has sent bytes and
        fallen silent, or has lost its power.
        """
        answer = await self.command(f"run {cycles}" + (" burst" if burst else ""))
        self.cycle, self.powered = int(answer["cycle"]), bool(answer["power"])
        return bytes.fromhex(answer["tx"])
