"""A message that the other broker of a bridge can never accept is set aside. The bridge then sends
the next message.
"""

import asyncio
import base64
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.bridge.cli import _row
from gateway.bridge.reasons import OF_ANYTHING_ELSE, OF_THE_MESSAGE
from gateway.bridge.translate import MARK
from gateway.commands import control_client as control
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connect,
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Version,
)
from gateway.mqtt.properties import Properties, PropertyId
from gateway.mqtt.reason import ReasonCode
from gateway.store import views
from gateway.store.schema import open_store
from tests.bridge.mosquitto import Mosquitto
from tests.bridge.picky import Verdict, picky
from tests.bridge.test_bridge import (
    READING,
    UP,
    bridged,
    configuration,
    onceway,
    publish,
    subscribe,
    take,
)
from tests.service.process import free_port, gateway
from tests.service.wire import Wire, wire

PREFIX = "site-1/"
LIMIT = 2_000


def aside(folder: Path) -> list[dict[str, Any]]:
    """Return the messages that the command lists as set aside."""
    return [_row(item) for item in views.aside(folder / "data")]


def status(folder: Path) -> dict[str, Any]:
    """Return the part about the bridge in the gateway's status."""
    (found,) = control.ask(folder / "data", do="status")
    bridge: dict[str, Any] = found["bridges"][0]
    return bridge


async def until(folder: Path, within: float = 60, **wanted: object) -> dict[str, Any]:
    """Wait until the bridge's status has these values."""
    found: dict[str, Any] = {}

    def right() -> bool:
        found.update(status(folder))
        return all(found[key] == value for key, value in wanted.items())

    await happens(right, within)
    return found


async def until_aside(folder: Path, count: int, within: float = 60) -> list[dict[str, Any]]:
    """Wait until this many messages are set aside."""
    await happens(lambda: len(aside(folder)) == count, within)
    return aside(folder)


async def happens(what: Callable[[], bool], within: float = 60) -> None:
    """Wait until a condition holds. within: time limit in seconds."""
    async with asyncio.timeout(within):
        while not await asyncio.to_thread(what):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.05)


def there(packet: Publish) -> int:
    """Return the size in bytes of the packet that the bridge sends for this message."""
    named = Publish(PREFIX + packet.topic, packet.payload, packet.qos, packet.packet_id)
    named.properties = packet.properties
    return len(encode(named, Version.V5))


def sized(qos: int, size: int, properties: Properties | None, retain: bool) -> Publish:
    """Return a message for which the bridge sends a packet of `size` bytes."""
    packet = Publish(READING, b"", qos, 1 if qos else 0, retain, properties=properties)
    packet.payload = bytes(size - there(packet))
    while there(packet) > size:
        packet.payload = packet.payload[1:]
    assert there(packet) == size
    return packet


async def say(client: Wire, packet: Publish) -> None:
    """Publish a message, and wait for the end of its exchange."""
    client.send(packet)
    if packet.qos == 1:
        assert (await client.pick(Puback)).reason < 0x80
    elif packet.qos == 2:
        assert (await client.pick(Pubrec)).reason < 0x80
        client.send(Pubrel(packet.packet_id))
        await client.pick(Pubcomp)


# -- size


SHAPES: list[tuple[Properties | None, bool]] = [
    (None, False),
    (None, True),
    ({PropertyId.CONTENT_TYPE: "application/senml+cbor"}, False),
    ({PropertyId.USER_PROPERTY: [("a", "b" * 200), ("c", "d")]}, True),
]
"""Properties and RETAIN of a message."""


