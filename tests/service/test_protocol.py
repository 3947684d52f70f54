"""MQTT 5 with a running gateway, before and after the gateway is killed."""

import asyncio
import signal
from pathlib import Path

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from gateway.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Version,
    Will,
)
from gateway.mqtt.properties import Properties
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from tests.service.process import gateway
from tests.service.wire import Wire

FOREVER: Properties = {P.SESSION_EXPIRY_INTERVAL: 0xFFFF_FFFF}


def configured(folder: Path, text: str = "", trust: bool = True) -> tuple[Path, str, str]:
    """Return the data directory and arguments of a gateway with further lines of configuration.
    trust: the gateway relies on the clock of this machine.
    """
    path = folder / "gateway.toml"
    path.write_text(
        f'[gateway]\ndata = "{folder / "data"}"\ntrust_clock ='
        f' {str(trust).lower()}\n[[listener]]\nbind = "127.0.0.1:0"\n{text}'
    )
    return folder / "data", "--config", str(path)


async def connect(
    port: int,
    client_id: str,
    properties: Properties | None = None,
    *,
    clean: bool = False,
    will: Will | None = None,
) -> Wire:
    """Send CONNECT on a new connection, and return it. CONNACK is not read yet."""
    client = Wire(*await asyncio.open_connection("127.0.0.1", port), Version.V5)
    client.send(
        Connect(client_id, clean_start=clean, properties=FOREVER | (properties or {}), will=will)
    )
    return client


async def accepted(
    port: int, client_id: str, properties: Properties | None = None, **more: Will | bool | None
) -> Wire:
    client = await connect(port, client_id, properties, **more)  # type: ignore[arg-type]
    assert (await client.take(Connack)).reason == R.SUCCESS
    return client


def causes(packet: Publish) -> set[int]:
    """Return the subscription identifiers of a message."""
    return set((packet.properties or {}).get(P.SUBSCRIPTION_IDENTIFIER, ()))


async def ask(client: Wire, packet: Packet) -> int:
    """Send a SUBSCRIBE, or a PUBLISH at QoS 1 or 2. Return the reason code of the answer."""
    client.send(packet)
    if isinstance(packet, Subscribe):
        return (await client.take(Suback)).reasons[0]
    assert isinstance(packet, Publish)
    return (
        (await client.take(Puback)).reason
        if packet.qos == 1
        else (await client.take(Pubrec)).reason
    )


