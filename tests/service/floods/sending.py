"""Floods by publishers: messages, topic aliases, retained messages, wills, the spool and
the disk.
"""

import asyncio
from contextlib import suppress
from pathlib import Path

from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Puback,
    Publish,
    Pubrec,
    Will,
)
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from tests.service.floods.coming import users
from tests.service.floods.site import (
    KEPT,
    MEGABYTE,
    V5,
    Flood,
    Site,
    bytes_of,
    gone,
    pour,
    together,
)
from tests.service.test_bad_disk import build, faulty
from tests.service.wire import Wire

SOURCES = Path(__file__).parents[2] / "store"


async def answers(client: Wire, kind: type, count: int) -> list[int]:
    return [int((await client.take(kind, within=90)).reason) for _ in range(count)]


async def in_flight_to_us(site: Site) -> None:
    async def one(number: int) -> None:
        client = await site.client(f"c{number}", kept=True)
        packets = bytes_of(*(Publish("t", b"x", 2, at) for at in range(1, 2001)))
        await pour(client, packets)
        last = await client.take(object)
        while isinstance(last, Pubrec):  # messages whose commit was not finished have no PUBREC
            last = await client.take(object)
        assert last.reason == R.RECEIVE_MAXIMUM_EXCEEDED

    await together([one(number) for number in range(10)])


async def unreleased(site: Site) -> None:
    """Publish 1,000 messages at QoS 2 from each of 50 clients that never send PUBREL."""
    taken = []

    async def one(number: int) -> None:
        client = await site.client(f"c{number}", kept=True)
        sent = pour(client, bytes_of(*(Publish("t", b"x", 2, at) for at in range(1, 1001))))
        reasons, _ = await asyncio.gather(answers(client, Pubrec, 1000), sent)
        assert set(reasons) <= {0, R.QUOTA_EXCEEDED}
        taken.append(reasons.count(0))

    await together([one(number) for number in range(50)])
    assert 25_000 <= sum(taken) <= 25_000 + 50 * 16


async def aliases(site: Site) -> None:
    async def one(number: int) -> None:
        client = await site.client(f"c{number}")
        packets = [
            Publish(f"{number}/{alias}{'x' * 60_000}", b"", properties={P.TOPIC_ALIAS: alias})
            for alias in range(1, 65)
        ]
        with suppress(ConnectionError):
            await pour(client, bytes_of(*packets))
        await gone(client)

    await together([one(number) for number in range(50)])
    many = [await site.client(f"m{number}") for number in range(60)]
    for number, client in enumerate(many):
        name = f"{number}{'x' * 60_000}"
        client.send(Publish(name, b"", 1, 1, properties={P.TOPIC_ALIAS: 1}))
        packets = [Publish(f"{number}/{at}/{'x' * 400}", b"", 0) for at in range(1000)]
        with suppress(ConnectionError):
            await pour(client, bytes_of(*packets))
            await client.take(object)
    assert await site.count("disconnects_total", reason="quota_exceeded") >= 50 + 20


async def wills(site: Site) -> None:
    """Send 149 CONNECTs with wills of 1 MB, of which 66 fit. Wills of one address may fill four
    fifths of the room; a second address gets the remaining fifth.
    """
    properties = {P.USER_PROPERTY: [("k", "v" * 60_000)] * 16}
    will = Will("t", b"", properties=properties)

    async def one(number: int, address: str) -> int:
        connect = Connect(f"c{number}", V5, False, will=will, properties=KEPT)
        return int((await site.ask(connect, address))[1].reason)

    for address, numbers, taken in (
        ("127.0.0.1", range(100), 53),
        ("127.0.0.9", range(100, 149), 13),
    ):
        reasons = await together([one(number, address) for number in numbers], 10)
        assert (reasons.count(0), reasons.count(R.QUOTA_EXCEEDED)) == (taken, len(numbers) - taken)


