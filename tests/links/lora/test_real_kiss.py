"""The KISS driver and that of openhop_core (PyPI, MIT), which others use with the same modems: they
read each other's frames, and talk over two modems of the rig.

The test installs openhop_core once, into a virtual environment of its own in build/, for which it
needs the internet.
"""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gateway.boards.bundled_firmware import ROOT
from gateway.links.lora.airtime import LONGEST, Modulation
from gateway.links.lora.kiss import LARGEST, Decoder, KissModem, encode
from gateway.links.lora.radio import Event, Heard, Ready, Sent
from gateway.links.tty import Tty
from gateway.system.regions import EU868
from hil.air.kiss_modem import FIRMWARE
from tests.hil.air.radio_site import RadioSite

pytestmark = [pytest.mark.sim, pytest.mark.soak, pytest.mark.timeout(600)]

VERSION = "1.1.3"
HOME = ROOT / "build" / f"openhop-{VERSION}"
PATIENCE_S = 60
CHANNEL = {
    "frequency": EU868.frequency,
    "bandwidth": 125_000,
    "spreading_factor": 7,
    "coding_rate": 5,
}
ODD = bytes((0xC0, 0xDB, 0xDC, 0xDD, 0x00, 0xFF))
"""The special bytes of KISS (FEND, FESC, TFEND, TFESC), 0x00 and 0xFF."""


def install() -> Path:
    """Install openhop_core if it is missing. Return the Python interpreter of its environment."""
    python = HOME / "bin" / "python"
    if not (HOME / "ready").exists():
        shutil.rmtree(HOME, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", HOME], check=True)
        wanted = (f"openhop_core=={VERSION}", "pyserial")
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
        (HOME / "ready").touch()
    return python


class Oracle:
    """The process of the other client. One line asks, one line answers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def ask(self, do: str, **request: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, **request}).encode() + b"\n")
        line = await asyncio.wait_for(self.process.stdout.readline(), PATIENCE_S)
        return json.loads(line)


@pytest.fixture
async def oracle() -> AsyncIterator[Oracle]:
    process = await asyncio.create_subprocess_exec(
        *(install(), Path(__file__).with_name("openhop_client.py")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    assert process.stdin is not None
    try:
        yield Oracle(process)
    finally:
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), PATIENCE_S)
        except TimeoutError:
            process.kill()
            raise


class Driver:
    """Onceway's KISS driver, at a port."""

    def __init__(self, path: Path, factor: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._tty = Tty(str(path), 115_200)
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self.modem = KissModem(EU868.frequency, Modulation(factor), 14)
        self.modem.open(self._loop.time())
        self._loop.add_reader(self._tty.fd, self._read)
        self._write()

    def send(self, frame: bytes) -> None:
        self.modem.send(frame, self._loop.time())
        self._write()

    async def next(self) -> Event:
        return await asyncio.wait_for(self._events.get(), PATIENCE_S)

    def close(self) -> None:
        self._loop.remove_reader(self._tty.fd)
        self._tty.close()

    def _read(self) -> None:
        for event in self.modem.receive(self._tty.read(4096), self._loop.time()):
            self._events.put_nowait(event)
        self._write()

    def _write(self) -> None:
        data = self.modem.take()
        assert self._tty.write(data) == len(data)


def contents(random: Random, count: int, longest: int) -> list[bytes]:
    """Return `count` random contents of at most `longest` bytes. About half of the bytes are from
    ODD.
    """
    return [
        bytes(
            random.choice((random.randrange(256), random.choice(ODD)))
            for _ in range(random.randint(1, longest))
        )
        for _ in range(count)
    ]


async def test_each_reads_what_the_other_one_writes(oracle: Oracle) -> None:
    random = Random(16)
    frames = [
        bytes((kind,)) + content
        for kind in (0x00, 0x01, 0x05, 0x06)
        for content in [*contents(random, 250, LARGEST - 1), bytes(range(256)), ODD * 80]
    ]
    theirs = [bytes.fromhex(data) for data in await oracle.ask("encode", frames=hexes(frames))]
    ours = [encode(frame[0], frame[1:]) for frame in frames]
    assert ours == theirs
    decoder = Decoder()
    read = [bytes((kind,)) + data for each in theirs for kind, data in decoder.feed(each)]
    assert (read, decoder.broken) == (frames, 0)
    for step in (1, 7, 1000):
        told = await oracle.ask("decode", data=b"".join(ours).hex(), step=step)
        assert told == hexes(frames)


async def test_broken_frames_are_dropped_by_both_parsers(oracle: Oracle) -> None:
    """The input is noise with many delimiters and escapes, but without an escape directly before a
    delimiter: there, the other parser would also drop the next frame.
    """
    random = Random(17)
    noise = b"\xc0" + b"".join(contents(random, 2000, 20)).replace(b"\xdb\xc0", b"\xdb\x00\xc0")
    decoder = Decoder()
    ours = [bytes((kind,)) + data for kind, data in decoder.feed(noise)]
    assert await oracle.ask("decode", data=noise.hex(), step=1000) == hexes(ours)
    assert len(ours) > 100
    assert decoder.broken > 100


async def test_both_drivers_talk_over_two_modems(tmp_path: Path, oracle: Oracle) -> None:
    site = RadioSite(tmp_path)
    await site.begin()
    await site.plug_in_another("other", 100.0)
    driver = Driver(tmp_path / "modem", CHANNEL["spreading_factor"])
    try:
        assert await driver.next() == Ready(f"KISS modem, firmware {FIRMWARE}")
        options = {"power": 14, "tx_delay_ms": 0, "kiss_full_duplex": True}
        port = str(tmp_path / "other")
        assert await oracle.ask("connect", port=port, radio=CHANNEL | options) == CHANNEL
        for frame in (ODD, ODD * 10, bytes(range(LONGEST))):
            driver.send(frame)
            event = await driver.next()
            assert isinstance(event, Sent)
            assert event.done
            heard, rssi, snr = await oracle.ask("take")
            assert bytes.fromhex(heard) == frame
            assert await oracle.ask("send", frame=frame.hex())
            event = await driver.next()
            assert isinstance(event, Heard)
            assert (event.frame, event.rssi, event.snr) == (frame, rssi, snr)
        assert driver.modem.counts == {}
    finally:
        driver.close()
        code, report = await site.end()
    assert code == 0, report["breaches"]


def hexes(frames: list[bytes]) -> list[str]:
    return [frame.hex() for frame in frames]