async def test_request_and_response_with_all_that_belongs_to_a_message(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        options = {
            "hostname": "127.0.0.1",
            "port": running.port,
            "protocol": aiomqtt.ProtocolVersion.V5,
        }
        async with aiomqtt.Client(**options) as server, aiomqtt.Client(**options) as client:
            await server.subscribe("requests/#", qos=1)
            await client.subscribe("answers/1", qos=1)
            properties = PahoProperties(PacketTypes.PUBLISH)
            properties.ResponseTopic, properties.CorrelationData, properties.ContentType = (
                "answers/1",
                b"\0\1",
                "text/plain",
            )
            properties.PayloadFormatIndicator, properties.UserProperty = (
                1,
                [("b", "1"), ("a", "2"), ("b", "3")],
            )
            await client.publish("requests/x", "question", qos=1, properties=properties)
            request = await asyncio.wait_for(anext(server.messages), 10)
            assert request.properties is not None
            assert request.properties.json() == properties.json()
            answer = PahoProperties(PacketTypes.PUBLISH)
            answer.CorrelationData = request.properties.CorrelationData
            await server.publish(
                request.properties.ResponseTopic, "answer", qos=1, properties=answer
            )
            got = await asyncio.wait_for(anext(client.messages), 10)
            assert (got.payload, got.properties and got.properties.CorrelationData) == (
                b"answer",
                b"\0\1",
            )
        assert await running.end() == 0


@pytest.mark.parametrize(
    ("number", "trust"),
    [(signal.SIGTERM, True), (signal.SIGKILL, False)],
    ids=["stopped", "killed without knowing the time"],
)
async def test_session_state_outlives_the_gateway(
    tmp_path: Path, number: signal.Signals, trust: bool
) -> None:
    arguments = configured(tmp_path, trust=trust)
    async with gateway(*arguments) as running:
        client = await accepted(running.port, "c", {P.RECEIVE_MAXIMUM: 2})
        wanted = (
            Subscription("own/#", 2, no_local=True),
            Subscription("kept", 1, retain_as_published=True),
            Subscription("#", 0),
        )
        for packet_id, item in enumerate(wanted, 1):
            assert (
                await ask(
                    client, Subscribe(packet_id, [item], {P.SUBSCRIPTION_IDENTIFIER: [packet_id]})
                )
                == item.qos
            )
        member = await accepted(running.port, "member")
        assert (
            await ask(member, Subscribe(1, [Subscription("$share/g/jobs", 1)])) == R.GRANTED_QOS_1
        )
        leaving = await accepted(
            running.port,
            "leaving",
            will=Will("will", b"gone", 1, properties={P.WILL_DELAY_INTERVAL: 3}),
        )
        for item in (client, member, leaving):
            item.writer.close()
        publisher = await accepted(running.port, "p")
        for packet_id, (topic, retain, properties) in enumerate(
            (
                ("own/1", False, {}),
                ("kept", True, {}),
                ("own/2", False, {P.MESSAGE_EXPIRY_INTERVAL: 1000}),
                ("own/3", False, {P.MESSAGE_EXPIRY_INTERVAL: 1}),
                ("jobs", False, {P.USER_PROPERTY: [("k", "v")]}),
            ),
            1,
        ):
            assert (
                await ask(
                    publisher,
                    Publish(topic, topic.encode(), 1, packet_id, retain, properties=properties),
                )
                == R.SUCCESS
            )
        publisher.writer.close()
        await running.end(number)
    await asyncio.sleep(1.5)  # own/3 must expire while no gateway runs
    async with gateway(*arguments) as running:
        client = await connect(running.port, "c", {P.RECEIVE_MAXIMUM: 2})
        assert (await client.take(Connack)).session_present
        first, second = await client.take(Publish), await client.take(Publish)
        assert (first.topic, first.retain, causes(first)) == ("own/1", False, {1, 3})
        assert (second.topic, second.retain, causes(second)) == ("kept", True, {2, 3})
        client.send(Puback(first.packet_id))
        third = await client.take(Publish)
        assert third.topic == "own/2", "what has expired while the gateway was off is not sent"
        left = (third.properties or {})[P.MESSAGE_EXPIRY_INTERVAL]
        assert 900 <= left <= 999
        client.send(Puback(second.packet_id), Puback(third.packet_id))
        client.send(Publish("own/4", b"", 1, 9))
        # the will comes as well, because its delay has passed
        came = [await client.take(Packet) for _ in range(3)]
        assert [item.reason for item in came if isinstance(item, Puback)] == [R.SUCCESS]
        said = {item.topic: item for item in came if isinstance(item, Publish)}
        assert causes(said["own/4"]) == {3}, "no local holds for the other subscription"
        assert said["will"].payload == b"gone"
        member = await connect(running.port, "member")
        assert (await member.take(Connack)).session_present
        job = await member.take(Publish)
        assert (job.payload, job.properties) == (b"jobs", {P.USER_PROPERTY: [("k", "v")]})
        for item in (client, member):
            item.writer.close()
        assert await running.end() == 0


async def test_both_receive_maximums_hold_across_reconnects_and_a_kill(tmp_path: Path) -> None:
    arguments = configured(tmp_path, "receive_maximum = 3\n")
    async with gateway(*arguments) as running:
        client = await connect(running.port, "c", {P.RECEIVE_MAXIMUM: 2})
        assert ((await client.take(Connack)).properties or {})[P.RECEIVE_MAXIMUM] == 3
        assert await ask(client, Subscribe(1, [Subscription("t", 2)])) == R.GRANTED_QOS_2
        publisher = await accepted(running.port, "p", clean=True)
        for packet_id in (1, 2, 3):
            assert await ask(publisher, Publish("t", b"%d" % packet_id, 2, packet_id)) == R.SUCCESS
        publisher.send(Publish("t", b"4", 2, 4))
        assert (await publisher.take(Disconnect)).reason == R.RECEIVE_MAXIMUM_EXCEEDED
        sent = [(await client.take(Publish)).payload for _ in range(2)]
        client.send(Pubrec(1))
        await client.take(Pubrel)
        client.writer.close()
        await running.end(signal.SIGKILL)
    async with gateway(*arguments) as running:
        client = await connect(running.port, "c", {P.RECEIVE_MAXIMUM: 2})
        assert (await client.take(Connack)).session_present
        assert (await client.take(Pubrel)).packet_id == 1
        again = await client.take(Publish)
        assert (again.payload, again.dup) == (b"2", True)
        with pytest.raises(TimeoutError):
            await client.take(Publish, within=0.3)
        client.send(Pubcomp(1))
        third = await client.take(Publish)
        assert third.payload == b"3"
        assert sent == [b"1", b"2"]
        client.writer.close()
        publisher = await connect(running.port, "p")
        assert (await publisher.take(Connack)).session_present
        assert await ask(publisher, Publish("t", b"3", 2, 3, dup=True)) == R.SUCCESS
        publisher.send(Pubrel(3), Pubrel(7))
        assert [(await publisher.take(Pubcomp)).reason for _ in range(2)] == [
            R.SUCCESS,
            R.PACKET_IDENTIFIER_NOT_FOUND,
        ]
        publisher.writer.close()
        assert await running.end() == 0


async def test_limits_of_a_connection_are_reported_and_kept_on_both_sides(tmp_path: Path) -> None:
    text = (
        "[limits]\nkeep_alive_s = 1\ntopic_aliases = 2\npacket_bytes = 5000\nsession_expiry_s ="
        " 60\n"
    )
    async with gateway(*configured(tmp_path, text)) as running:
        client = await connect(
            running.port, "c", {P.MAXIMUM_PACKET_SIZE: 200, P.TOPIC_ALIAS_MAXIMUM: 1}
        )
        told = (await client.take(Connack)).properties or {}
        wanted = {
            P.SERVER_KEEP_ALIVE: 1,
            P.TOPIC_ALIAS_MAXIMUM: 2,
            P.MAXIMUM_PACKET_SIZE: 5000,
            P.SESSION_EXPIRY_INTERVAL: 60,
        }
        assert wanted.items() <= told.items()
        assert await ask(client, Subscribe(1, [Subscription("t/#", 1)])) == R.GRANTED_QOS_1
        other = await accepted(running.port, "other")
        assert await ask(other, Subscribe(1, [Subscription("t/#", 1)])) == R.GRANTED_QOS_1
        publisher = await accepted(running.port, "p")
        publisher.send(
            Publish("t/long/name", b"1", 1, 1, properties={P.TOPIC_ALIAS: 2}),
            Publish("", b"2" * 300, 1, 2, properties={P.TOPIC_ALIAS: 2}),
            Publish("", b"3", 1, 3, properties={P.TOPIC_ALIAS: 2}),
        )
        got = [await client.take(Publish) for _ in range(2)]
        assert [packet.payload for packet in got] == [
            b"1",
            b"3",
        ], "too large for this one costs this one alone"
        assert [(packet.topic, packet.properties) for packet in got] == [
            ("t/long/name", {P.TOPIC_ALIAS: 1}),
            ("", {P.TOPIC_ALIAS: 1}),
        ]
        assert [len((await other.take(Publish)).payload) for _ in range(3)] == [1, 300, 1]
        for _ in range(3):
            await publisher.take(Puback)
        publisher.send(Publish("t", b"", properties={P.TOPIC_ALIAS: 3}))
        assert (await publisher.take(Disconnect)).reason == R.TOPIC_ALIAS_INVALID
        assert (await client.take(Disconnect)).reason == R.KEEP_ALIVE_TIMEOUT
        method = Wire(*await asyncio.open_connection("127.0.0.1", running.port), Version.V5)
        method.send(Connect("c", properties={P.AUTHENTICATION_METHOD: "SCRAM"}))
        assert (await method.take(Connack)).reason == R.BAD_AUTHENTICATION_METHOD
        auth = await accepted(running.port, "auth")
        auth.send(Auth(R.REAUTHENTICATE))
        assert (await auth.take(Disconnect)).reason == R.PROTOCOL_ERROR
        for item in (client, other, publisher, method, auth):
            item.writer.close()
        assert await running.end() == 0
