"""`onceway device command`: the answers of a board."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from typer.testing import CliRunner

from gateway.errors import OncewayError
from gateway.mqtt.packets import Connect, Suback, Subscribe, Subscription
from gateway.payload.answers import Answer, Kind, read
from provisioning.listing_cli import app
from tests.service.process import gateway
from tests.service.wire import wire

NAME = "roof-1"
Say = Callable[[aiomqtt.Message], tuple[bytes, bytes | None, int] | None]
"""A function from a command to the board's answer: payload, Correlation Data and QoS. It returns
None if the board does not answer.
"""


def payload(kind: int, number: int, correlation: bytes) -> bytes:
    """Return the payload that firmware/src/ow_answer.c builds."""
    return struct.pack(">B3si", kind << 4 | len(correlation), correlation, number)


def saying(kind: int, number: int = 0) -> Say:
    def say(message: aiomqtt.Message) -> tuple[bytes, bytes | None, int]:
        properties = message.properties
        assert properties is not None
        assert properties.ResponseTopic == f"logs/{NAME}"
        correlation = properties.CorrelationData
        assert len(correlation) == 3
        return payload(kind, number, correlation), correlation, 2

    return say


@asynccontextmanager
async def board(port: int, *says: Say) -> AsyncIterator[list[bytes]]:
    """Connect as a board that gives each of these answers to each command. Yield the payloads of
    the received commands.
    """
    commands: list[bytes] = []
    async with aiomqtt.Client(
        "127.0.0.1", port, identifier=NAME, protocol=aiomqtt.ProtocolVersion.V5
    ) as client:
        await client.subscribe(f"commands/{NAME}", 2)

        async def obey() -> None:
            async for message in client.messages:
                assert message.qos == 2
                commands.append(bytes(message.payload))
                for say in says:
                    if said := say(message):
                        beside = Properties(PacketTypes.PUBLISH)
                        if said[1] is not None:
                            beside.CorrelationData = said[1]
                        await client.publish(f"logs/{NAME}", said[0], said[2], properties=beside)

        task = asyncio.create_task(obey())
        try:
            yield commands
        finally:
            task.cancel()


async def command(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run `onceway device command`. Return its exit code and its output."""
    registry = ("--registry", str(folder / "registry.db"))
    result = await asyncio.to_thread(
        CliRunner().invoke, app, ["command", NAME, *arguments, *registry]
    )
    if isinstance(result.exception, OncewayError):
        raise result.exception
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("kind", "number", "code", "words"),
    [
        (1, 0, 0, "done"),
        (2, 30_000, 0, "30000"),
        (2, -1, 0, "-1"),
        (2, 2**31 - 1, 0, "2147483647"),
        (2, -(2**31), 0, "-2147483648"),
        (3, 1, 1, "refused: the board does not know this command"),
        (3, 2, 1, "refused: the number is too small or too large"),
        (3, 3, 1, "refused: this board, or its firmware, cannot do this"),
        (3, 4, 1, "refused: the board cannot do this now: try again later"),
        (3, 5, 1, "refused: it would wear the board's memory out within a year; add `force`"),
        (3, 16, 1, "refused: reason 16 of the board's own program"),
    ],
)
async def test_answer_of_the_board_is_printed(
    tmp_path: Path, kind: int, number: int, code: int, words: str
) -> None:
    async with gateway(tmp_path) as running, board(running.port, saying(kind, number)) as commands:
        found, output = await command(tmp_path, "interval 90 s", "--wait")
        assert (found, output.startswith(f"{NAME}: {words}")) == (code, True), output
        assert commands == [b"interval 90 s"]
        found, output = await command(tmp_path, "interval 90 s", "--wait", "--json")
        row = json.loads(output)
        assert (row["number"], found) == (number, code)


async def test_without_wait_the_command_is_sent_and_no_answer_asked_for(tmp_path: Path) -> None:
    came = asyncio.Event()

    def nothing(message: aiomqtt.Message) -> None:
        if not hasattr(message.properties, "ResponseTopic"):
            came.set()

    async with gateway(tmp_path) as running, board(running.port, nothing) as commands:
        assert await command(tmp_path, "identify") == (0, f"{NAME}: the command is on its way\n")
        await running.logged("the command 'identify'")
        await asyncio.wait_for(came.wait(), 10)
        assert commands == [b"identify"]