@pytest.mark.mqtt("MQTT-3.2.2-15")
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_size_at_the_other_broker_is_computed_exactly(tmp_path: Path, qos: int) -> None:
    text = f'{UP}\nprefix = "{PREFIX}"\nqos = {qos}'
    async with (
        picky(maximum_packet_size=LIMIT) as far,
        bridged(tmp_path, far.port, text) as near,
        wire(near.port, Connect("b")) as board,
    ):
        await near.logged("bridge cloud: connected")
        sizes = [LIMIT - 4, LIMIT, LIMIT + 1, LIMIT - 1]
        for properties, retain in SHAPES:
            for size in sizes:
                await say(board, sized(qos, size, properties, retain))
        await far.until(3 * len(SHAPES))
        sizes.remove(LIMIT + 1)
        assert [len(encode(packet, Version.V5)) for packet in far.sent] == sizes * len(SHAPES)
        found = await until_aside(tmp_path, len(SHAPES))
        assert [(item["topic"], item["qos"], item["retain"]) for item in found] == [
            (READING, qos, retain) for _, retain in SHAPES
        ]
        reason = "its packet has 2,001 bytes, but the other broker accepts 2,000 at most"
        assert {item["reason"] for item in found} == {reason}
        await until(tmp_path, waiting=0, sent=12, set_aside=4, aside=4, dropped=0)
        assert far.largest == LIMIT


@pytest.mark.mqtt("MQTT-3.2.2-15")
@pytest.mark.parametrize("limit", [6, 9, 20, 30])
async def test_no_packet_of_any_kind_is_larger_than_the_other_broker_takes(
    tmp_path: Path, limit: int
) -> None:
    """SUBSCRIBE, UNSUBSCRIBE, DISCONNECT and acknowledgements are not larger either."""
    text = f'{UP}\ndown = ["c/#", "commands/of/a/long/name/#"]'
    async with picky(maximum_packet_size=limit) as far:
        async with (
            bridged(tmp_path, far.port, text) as near,
            wire(near.port, Connect("b")) as board,
        ):
            await near.logged("refuses the subscription to commands/of/a/long/name/#")
            messages = [Publish(READING, b"21.5", 2, 1), Publish("sensors/", b"", 2, 2)]
            for message in messages:
                await say(board, message)
            far.send(Publish("c/1", b"", 2, 1))
            too_large = [it for it in messages if len(encode(it, Version.V5)) > limit]
            await until_aside(tmp_path, len(too_large))
            told = await until(tmp_path, waiting=0, received=1)
            assert "commands/of/a/long/name/#" in told["lacking"]
            # the other broker has lost its session: the bridge sends DISCONNECT
            far.forget()
            await near.logged("has forgotten the session")
            await until(tmp_path, error=None)
        assert 2 <= far.largest <= limit