async def spool(site: Site) -> None:
    """Publish to the spool from two addresses. A tenth of the spool is reserved for boards. The
    first address may have four fifths of the rest.
    """
    size, taken = 1000 + 7 + 64, 0
    for address, most in (("127.0.0.1", 720_000), ("127.0.0.9", 900_000)):
        client, _ = await site.ask(Connect(address, V5), address)
        packets = [Publish("spool/t", bytes(1000), 1, at % 1000 + 1) for at in range(5000)]
        await pour(client, bytes_of(*packets))
        reasons = await answers(client, Puback, 5000)
        taken += reasons.count(0)
        assert taken == most // size
        assert reasons.count(R.QUOTA_EXCEEDED) == 5000 - reasons.count(0)


async def disk(site: Site) -> None:
    (site.folder / "plan").write_text("enospc")
    client = await site.client("c")
    packets = [Publish("spool/t", bytes(10_000), 1, at % 1000 + 1) for at in range(1000)]
    sent = asyncio.create_task(pour(client, bytes_of(*packets)))
    await site.running.logged("accepts no data")
    other = await site.client("other")
    for number in range(100):
        other.send(Publish("spool/t", b"x", 1, number + 1))
    assert await answers(other, Puback, 100) == [R.QUOTA_EXCEEDED] * 100
    (site.folder / "plan").write_text("")
    await sent
    reasons = await answers(client, Puback, 1000)
    assert set(reasons) <= {0, R.QUOTA_EXCEEDED}  # 0: accepted before the disk was known to be full


async def pauses(site: Site) -> None:
    """Connect 400 clients whose messages the gateway refuses. The clients reconnect at once and
    continue to publish.
    """
    port = int((site.folder / "FEW").read_text())
    await spool_is_full(site)

    async def one(number: int) -> None:
        for attempt in range(2):
            client = await site.open(port=port)
            client.send(Connect(f"p{number}", V5))
            assert (await client.take(Connack)).reason == 0
            packets = [Publish("spool/t", bytes(1000), 1, at) for at in range(1, 201)]
            if not attempt:
                await pour(client, bytes_of(packets[0]))
                assert (await client.take(Disconnect)).reason == R.QUOTA_EXCEEDED
            else:
                with suppress(ConnectionError):
                    await pour(client, bytes_of(*packets))
                    client.send(Pingreq())

    await together([one(number) for number in range(400)])


async def spool_is_full(site: Site) -> None:
    client = await site.client("filler")
    packets = [Publish("spool/t", bytes(1000), 1, at) for at in range(1, 101)]
    await pour(client, bytes_of(*packets))
    assert R.QUOTA_EXCEEDED in await answers(client, Puback, 100)


def _faulty(folder: Path) -> dict[str, str]:
    return faulty(build("faults", folder), folder / "plan")


async def retained(site: Site) -> None:
    """Publish many, then large, retained messages from two addresses. The first address may have
    four fifths of the room.
    """
    for address, few, fewer in (("127.0.0.1", 800, 79), ("127.0.0.9", 200, 20)):
        client, _ = await site.ask(Connect(address, V5), address)
        many = [Publish(f"{address}/{at}", b"x", 1, at % 1000 + 1, True) for at in range(2000)]
        await pour(client, bytes_of(*many))
        assert (await answers(client, Puback, 2000)).count(0) == few
        large = [Publish(f"{address}/{at}", bytes(100_000), 1, at + 1, True) for at in range(200)]
        await pour(client, bytes_of(*large))
        assert (found := (await answers(client, Puback, 200)).count(0)) == fewer, found


async def log_lines(site: Site) -> None:
    """Send 20 messages that are refused from each of 2,000 clients."""

    async def one(number: int) -> None:
        client = await site.client(f"c{number}")
        client.send(*(Publish("$SYS/x", b"", 1, at) for at in range(1, 21)))
        assert await answers(client, Puback, 20) == [R.NOT_AUTHORIZED] * 20
        client.writer.close()

    await together([one(number) for number in range(2000)])
    assert await site.count("refused_total", request="publish", reason="not_authorized") == 40_000