async def test_answer_to_another_command_is_not_taken_for_this_one(tmp_path: Path) -> None:
    def others(message: aiomqtt.Message) -> tuple[bytes, bytes, int]:
        return payload(3, 1, b"xyz"), b"xyz", 2

    def beside_nothing(message: aiomqtt.Message) -> tuple[bytes, None, int]:
        return payload(3, 1, b""), None, 2

    says = (others, beside_nothing, saying(1))
    async with gateway(tmp_path) as running, board(running.port, *says):
        assert await command(tmp_path, "identify", "--wait") == (0, f"{NAME}: done\n")


async def test_older_firmware_says_what_it_does_not_know(tmp_path: Path) -> None:
    def unknown(message: aiomqtt.Message) -> tuple[bytes, None, int]:
        return b"unknown command: " + bytes(message.payload)[:23], None, 0

    text = "a command that is longer than a line of a log"
    async with gateway(tmp_path) as running, board(running.port, unknown):
        found, output = await command(tmp_path, text, "--wait")
        assert (found, "does not know this command" in output) == (1, True)


async def test_the_reason_of_an_answer_counts_more_than_a_line_before_it(tmp_path: Path) -> None:
    """If a number is out of range, a board first logs "unknown command". Its answer with the real
    reason comes later.
    """

    def line(message: aiomqtt.Message) -> tuple[bytes, None, int]:
        return b"unknown command: interval 0", None, 0

    async with gateway(tmp_path) as running, board(running.port, line, saying(3, 2)):
        found, output = await command(tmp_path, "interval 0", "--wait")
        assert (found, "too small or too large" in output) == (1, True), output


async def test_board_that_is_silent_or_unplugged(tmp_path: Path) -> None:
    with pytest.raises(OncewayError, match="no gateway runs here"):
        await command(tmp_path, "identify", "--wait")
    async with gateway(tmp_path) as running:
        with pytest.raises(OncewayError, match="there is no such board here"):
            await command(tmp_path, "identify", "--wait")
        async with board(running.port):
            refused = r"has received the command.* within 1 s.*OW_ANSWERS"
            with pytest.raises(OncewayError, match=refused):
                await command(tmp_path, "identify", "--wait", "--within", "1")


async def test_command_not_taken_by_the_board_is_reported(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, wire(running.port, Connect(NAME)) as silent:
        silent.send(Subscribe(1, [Subscription(f"commands/{NAME}", 2)]))
        await silent.take(Suback)
        with pytest.raises(
            OncewayError, match=r"has not acknowledged the command within 1 s.*logs/roof"
        ):
            await command(tmp_path, "identify", "--wait", "--within", "1")


async def test_a_command_that_is_too_long_for_the_board_is_not_sent(tmp_path: Path) -> None:
    from gateway.mqtt.properties import PropertyId

    small = Connect(NAME, properties={PropertyId.MAXIMUM_PACKET_SIZE: 96})
    async with gateway(tmp_path) as running, wire(running.port, small) as sensor:
        sensor.send(Subscribe(1, [Subscription(f"commands/{NAME}", 2)]))
        await sensor.take(Suback)
        with pytest.raises(OncewayError, match=r"too long: the board accepts packets of 96 bytes"):
            await command(tmp_path, "x" * 70, "--wait", "--within", "1")


def test_unrelated_message_is_not_taken_for_an_answer() -> None:
    assert read(payload(1, 0, b"abc")) == Answer(Kind.DONE, 0, b"abc")
    assert read(payload(2, 7, b"")) == Answer(Kind.VALUE, 7, b"")
    for other in (b"", b"lost", b"done", b"12345", payload(1, 0, b"a") + b"x", b"\x10" * 7):
        assert read(other) is None
    for head in range(256):
        known = head >> 4 in (1, 2, 3) and head & 15 <= 3
        assert (read(bytes([head]) + bytes(7)) is not None) == known