@pytest.mark.parametrize("limit", [1, 5])
async def test_a_broker_that_accepts_no_message_at_all_is_distinguished(
    tmp_path: Path, limit: int
) -> None:
    async with (
        picky(maximum_packet_size=limit) as far,
        bridged(tmp_path, far.port, UP) as near,
        wire(near.port, Connect("b")) as board,
    ):
        await near.logged(f"accepts packets of {limit} bytes at most, too few for any message")
        await publish(board, READING, b"1", 2)
        await until(tmp_path, waiting=1, set_aside=0)
        assert far.largest <= limit


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_topic_that_is_too_long_with_its_prefix_is_set_aside(
    tmp_path: Path, qos: int
) -> None:
    """Only the bridge sets the message aside. Subscribers at this gateway get it."""
    prefix = "p" * 200 + "/"
    text = f'up = ["#"]\nprefix = "{prefix}"\nqos = {qos}'
    long = "é" * ((65_535 - 201) // 2)
    async with (
        picky() as far,
        bridged(tmp_path, far.port, text) as near,
        wire(near.port, Connect("b")) as board,
        wire(near.port, Connect("bystander")) as bystander,
    ):
        await near.logged("bridge cloud: connected")
        await subscribe(bystander, "#", qos)
        topics = [long, long + "x", "last"]
        for number, topic in enumerate(topics):
            await publish(board, topic, b"%d" % number, qos, number + 1)
        assert [(await take(bystander)).topic for _ in range(3)] == topics
        await far.until(2)
        assert far.payloads == [b"0", b"2"]
        (found,) = await until_aside(tmp_path, 1)
        assert found["topic"] == long + "x"
        assert "its topic has 65,536 bytes with the prefix" in found["reason"]
        assert (await until(tmp_path, waiting=0))["error"] is None


# -- reason codes


def refuse(payload: bytes, verdict: Verdict) -> Any:
    """Return a function that answers `verdict` to messages with this payload, and success to all
    others.
    """
    return lambda packet: verdict if packet.payload == payload else 0


def test_each_failure_is_judged_once() -> None:
    failures = {code for code in ReasonCode if code >= 0x80}
    assert OF_THE_MESSAGE.keys() | OF_ANYTHING_ELSE.keys() == failures
    assert not OF_THE_MESSAGE.keys() & OF_ANYTHING_ELSE.keys()


@pytest.mark.mqtt("MQTT-4.4.0-2")
@pytest.mark.parametrize("qos", [1, 2])
async def test_every_reason_code_sets_aside_or_waits(tmp_path: Path, qos: int) -> None:
    """The test tries two temporary refusals, and all other values of a byte, even if the standard
    does not allow them here. After a temporary refusal, the bridge sends the message again. It
    never sends a message again that was set aside.
    """
    later = {int(code) for code in OF_ANYTHING_ELSE}
    text = f"{UP}\nqos = {qos}"
    tried: dict[bytes, int] = {}

    def verdict(packet: Publish) -> int:
        code = int(packet.payload)
        tried[packet.payload] = tried.get(packet.payload, 0) + 1
        return 0 if code in later and tried[packet.payload] > 1 else code

    # each temporary refusal ends the connection, and the pause grows: two of them suffice
    codes = [code for code in range(256) if code not in later] + [0x97, 0x89]
    async with (
        picky() as far,
        bridged(tmp_path, far.port, text) as near,
        wire(near.port, Connect("b")) as board,
    ):
        far.verdict = verdict
        for number, code in enumerate(codes):
            await publish(board, READING, b"%d" % code, qos, number + 1)
        refused = [code for code in codes if code >= 0x80 and code not in later]
        found = await until_aside(tmp_path, len(refused))
        assert [int(base64.b64decode(item["payload"])) for item in found] == refused
        taken = [code for code in codes if code < 0x80 or code in later]
        await far.until(len(taken))
        assert sorted(map(int, far.payloads)) == sorted(taken)
        await until(tmp_path, waiting=0, refused=len(refused), sent=len(taken))
        assert all(times == 1 for payload, times in tried.items() if int(payload) not in later)
        reasons = {int(base64.b64decode(item["payload"])): item["reason"] for item in found}
        assert reasons[0x87].endswith("refuses a message for good: NOT_AUTHORIZED")
        assert len([line for line in near.log if "NOT_AUTHORIZED" in line]) == 1


@pytest.mark.parametrize("code", [ReasonCode.QUOTA_EXCEEDED, ReasonCode.SERVER_BUSY])
async def test_temporary_refusals_set_no_message_aside(tmp_path: Path, code: ReasonCode) -> None:
    async with (
        picky() as far,
        bridged(tmp_path, far.port, UP) as near,
        wire(near.port, Connect("b")) as board,
    ):
        await near.logged("bridge cloud: connected")
        far.verdict = lambda packet: int(code) if len(far.sent) == 1 else 0
        await publish(board, READING, b"1", 2, 1)
        await publish(board, READING, b"2", 2, 2)
        await far.until(2)
        assert sorted(far.payloads) == [b"1", b"2"]
        await until(tmp_path, waiting=0, set_aside=0, refused=0, sent=2)


# -- closed connections


@pytest.mark.parametrize(
    "end",
    ["close", Disconnect(ReasonCode.MALFORMED_PACKET), Disconnect(ReasonCode.PACKET_TOO_LARGE)],
    ids=lambda end: end if isinstance(end, str) else end.reason.name,
)
async def test_a_message_that_closes_the_connection_three_times_is_set_aside(
    tmp_path: Path, end: Verdict
) -> None:
    async with (
        picky() as far,
        bridged(tmp_path, far.port, UP) as near,
        wire(near.port, Connect("b")) as board,
    ):
        await near.logged("bridge cloud: connected")
        far.verdict = refuse(b"1", end)
        await publish(board, READING, b"1", 2, 1)
        await publish(board, READING, b"2", 2, 2)
        await far.until(1)
        assert far.payloads == [b"2"]
        (found,) = await until_aside(tmp_path, 1)
        assert "closes the connection when it gets the message, 3 times" in found["reason"]
        assert [packet.payload for packet in far.sent].count(b"1") == 3
        await until(tmp_path, waiting=0, error=None, sent=1, set_aside=1)


@pytest.mark.parametrize("qos", [1, pytest.param(2, marks=pytest.mark.soak)])
async def test_among_many_in_flight_the_guilty_ones_are_found(tmp_path: Path, qos: int) -> None:
    """The other broker closes the connection at three of forty messages. All others arrive; at QoS
    2, they arrive once.
    """
    poison = {b"7", b"8", b"31"}
    file = configuration(tmp_path, port := free_port(), f"{UP}\nqos = {qos}")
    async with (
        gateway(tmp_path, "--config", str(file)) as near,
        wire(near.port, Connect("b")) as board,
    ):
        for number in range(40):
            await publish(board, READING, b"%d" % number, qos, number + 1)
        async with picky(port) as far:
            far.verdict = lambda packet: "close" if packet.payload in poison else 0
            found = await until_aside(tmp_path, len(poison))
            assert {base64.b64decode(item["payload"]) for item in found} == poison
            await until(tmp_path, waiting=0, error=None)
            wanted = {b"%d" % number for number in range(40)} - poison
            assert set(far.payloads) == wanted
            if qos == 2:
                assert len(far.payloads) == len(wanted)


async def test_a_message_at_qos_0_that_closes_connections_costs_no_other_one(
    tmp_path: Path,
) -> None:
    async with (
        picky() as far,
        bridged(tmp_path, far.port, UP) as near,
        wire(near.port, Connect("b")) as board,
    ):
        await near.logged("bridge cloud: connected")
        far.verdict = refuse(b"bad", "close")
        for number in range(12):
            board.send(Publish(READING, b"bad"))
            await publish(board, READING, b"%d" % number, 2, number + 1)
            await asyncio.sleep(0.2)
        await far.until(12)
        await until(tmp_path, waiting=0, set_aside=0)
        assert set(far.payloads) == {b"%d" % number for number in range(12)}


async def test_a_broker_that_goes_down_takes_no_message_along(tmp_path: Path) -> None:
    """While a message is in flight, the other broker closes the connection, sends a DISCONNECT
    about its own state, or closes new connections before CONNACK. None of these sets the message
    aside.
    """
    async with (
        picky() as far,
        bridged(tmp_path, far.port, UP) as near,
        wire(near.port, Connect("b")) as board,
    ):
        await near.logged("bridge cloud: connected")
        ends: list[Verdict] = [
            "close",
            Disconnect(ReasonCode.SERVER_SHUTTING_DOWN),
            Disconnect(ReasonCode.SESSION_TAKEN_OVER),
            Disconnect(ReasonCode.SERVER_BUSY),
            "close",
        ]
        far.verdict = lambda packet: ends.pop(0) if ends else 0
        far.greet = lambda number: "close" if number in (3, 4) else None
        await publish(board, READING, b"1", 2, 1)
        await far.until(1, within=120)
        await until(tmp_path, waiting=0, set_aside=0, sent=1)


async def test_a_broker_that_closes_every_connection_takes_no_message_along(
    tmp_path: Path,
) -> None:
    """The other broker closes each connection, whether or not the message was sent over it. The
    bridge would set the message aside only if a connection without this message had lasted.
    """
    async with (
        picky() as far,
        bridged(tmp_path, far.port, UP) as near,
        wire(near.port, Connect("b")) as board,
    ):
        await near.logged("bridge cloud: connected")
        far.verdict = lambda packet: None
        await publish(board, READING, b"1", 2, 1)

        async def close_soon() -> None:
            while True:
                await asyncio.sleep(0.4)
                far.close()

        closing = asyncio.create_task(close_soon())
        await happens(lambda: far.connections >= 5)
        closing.cancel()
        far.verdict = lambda packet: 0
        await far.until(1)
        assert (await until(tmp_path, waiting=0))["set_aside"] == 0


async def test_filters_at_which_the_other_broker_closes_are_left_out(tmp_path: Path) -> None:
    """Messages in flight at such a close are not set aside."""
    text = f'{UP}\ndown = ["good/#", "bad/#"]'
    async with picky() as far:
        far.filters = lambda item: "close" if item.startswith("bad") else 0
        async with (
            bridged(tmp_path, far.port, text) as near,
            wire(near.port, Connect("b")) as board,
        ):
            await publish(board, READING, b"1", 2, 1)
            await far.until(1)
            told = await until(tmp_path, waiting=0, error=None, set_aside=0)
            assert told["lacking"] == ["bad/#"]
            assert any(
                isinstance(packet, Subscribe) and packet.subscriptions[0].topic_filter == "good/#"
                for packet in far.came
            )
            await near.logged(
                "refuses the subscription to bad/#: the other broker closed the connection at that"
            )


async def test_after_a_suspected_filter_messages_go_as_many_at_a_time_as_before(
    tmp_path: Path,
) -> None:
    text = f'{UP}\ndown = ["c/#"]'
    async with picky() as far:
        far.filters = lambda item: "close" if far.connections == 1 else 0
        async with (
            bridged(tmp_path, far.port, text) as near,
            wire(near.port, Connect("b")) as board,
        ):
            await happens(lambda: far.connections == 2)
            await until(tmp_path, error=None, lacking=[])
            far.verdict = lambda packet: None
            for number in range(5):
                await publish(board, READING, b"%d" % number, 2, number + 1)
            await happens(lambda: len(far.sent) == 5)


# -- mosquitto


@pytest.mark.parametrize(
    ("more", "topic", "payload", "reason"),
    [
        ("max_packet_size 2000", READING, bytes(2_000), "accepts 2,000 at most"),
        ("message_size_limit 1000", READING, bytes(1_001), "PACKET_TOO_LARGE"),
        ("", "sensors" + "/a" * 100, b"x", "closes the connection"),
        ("", "sensors/\x07bell", b"x", "closes the connection"),
    ],
    ids=["packet size", "message size", "levels", "control character"],
)
@pytest.mark.parametrize(("qos", "late"), [(1, False), (2, True)])
async def test_mosquitto_refuses_one_message_and_gets_the_next(
    tmp_path: Path, more: str, topic: str, payload: bytes, reason: str, late: bool, qos: int
) -> None:
    """late: the messages are published before the bridge connects."""
    far = Mosquitto(tmp_path / "far", f"allow_anonymous true\n{more}")
    text = f'{UP}\nprefix = "{"p/" * 101}"\nqos = {qos}'
    if not late:
        await far.start()
    try:
        async with (
            bridged(tmp_path, far.port, text) as near,
            wire(near.port, Connect("b")) as board,
        ):
            await near.logged("cannot be reached" if late else "bridge cloud: connected")
            for number, (name, body) in enumerate(
                [(READING, b"1"), (topic, payload), (READING, b"3")]
            ):
                await publish(board, name, body, qos, number + 1)
            if late:
                await far.start()
            (found,) = await until_aside(tmp_path, 1)
            assert found["topic"] == topic
            assert reason in found["reason"]
            await until(tmp_path, waiting=0, error=None, sent=2, set_aside=1)
    finally:
        await far.end(signal.SIGKILL)


# -- kills


@pytest.mark.parametrize("step", ["before the commit", "after", "between closes", "before PUBCOMP"])
async def test_a_kill_at_any_step_leaves_a_message_in_one_place(tmp_path: Path, step: str) -> None:
    """Afterwards, the message is either in the queue or set aside. At QoS 2, it reaches the other
    broker at most once.
    """
    port = free_port()
    file = configuration(tmp_path, port, UP, free_port())
    how: Verdict = "close" if step in ("between closes", "before PUBCOMP") else 0x87
    async with picky(port) as far:
        far.verdict = refuse(b"bad", how)
        far.silent = {2} if step == "before PUBCOMP" else set()
        async with (
            gateway(tmp_path, "--config", str(file)) as near,
            wire(near.port, Connect("b")) as board,
        ):
            await near.logged("bridge cloud: connected")
            for number, payload in enumerate([b"1", b"bad", b"3"]):
                await publish(board, READING, payload, 2, number + 1)
            wanted = {"between closes": 2, "before PUBCOMP": 3}.get(step, 1)
            await happens(lambda: [it.payload for it in far.sent].count(b"bad") >= wanted)
            if step in ("after", "before PUBCOMP"):
                await until_aside(tmp_path, 1)
            await near.end(signal.SIGKILL)
        far.silent.clear()
        async with gateway(tmp_path, "--config", str(file)):
            (found,) = await until_aside(tmp_path, 1)
            assert base64.b64decode(found["payload"]) == b"bad"
            await far.until(2)
            await until(tmp_path, waiting=0, error=None)
            await happens(lambda: not far.received)
            assert sorted(far.payloads) == [b"1", b"3"]
            assert len(aside(tmp_path)) == 1


async def test_kills_anywhere_lose_and_double_nothing(tmp_path: Path) -> None:
    """After kills at random moments, each message is either at the other broker once, or set aside
    once.
    """
    port, chance = free_port(), random.Random(7)
    file = configuration(tmp_path, port, UP, free_port())
    count = 60

    def verdict(packet: Publish) -> Verdict:
        number = int(packet.payload)
        return 0x87 if number % 5 == 0 else "close" if number == 31 else 0

    async with picky(port) as far:
        far.verdict = verdict
        sent = 0
        for _ in range(6):
            async with gateway(tmp_path, "--config", str(file)) as near:
                async with wire(near.port, Connect("b", clean_start=False)) as board:
                    for _ in range(count // 6):
                        await publish(board, READING, b"%d" % sent, 2, sent + 1)
                        sent += 1
                await asyncio.sleep(chance.uniform(0, 0.15))  # the moment of the kill
                await near.end(signal.SIGKILL)
        async with gateway(tmp_path, "--config", str(file)):
            await until(tmp_path, waiting=0, error=None)
            found = [int(base64.b64decode(item["payload"])) for item in aside(tmp_path)]
    assert sorted(found) == sorted({31, *range(0, count, 5)})
    assert sorted(map(int, far.payloads)) == [
        number for number in range(count) if number not in found
    ]


async def test_set_aside_messages_are_in_a_backup(tmp_path: Path) -> None:
    port = free_port()
    async with picky(port) as far:
        far.verdict = lambda packet: 0x87
        async with bridged(tmp_path, port, UP) as near, wire(near.port, Connect("b")) as board:
            await publish(board, READING, b"1", 2, 1)
            before = await until_aside(tmp_path, 1)
            archive, config = tmp_path / "site.owback", tmp_path / "gateway.toml"
            await asyncio.to_thread(command, "backup", str(archive), "--config", str(config))
        shutil.rmtree(tmp_path / "data")
        config.unlink()
        await asyncio.to_thread(command, "restore", str(archive), "--config", str(config))
        assert aside(tmp_path) == before
        far.verdict = lambda packet: 0
        async with gateway(tmp_path, "--config", str(config)) as near:
            await near.logged("bridge cloud: connected")
            await asyncio.to_thread(onceway, tmp_path, "bridge", "again", "cloud", "--all")
            await far.until(1)
            await until(tmp_path, aside=0, sent=1)


def command(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gateway", *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"ONCEWAY_PASSPHRASE": "correct horse battery"},
    )
    assert done.returncode == 0, done.stderr


# -- set-aside messages: limits and commands


async def test_set_aside_messages_are_shown_discarded_and_tried_again(tmp_path: Path) -> None:
    async with (
        picky() as far,
        bridged(tmp_path, far.port, UP) as near,
        wire(near.port, Connect("b")) as board,
    ):
        await near.logged("bridge cloud: connected")
        far.verdict = lambda packet: 0x87
        for number in range(4):
            await publish(board, READING, b"%d" % number, 2, number + 1)
        found = await until_aside(tmp_path, 4)
        text = await asyncio.to_thread(onceway, tmp_path, "bridge", "aside")
        assert f"cloud {found[0]['number']}  " in text
        assert f"{READING}  1 bytes, QoS 2: the other broker refuses" in text
        text = await asyncio.to_thread(onceway, tmp_path, "gateway", "status")
        assert "0 dropped, 0 received, 4 set aside" in text
        assert "bridge cloud: 4 messages are set aside. List them with their reasons" in text
        text = await asyncio.to_thread(
            onceway, tmp_path, "bridge", "discard", "cloud", str(found[0]["number"])
        )
        assert "1 message is deleted" in text
        far.verdict = lambda packet: 0
        await asyncio.to_thread(onceway, tmp_path, "bridge", "again", "cloud", "--all")
        await far.until(3)
        assert far.payloads == [b"1", b"2", b"3"]
        assert await asyncio.to_thread(aside, tmp_path) == []
        await until(tmp_path, waiting=0, sent=3)
        for words, what in (
            (("discard", "cloud"), "no message is named"),
            (("discard", "cloud", "1", "--all"), "no message is named"),
            (("discard", "cloud", "99"), "1 of 1 number: no such message is set aside"),
            (("again", "nobody", "--all"), "there is no such bridge"),
        ):
            error = await asyncio.to_thread(failing, tmp_path, *words)
            assert what in error


def failing(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "gateway", "bridge", *words, "--data", str(folder / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode
    return done.stderr


async def test_message_just_set_aside_is_tried_again(tmp_path: Path) -> None:
    """The command works even if the commit that sets the message aside is not on disk yet. It reads
    only the messages that it names.
    """
    async with (
        picky() as far,
        bridged(tmp_path, far.port, UP) as near,
        wire(near.port, Connect("b")) as board,
    ):
        await near.logged("bridge cloud: connected")
        for number in range(1, 21):
            far.verdict = lambda packet: 0x87
            await publish(board, READING, b"%d" % number, 2, number)
            await until(tmp_path, set_aside=number)
            far.verdict = lambda packet: 0
            (done,) = await asyncio.to_thread(
                lambda: control.ask(
                    tmp_path / "data", do="bridge-again", bridge="cloud", numbers=""
                )
            )
            assert done["done"] == 1
            await far.until(number)


def test_only_the_named_messages_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    with closing(open_store(folder, "site-1")) as database, database:
        database.executemany(
            "INSERT INTO aside (id, bridge, at, topic, qos, retain, properties, payload, reason)"
            " VALUES (?, ?, 0, 't', 0, 0, x'', x'', '')",
            [(1, "a"), (2, "a"), (3, "b"), (4, "a")],
        )
    assert [item.number for item in views.aside(folder, "a", [4, 2, 3, 9])] == [2, 4]
    assert [item.number for item in views.aside(folder, "a", [])] == []
    assert [item.number for item in views.aside(folder, "a")] == [1, 2, 4]


async def test_message_tried_again_keeps_its_properties(tmp_path: Path) -> None:
    """The message also keeps its topic, payload, QoS and RETAIN."""
    properties: Properties = {
        PropertyId.CONTENT_TYPE: "text/plain",
        PropertyId.USER_PROPERTY: [("seq", "17")],
        PropertyId.MESSAGE_EXPIRY_INTERVAL: 500,
    }
    for qos in (0, 1, 2):
        folder = tmp_path / str(qos)
        folder.mkdir()
        async with (
            picky(maximum_packet_size=100) as far,
            bridged(folder, far.port, f"{UP}\nqos = {qos}") as near,
            wire(near.port, Connect("b")) as board,
        ):
            await near.logged("bridge cloud: connected")
            packet = Publish(
                READING, bytes(100), qos, 1 if qos else 0, True, properties=dict(properties)
            )
            await say(board, packet)
            await until_aside(folder, 1)
            del far.properties[PropertyId.MAXIMUM_PACKET_SIZE]
            far.close()
            await near.logged("bridge cloud: connected after")
            await asyncio.to_thread(onceway, folder, "bridge", "again", "cloud", "--all")
            await far.until(1)
            # there may also be the bridge's mark
            (came,) = [one for one in far.taken if one.topic == READING]
            expiry = (came.properties or {}).pop(PropertyId.MESSAGE_EXPIRY_INTERVAL)
            assert (came.properties or {})[PropertyId.USER_PROPERTY].pop()[0] == MARK
            assert 440 <= expiry <= 500
            assert (came.topic, came.payload, came.qos, came.retain, came.properties) == (
                READING,
                bytes(100),
                qos,
                True,
                {key: properties[key] for key in list(properties)[:2]},
            )


@pytest.mark.parametrize(
    ("bound", "kept"),
    [
        ("aside_messages = 3", [4, 5, 6]),
        (f"aside_bytes = {3 * (len(READING) + 64 + 1)}", [4, 5, 6]),
    ],
    ids=["messages", "bytes"],
)
async def test_bound_of_set_aside_messages_outlives_a_restart(
    tmp_path: Path, bound: str, kept: list[int]
) -> None:
    port = free_port()
    text = f"{UP}\n{bound}"
    async with picky(port) as far:
        far.verdict = lambda packet: 0x87
        async with bridged(tmp_path, port, text) as near, wire(near.port, Connect("b")) as board:
            for number in range(5):
                await publish(board, READING, b"%d" % number, 2, number + 1)
            told = await until(tmp_path, set_aside=5)
            assert (told["aside"], told["aside_lost"]) == (3, 2)
            await near.logged("the oldest messages are lost")
            # wait until the list is on disk, because the gateway is killed next
            await happens(lambda: [row["number"] for row in aside(tmp_path)] == [3, 4, 5])
        async with bridged(tmp_path, port, text) as near, wire(near.port, Connect("b")) as board:
            assert (await until(tmp_path, error=None))["aside"] == 3
            for number in range(5, 7):
                await publish(board, READING, b"%d" % number, 2, number + 1)
            await until(tmp_path, aside=3, aside_lost=2)
            # the list is read from the disk, and appears there one commit after the counts
            await happens(
                lambda: [int(base64.b64decode(item["payload"])) for item in aside(tmp_path)] == kept
            )


async def test_a_message_beyond_the_whole_bound_is_counted_and_lost(tmp_path: Path) -> None:
    async with (
        picky() as far,
        bridged(tmp_path, far.port, f"{UP}\naside_bytes = 200") as near,
        wire(near.port, Connect("b")) as board,
    ):
        far.verdict = refuse(bytes(300), 0x99)
        await publish(board, READING, bytes(300), 2, 1)
        await publish(board, READING, b"2", 2, 2)
        await far.until(1)
        await until(tmp_path, waiting=0, set_aside=1, aside=0, aside_lost=1, sent=1)
        await near.logged("PAYLOAD_FORMAT_INVALID")


async def test_a_burst_is_one_line(tmp_path: Path) -> None:
    async with (
        picky() as far,
        bridged(tmp_path, far.port, UP) as near,
        wire(near.port, Connect("b")) as board,
    ):
        far.verdict = lambda packet: 0x87
        for number in range(50):
            await publish(board, f"{READING}/{number}", b"x", 2, number + 1)
        await until(tmp_path, set_aside=50)
        lines = [line for line in near.log if "is set aside" in line]
        assert len(lines) == 1
        assert f"{READING}/0" in lines[0]
        assert "NOT_AUTHORIZED" in lines[0]


async def test_set_aside_messages_of_a_removed_bridge_are_deleted(tmp_path: Path) -> None:
    async with picky() as far:
        far.verdict = lambda packet: 0x87
        async with (
            bridged(tmp_path, far.port, UP) as near,
            wire(near.port, Connect("b")) as board,
        ):
            await publish(board, READING, b"1", 2)
            await until_aside(tmp_path, 1)
    file = tmp_path / "gateway.toml"
    file.write_text(file.read_text().partition("[[bridge]]")[0])
    async with gateway(tmp_path, "--config", str(file)) as near:
        await near.logged("deleted 1 message that it had set aside")
        await until_aside(tmp_path, 0)


async def test_messages_are_discarded_while_no_gateway_runs(tmp_path: Path) -> None:
    async with picky() as far:
        far.verdict = lambda packet: 0x87
        async with (
            bridged(tmp_path, far.port, UP) as near,
            wire(near.port, Connect("b")) as board,
        ):
            for number in range(3):
                await publish(board, READING, b"%d" % number, 2, number + 1)
            found = await until_aside(tmp_path, 3)
    first = str(found[0]["number"])
    assert "only a running gateway can send" in failing(tmp_path, "again", "cloud", first)
    assert "1 message is deleted" in onceway(tmp_path, "bridge", "discard", "cloud", first)
    assert [item["number"] for item in aside(tmp_path)] == [item["number"] for item in found[1:]]
    assert "2 messages are deleted" in onceway(tmp_path, "bridge", "discard", "cloud", "--all")
    assert onceway(tmp_path, "bridge", "aside") == "no messages are set aside\n"
