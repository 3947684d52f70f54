"""First contact after a board was written. Either the board sends the HELLO that the gateway will
get, or the error says why not.
"""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gateway.errors import OncewayError
from gateway.links.roles import UNHEARD_AFTER, DeviceLink
from provisioning.boards import board
from provisioning.contact import await_greeting
from provisioning.identity import Identity
from provisioning.interval import parse
from tests.links.board import Board, Pty

UNO = board("uno")
ROOF_1 = Identity("roof-1", bytes(range(16)))


@pytest_asyncio.fixture
async def line() -> AsyncIterator[Pty]:
    line = Pty()
    yield line
    os.close(line.master)


async def test_a_board_that_greets_gets_its_incarnation(line: Pty) -> None:
    device = Board(line, "roof-1")
    met = await asyncio.to_thread(await_greeting, line.path, ROOF_1, UNO)
    assert (met.name, met.next_sequence) == ("roof-1", 1)
    assert met.incarnation == device.link.incarnation != 0
    device.power_off()


@pytest.mark.parametrize(
    ("greets", "said"),
    [
        ("roof-2", "flashed as 'roof-1', but greets as 'roof-2'"),
        ("", "a firmware that reads the identity page at 0x7D80"),
    ],
)
async def test_board_that_greets_under_another_name_is_an_error(
    line: Pty, greets: str, said: str
) -> None:
    device = Board(line, greets)
    with pytest.raises(OncewayError, match=said):
        await asyncio.to_thread(await_greeting, line.path, ROOF_1, UNO)
    device.power_off()


async def test_silent_board_is_an_error(line: Pty) -> None:
    with pytest.raises(
        OncewayError, match=r"flashed and read back, but no greeting came within 0 s.*115200 baud"
    ):
        await asyncio.to_thread(await_greeting, line.path, ROOF_1, UNO, 0.2)


async def test_board_without_commands_is_not_reported_with_an_interval(line: Pty) -> None:
    device = Board(line, "roof-1")
    interval = parse("15min")
    with pytest.raises(OncewayError, match=r"accepted no command within 1 s, so its interval"):
        await asyncio.to_thread(await_greeting, line.path, ROOF_1, UNO, 1, interval=interval)
    device.power_off()


async def test_a_board_that_has_written_much_gets_no_interval_that_wears_it_out(line: Pty) -> None:
    device = Board(line, "roof-1", next_sequence=5_900_000)
    with pytest.raises(OncewayError, match="lasts only 69"):
        await asyncio.to_thread(
            await_greeting, line.path, ROOF_1, UNO, interval=parse("1min"), forced=False
        )
    assert not device.received
    device.power_off()


async def test_a_board_that_its_watchdog_resets_is_named(line: Pty) -> None:
    async def greet() -> None:
        for boot in range(1, 2 * UNHEARD_AFTER):
            greeting = DeviceLink("roof-1", boot=boot, key=ROOF_1.key)
            greeting.tick(10.0)
            os.write(line.master, greeting.take())
            await asyncio.sleep(0.1)

    greeter = asyncio.create_task(greet())
    with pytest.raises(OncewayError, match="'roof-1' starts again and again") as caught:
        await asyncio.to_thread(await_greeting, line.path, ROOF_1, UNO, 2)
    assert "more than 2 s without ow_mqtt_poll" in (caught.value.hint or "")
    greeter.cancel()


async def test_a_board_that_does_not_hear_us_is_named(line: Pty) -> None:
    greeting = DeviceLink("roof-1", boot=1, key=ROOF_1.key)

    async def greet() -> None:
        for number in range(2 * UNHEARD_AFTER):
            greeting.tick(10.0 * number)
            os.write(line.master, greeting.take())
            await asyncio.sleep(0.1)

    greeter = asyncio.create_task(greet())
    unheard = "'roof-1' greets, but does not hear the gateway"
    with pytest.raises(OncewayError, match=unheard) as caught:
        await asyncio.to_thread(await_greeting, line.path, ROOF_1, UNO, 2)
    assert "the board's RX pin" in (caught.value.hint or "")
    greeter.cancel()
