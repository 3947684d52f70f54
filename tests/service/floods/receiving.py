"""Floods by receivers: many subscriptions, long queues, many retained messages, and output that a
client does not read.
"""

import asyncio
import socket
import ssl

from gateway.mqtt.packets import (
    Connect,
    Disconnect,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from gateway.mqtt.reason import ReasonCode as R
from tests.service.floods.coming import listener, with_tls
from tests.service.floods.sending import answers
from tests.service.floods.site import (
    MEGABYTE,
    V5,
    Flood,
    Site,
    bytes_of,
    drink,
    pour,
    together,
)


def _subscribe(filters: list[str], qos: int = 0) -> bytes:
    return bytes_of(Subscribe(1, [Subscription(item, qos) for item in filters]))


async def subscriptions(site: Site) -> None:
    """Subscribe to `r/#` 20,000 times in one packet, with 100 retained messages; to 5,000 filters
    with 120 levels; to more filters than a session may have; and to 16,000 filters that a long ACL
    forbids.
    """
    publisher = await site.client("publisher")
    publisher.send(*(Publish(f"r/{at}", bytes(1000), 1, at + 1, True) for at in range(100)))
    await answers(publisher, Puback, 100)
    client = await site.client("c")
    await pour(client, _subscribe(["r/#"] * 20_000))
    assert (await client.take(Suback)).reasons == [0] * 20_000
    assert len({(await _message(client)).topic for _ in range(100)}) == 100

    async def deep(number: int) -> int:
        one = await site.client(f"deep {number}")
        granted = 0
        for part in range(10):
            levels = [
                "/".join(["+" if (at >> bit) & 1 else "x" for bit in range(8)] + ["+"] * 112)
                for at in range(part * 10 + number * 100, part * 10 + number * 100 + 100)
            ]
            await pour(one, _subscribe(levels))
            granted += (await one.take(Suback)).reasons.count(0)
        return granted

    await together([deep(number) for number in range(5)])
    name = "/".join(["x"] * 120)
    for at in range(50):
        publisher.send(Publish(name, b"x", 1, at + 1))
    await answers(publisher, Puback, 50)
    await pour(client, _subscribe([f"own/{at}" for at in range(2000)]))
    reasons = (await client.take(Suback)).reasons
    assert reasons.count(R.QUOTA_EXCEEDED) == 1001
    stranger = await site.client("stranger")
    await pour(stranger, _subscribe([f"{at:x}" for at in range(16_000)]))
    reasons = (await stranger.take(Suback)).reasons
    assert (reasons.count(R.NOT_AUTHORIZED), reasons.count(R.QUOTA_EXCEEDED)) == (1000, 15_000)


async def _message(client: object) -> Publish:
    return await client.take(Publish)  # type: ignore[attr-defined, no-any-return]


async def retained_messages(site: Site) -> None:
    """Subscribe with 400 filters, each of which matches 1 MB of retained messages, from 20 clients
    that read nothing. Then subscribe with 400 filters and 20,000 retained messages from one client
    that reads.
    """
    publisher = await site.client("publisher")
    packets = [Publish(f"big/{at}", bytes(100_000), 1, at + 1, True) for at in range(10)]
    await pour(publisher, bytes_of(*packets))
    await answers(publisher, Puback, 10)
    deaf = [await site.client(f"deaf {number}") for number in range(20)]
    for client in deaf:
        await pour(client, _subscribe(["#"] * 400))
    small = [Publish(f"a/{at}/z", b"x", 1, at % 1000 + 1, True) for at in range(20_000)]
    for at in range(0, 20_000, 1000):
        await pour(publisher, bytes_of(*small[at : at + 1000]))
        await answers(publisher, Puback, 1000)
    client = await site.client("c")
    await pour(client, _subscribe([f"{'+' if at else 'a'}/+/{at or 'z'}" for at in range(400)]))
    assert len((await client.take(Suback)).reasons) == 400
    for _ in range(20_000):
        await _message(client)


async def queues(site: Site) -> None:
    """Send more messages than a queue holds to one disconnected session, and to 20 connected
    clients that acknowledge nothing. The sessions of ten of these clients end with the connection.
    """
    away = await site.subscriber("away", "t", kept=True)
    away.writer.close()
    deaf = [await site.subscriber(f"deaf {at}", "t", kept=at % 2 == 0) for at in range(20)]
    publisher = await site.client("publisher")
    for at in range(0, 12_000, 1000):
        await pour(
            publisher, bytes_of(*(Publish("t", b"x" * 100, 1, at + 1) for at in range(1000)))
        )
        await answers(publisher, Puback, 1000)
    packets = [packet async for packet in _until_told(deaf[0])]
    assert packets[-1].reason == R.QUOTA_EXCEEDED  # type: ignore[attr-defined]
    assert await site.count("messages_dropped_total", reason="queue_full") >= 21 * 10_000


async def _until_told(client: object) -> object:
    while True:
        packet = await client.take(object)  # type: ignore[attr-defined]
        yield packet
        if isinstance(packet, Disconnect):
            return


async def in_flight(site: Site) -> None:
    clients = [await site.subscriber(f"c{at}", "t", qos=1 + at % 2, kept=True) for at in range(20)]
    publisher = await site.client("publisher")
    for _ in range(3):
        await pour(
            publisher, bytes_of(*(Publish("t", bytes(100), 2, at + 1) for at in range(1000)))
        )
        await pour(publisher, bytes_of(*(Pubrel(at + 1) for at in range(1000))))
        packets = [await publisher.take(object) for _ in range(2000)]  # type: ignore[type-var]
        assert sum(isinstance(packet, Pubcomp) for packet in packets) == 1000
    assert await site.count("inflight_messages") <= 20 * 1024 + 2
    for client in clients:
        data = b""
        while data.count(bytes(100)) < 1024:
            data += (part := await client.reader.read(1 << 16))
            assert part, "the gateway closed the connection"
        data += await drink(client)  # no further messages arrive
        assert data.count(bytes(100)) == 1024


async def output(site: Site) -> None:
    """Send PINGREQ and PUBREL without end from clients that read nothing. Publish at QoS 0 while
    other packets wait for the disk. Send messages to clients that read nothing, until the limit of
    unread bytes of all clients is exceeded.
    """
    deaf = [await site.client(f"deaf {at}") for at in range(5)]

    async def ask(client: object, data: bytes) -> None:
        try:
            await pour(client, data, 2)  # type: ignore[arg-type]
        except TimeoutError:
            return
        raise AssertionError("what is not read is still answered")

    pings, releases = bytes_of(Pingreq()) * 10_000_000, bytes_of(Pubrel(7)) * 3_000_000
    await asyncio.gather(
        *(ask(client, (pings, releases)[at % 2]) for at, client in enumerate(deaf))
    )
    slow = [await site.subscriber(f"slow {at}", "flood", qos=0, kept=True) for at in range(40)]
    publisher = await site.client("publisher")
    data = bytes_of(*(Publish("flood", bytes(10_000)) for _ in range(500)))
    for _ in range(4):
        for client in slow[:3]:
            client.send(Publish("spool/t", b"x", 1, 1))
        await pour(publisher, data)
    publisher.send(Publish("x", b"", 1, 1))
    await answers(publisher, Puback, 1)
    assert await site.count("messages_dropped_total", reason="slow_receiver") > 0
    assert await site.count("disconnects_total", reason="quota_exceeded") > 0


async def large_payloads(site: Site) -> None:
    """Send three messages of 900 kB to 1,000 clients that read nothing, and to 20 that read."""
    packets = bytes_of(Connect("", V5), Subscribe(1, [Subscription("big", 0)]))
    port = int((site.folder / "TLS").read_text())
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    def come(tls: bool) -> socket.socket:
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.settimeout(60)
        peer.connect(("127.0.0.1", port if tls else site.port))
        if tls:
            peer = trusting.wrap_socket(peer)
        peer.sendall(packets)
        assert peer.recv(1)
        return peer

    peers = [await asyncio.to_thread(come, number % 10 == 0) for number in range(1000)]
    readers = [await site.subscriber(f"r{number}", "big", qos=0) for number in range(20)]
    publisher = await site.client("publisher")
    for number in range(3):
        await pour(publisher, bytes_of(Publish("big", bytes(900_000), 1, number + 1)))
        for reader in readers:
            assert (await reader.take(Publish, within=60)).payload == bytes(900_000)
    for peer in peers:
        peer.close()


async def causes(site: Site) -> None:
    """Disconnect 100 sessions. Each has a will, and all sessions have subscribed to these wills.
    Each queue holds only two messages.
    """
    will = Will("wills", b"gone", 1)
    clients = []
    for number in range(100):
        client = await site.client(f"c{number}", kept=True, will=will)
        client.send(Subscribe(1, [Subscription("wills", 1), Subscription("$share/g/jobs", 1)]))
        await client.take(Suback)
        clients.append(client)
    for client in clients:
        client.writer.close()
    publisher = await site.client("publisher")
    packets = bytes_of(*(Publish("jobs", b"x", 1, at + 1) for at in range(500)))
    await pour(publisher, packets)
    assert await answers(publisher, Puback, 500) == [0] * 500
    for _ in range(1000):
        if await site.count("sessions", state="away") <= 2:
            break
        await asyncio.sleep(0.02)
    assert await site.count("sessions", state="away") <= 2


async def turns(site: Site) -> None:
    """Publish 2,000 small messages at QoS 0 from each of five clients. Each message has its own
    topic and goes to 300 subscribers.
    """
    for at in range(300):
        reader = (await site.subscriber(f"s{at}", "#", qos=0)).reader
        reader._limit = 1 << 30  # type: ignore[attr-defined]
    publishers = [await site.client(f"p{at}") for at in range(5)]
    packets = [bytes_of(*(Publish(f"t/{at}/{i}", b"") for i in range(2000))) for at in range(5)]
    await asyncio.gather(*map(pour, publishers, packets))
    for publisher in publishers:
        publisher.send(Publish("x", b"", 1, 1))
        await answers(publisher, Puback, 1)


FLOODS = [
    Flood(
        "time of the event loop",
        turns,
        "[limits]\nmemory_bytes = 40_000_000\n",
        memory=100 * MEGABYTE,
        says="",
        lines=31,
    ),
    Flood(
        "subscriptions",
        subscriptions,
        "".join(f'[[acl]]\nusers = ["user {at}"]\nread = ["{at}/#"]\n' for at in range(100))
        + '[[acl]]\nclients = ["guard", "publisher", "c", "deep *"]\nwrite = ["#"]\nread = ["#"]\n',
        memory=80 * MEGABYTE,
        disk=2 * MEGABYTE,
        says="limits.subscriptions",
        lines=8,
        counts="refused_total request=subscribe reason=quota_exceeded",
    ),
    Flood(
        "retained messages for a new subscription",
        retained_messages,
        memory=120 * MEGABYTE,
        disk=20 * MEGABYTE,
    ),
    Flood(
        "queues",
        queues,
        "[limits]\nqueue_messages = 10_000\n",
        memory=150 * MEGABYTE,
        disk=60 * MEGABYTE,
        says="limits.queue_messages",
        lines=22,
        counts="disconnects_total reason=quota_exceeded",
    ),
    Flood(
        "QoS 1 and 2 messages in flight towards a client",
        in_flight,
        memory=60 * MEGABYTE,
        disk=20 * MEGABYTE,
    ),
    Flood(
        "a large payload (16 kB) on its way to many",
        large_payloads,
        listener(
            "TLS",
            "anonymous = true",
            'tls = { certificate = "FOLDER/gateway.pem", key = "FOLDER/gateway.key" }',
        ),
        env=with_tls,
        memory=64 * MEGABYTE,
        disk=2 * MEGABYTE,
    ),
    Flood(
        "output that the client has not taken, or that waits for the disk",
        output,
        "[limits]\nmemory_bytes = 40_000_000\n",
        memory=200 * MEGABYTE,
        disk=2 * MEGABYTE,
        says="reads too slowly",
        lines=42,
        counts="disconnects_total reason=quota_exceeded",
    ),
    Flood(
        "what a message causes",
        causes,
        "[limits]\nqueue_messages = 2\n",
        disk=2 * MEGABYTE,
        says="the session ends",
        lines=110,
        counts="messages_dropped_total reason=queue_full",
    ),
]