async def quotas(site: Site) -> None:
    """Reach the limits of a single user: sessions, connections, messages and bytes in the spool."""
    reasons = []
    for number in range(100):
        _, connack = await site.ask(Connect(f"c{number}", V5, username="alice", password=b"right"))
        reasons.append(connack.reason)
    assert reasons == [0] * 50 + [R.QUOTA_EXCEEDED] * 50
    client, _ = await site.ask(Connect("c0", V5, username="alice", password=b"right"))
    packets = [Publish("spool/t", bytes(1000), 1, at % 1000 + 1) for at in range(5000)]
    await pour(client, bytes_of(*packets))
    reasons = await answers(client, Puback, 1500)
    assert reasons.count(0) == 500_000 // (1000 + 7 + 64)
    assert await site.count("rests_total") > 0


FLOODS = [
    Flood(
        "what one user has in all his sessions",
        quotas,
        "max_bytes = 1_000_000\n[[quota]]\nusers = ['alice']\nconnections = 50\n"
        "messages_per_s = 1000\nspool_share = 0.5\n",
        env=users,
        memory=50 * MEGABYTE,
        disk=3 * MEGABYTE,
        says="quota.",
        lines=4,
        counts="refused_total request=connect reason=quota_exceeded",
    ),
    Flood(
        "QoS 1 and 2 messages in flight towards us",
        in_flight_to_us,
        says="in flight",
        lines=10,
        counts="disconnects_total reason=receive_maximum_exceeded",
    ),
    Flood(
        "QoS 2 messages whose PUBREL has not come",
        unreleased,
        "[limits]\nmemory_bytes = 16_000_000\n",
        disk=4 * MEGABYTE,
        says="wait for their PUBREL: limits.memory_bytes",
        lines=35,
        counts="refused_total request=publish reason=quota_exceeded",
    ),
    Flood(
        "topic names that are remembered, and those behind aliases",
        aliases,
        "[limits]\nmemory_bytes = 16_000_000\n",
        memory=60 * MEGABYTE,
        says="topic aliases",
        lines=35,
        counts="disconnects_total reason=quota_exceeded",
    ),
    Flood(
        "wills",
        wills,
        "[limits]\nconnect_bytes = 1_000_000\n",
        memory=200 * MEGABYTE,
        disk=220 * MEGABYTE,
        says="limits.will_bytes",
        lines=2,
        counts="refused_total request=connect reason=quota_exceeded",
    ),
    Flood(
        "clients that are paused, and what they send meanwhile",
        pauses,
        "max_bytes = 50_000\n[[listener]]\nbind = '127.0.0.1:FEW-PORT'\nanonymous = true\n"
        "[limits]\nmemory_bytes = 16_000_000\n",
        memory=60 * MEGABYTE,
        disk=4 * MEGABYTE,
        says="nothing is read from the client for 1 to 30 s",
        lines=40,
        counts="turned_away_total bound=spool",
    ),
    Flood(
        "spool",
        spool,
        "max_bytes = 1_000_000\n",
        disk=6 * MEGABYTE,
        says="spool.max_bytes",
        lines=2,
        counts="refused_total request=publish reason=quota_exceeded",
    ),
    Flood(
        "the disk",
        disk,
        env=_faulty,
        memory=60 * MEGABYTE,
        disk=20 * MEGABYTE,
        says="disk",
        lines=5,
        counts="refused_total request=publish reason=quota_exceeded",
    ),
    Flood(
        "retained messages",
        retained,
        "[limits]\nretained = 1000\nretained_bytes = 10_000_000\n",
        memory=60 * MEGABYTE,
        disk=40 * MEGABYTE,
        says="limits.retained",
        lines=2,
        counts="refused_total request=publish reason=quota_exceeded",
    ),
    Flood(
        "log lines about a client",
        log_lines,
        says="left out",
        lines=40,
        counts="refused_total request=publish reason=not_authorized",
    ),
]
