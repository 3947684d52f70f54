"""The ether as a process: the frames of a radio that loses its power, and those of a radio that is
moved to another place.
"""

import asyncio
from pathlib import Path

import pytest

from tests.hil.air.radio_site import RadioSite

pytestmark = pytest.mark.sim

WAY = "869525000 125000 9"
WITHIN = 20


async def test_a_radio_is_carried_to_where_it_is_heard(tmp_path: Path) -> None:
    site = RadioSite(tmp_path)
    await site.begin()
    socket = str(tmp_path / "air.socket")
    heard, ear = await asyncio.open_unix_connection(socket)
    told, mouth = await asyncio.open_unix_connection(socket)
    answer, carrier = await asyncio.open_unix_connection(socket)
    ear.write(f"radio ear 0 0\nlisten {WAY}\n".encode())
    await ear.drain()
    async with asyncio.timeout(WITHIN):
        mouth.write(f"radio mouth 90000 0\nsend {WAY} 1 8 14 {b'too far'.hex()}\n".encode())
        assert await told.readline() == b"sent\n"
        carrier.write(b"carry mouth 90 0\n")
        assert await answer.readline() == b"carried\n"
        mouth.write(f"send {WAY} 1 8 14 {b'near'.hex()}\n".encode())
        assert (await heard.readline()).split()[3] == b"near".hex().encode()
        carrier.write(b"carry nobody 0 0\n")
        assert await answer.readline() == b"error no radio called nobody\n"
    for writer in (ear, mouth, carrier):
        writer.close()
    await site.end()


async def test_cut_off_frame_is_received_by_no_radio(tmp_path: Path) -> None:
    """At SF9, the first frame takes 0.2 s, and `off` comes before its end. The radio stays
    connected and sends another frame, which is received.
    """
    site = RadioSite(tmp_path)
    await site.begin()
    socket = str(tmp_path / "air.socket")
    heard, ear = await asyncio.open_unix_connection(socket)
    told, mouth = await asyncio.open_unix_connection(socket)
    ear.write(f"radio ear 0 0\nlisten {WAY}\n".encode())
    await ear.drain()
    mouth.write(f"radio mouth 9 0\nsend {WAY} 1 8 14 {b'cut off'.hex()}\n".encode())
    mouth.write(f"off\nsend {WAY} 1 8 14 {b'whole'.hex()}\n".encode())
    async with asyncio.timeout(WITHIN):
        assert await told.readline() == b"sent\n"
        assert (await heard.readline()).split()[3] == b"whole".hex().encode()
    for writer in (ear, mouth):
        writer.close()
    _, report = await site.end()
    assert report["radios"]["mouth"]["sent"] == 2, "the law counts what has left"
