"""Floods of new connections: sockets, TLS handshakes, CONNECT packets and passwords."""

import asyncio
import base64
import os
import ssl
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from gateway.access.logins import MOST_OF_ONE
from gateway.access.users import Users
from gateway.links.handshake import Hello
from gateway.links.proxy_header import SIGNATURE
from gateway.mqtt.packets import Connect, Publish, Subscribe, Subscription, Will
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from gateway.web.page import MOST_STREAMS
from tests.links.board import Pty
from tests.links.certificates import Authority
from tests.service.floods.site import (
    MEGABYTE,
    V5,
    Flood,
    Site,
    bytes_of,
    files_of,
    gone,
    pour,
    together,
)
from tests.web.page import browser


async def _reasons(site: Site, connects: list[Connect], address: str = "127.0.0.1") -> Counter[int]:
    async def one(connect: Connect) -> int:
        client, connack = await site.ask(connect, address)
        if connack.reason:
            client.writer.close()
        return int(connack.reason)

    return Counter(await together([one(item) for item in connects]))  # type: ignore[arg-type]


async def connections(site: Site) -> None:
    silent = [await site.open() for _ in range(150)]
    assert [await gone(item) for item in silent[:50]] == [b""] * 50
    assert await site.count("disconnects_total", reason="server_busy") == 50
    reasons = await _reasons(site, [Connect(f"c{number}") for number in range(150)])
    assert reasons == {0: 99, R.QUOTA_EXCEEDED: 51}


async def connects(site: Site) -> None:
    reasons = await _reasons(site, [Connect(f"c{number}") for number in range(500)], "127.0.0.2")
    assert reasons[R.CONNECTION_RATE_EXCEEDED] > 200
    assert reasons[0] + reasons[R.CONNECTION_RATE_EXCEEDED] == 500
    await site.client("from elsewhere")


async def identifiers(site: Site) -> None:
    """Send 2,724 CONNECTs with client identifiers of 65 kB. Then send CONNECT, SUBSCRIBE and
    PUBLISH packets that are larger than the limit.
    """
    long = [Connect(f"{number}{'x' * 65_000}") for number in range(2724)]
    assert await _reasons(site, long) == {R.CLIENT_IDENTIFIER_NOT_VALID: 2724}
    properties = {P.USER_PROPERTY: [("k", "v" * 60_000)] * 16}
    large = Connect("c", properties=properties)  # a packet of 960 kB
    for _ in range(50):
        client = await site.open()
        client.send(large)
        # TCP may reset the connection because of unread bytes, and lose the CONNACK
        assert (await gone(client))[3:4] in (b"", bytes([R.PACKET_TOO_LARGE]))
    assert await site.count("refused_total", request="connect", reason="packet_too_large") == 50
    request = bytes_of(Subscribe(1, [Subscription("a")] * 200_000))
    message = bytes_of(Publish("t", b"", 1, 1, properties={P.USER_PROPERTY: [("", "")] * 190_000}))
    for number in range(10):
        for data in (request, message):
            client = await site.client(f"c{number}")
            with suppress(ConnectionError):
                await pour(client, data)
            await gone(client)
    assert await site.count("disconnects_total", reason="packet_too_large") == 10
    assert await site.count("disconnects_total", reason="quota_exceeded") == 10


async def due(site: Site) -> None:
    """Let 3,000 sessions of disconnected clients expire in the same second. Their wills go to 100
    subscribers.
    """
    for number in range(100):
        await site.subscriber(f"s{number}", "wills", qos=0)
    will = Will("wills", b"x")
    properties = {P.SESSION_EXPIRY_INTERVAL: 1}

    async def one(number: int) -> None:
        connect = Connect(f"c{number}", V5, False, will=will, properties=properties)
        client, _ = await site.ask(connect)
        client.writer.close()

    await together([one(number) for number in range(3000)])
    for _ in range(1000):
        if await site.count("sessions", state="away") == 0:
            break
        await asyncio.sleep(0.02)
    assert await site.count("sessions", state="away") == 0


async def sessions(site: Site) -> None:
    """Open sessions from two addresses until no more are allowed. The first address gets four
    fifths of all sessions, including the test's other client; the second address gets the rest.
    """

    async def one(name: str, address: str) -> int:
        properties = {P.SESSION_EXPIRY_INTERVAL: 0xFFFF_FFFF}
        client, connack = await site.ask(Connect(name, V5, False, properties=properties), address)
        client.writer.close()
        return int(connack.reason)

    for address, most in (("127.0.0.1", 399), ("127.0.0.9", 100)):
        calls = [one(f"{address}-{number}", address) for number in range(600)]
        reasons = Counter(await together(calls))  # type: ignore[arg-type]
        assert reasons == {0: most, R.QUOTA_EXCEEDED: 600 - most}


async def passwords(site: Site) -> None:
    async def guess(number: int) -> int:
        connect = Connect(f"g{number}", username="nobody", password=b"%d" % number)
        return int((await site.ask(connect, "127.0.0.3"))[1].reason)

    guesses = asyncio.gather(*(guess(number) for number in range(300)))
    await site.running.logged("refused")
    _, connack = await site.ask(Connect("a", username="alice", password=b"right"))
    assert connack.reason == 0
    reasons = Counter(await guesses)
    assert reasons[R.SERVER_BUSY] >= 300 - 2 * MOST_OF_ONE
    assert sum(reasons.values()) == 300


async def before_the_answer(site: Site) -> None:
    async def one(number: int) -> None:
        client = await site.open("127.0.0.3")
        client.send(Connect(f"g{number}", username="nobody", password=b"x"))
        await pour(client, bytes_of(Publish("t", bytes(60_000))) * 4)
        await gone(client)

    await asyncio.gather(*(one(number) for number in range(100)))


def users(folder: Path) -> dict[str, str]:
    Users(folder / "data" / "users").add("alice", "right")
    return {}


async def partial(site: Site) -> None:
    """Send most of a packet of 900 kB from each of 60 clients, and most of a CONNECT on 60 other
    connections.
    """
    packet = bytes_of(Publish("t", bytes(900_000), 1, 1))
    clients = [await site.client(f"c{number}") for number in range(60)]
    for client in clients:
        client.writer.write(packet[:-1])
    will = Will("t", bytes(60_000))
    connect = bytes_of(Connect("c", will=will))
    for _ in range(60):
        (await site.open()).writer.write(connect[:-1])
    await site.running.logged("incomplete packets")
    ended = 0
    for client in clients:
        client.writer.write(packet[-1:])
        ended += b"complete" in await gone_or_answered(client)
    assert 30 <= ended <= 42  # 20 of 54 MB must go


async def gone_or_answered(client: object) -> bytes:
    try:
        return await asyncio.wait_for(client.reader.read(1 << 16), 20)  # type: ignore[attr-defined]
    except ConnectionError:
        return b"complete"


_MASK = bytes(4)


def _frame(size: int, final: bool) -> bytes:
    """Return a WebSocket binary frame from a client with a payload of zeros (RFC 6455, section
    5.2). final: the FIN bit.
    """
    return bytes([0x82 if final else 0x02, 0xFF]) + size.to_bytes(8, "big") + _MASK + bytes(size)


async def fragments(site: Site) -> None:
    """Open 300 WebSocket connections. Send 900 kB of an unfinished message on each, before any
    CONNECT.
    """
    port = _port(site, "WEB")
    frame = _frame(900_000, False)
    key = base64.b64encode(os.urandom(16)).decode()
    head = (
        f"GET /mqtt HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Protocol: mqtt\r\n\r\n"
    ).encode()

    ends = []

    async def one() -> None:
        client = await site.open(port=port)
        client.writer.write(head)
        await client.reader.readuntil(b"\r\n\r\n")
        with suppress(ConnectionError):
            await pour(client, frame)
        ends.append(asyncio.create_task(gone(client)))

    await together([one() for _ in range(300)])
    async with asyncio.timeout(20):
        while sum(end.done() and not end.result() for end in ends) < 285:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    for end in ends:
        end.cancel()


async def upgrades(site: Site) -> None:
    """Open 1,500 connections to a WebSocket listener, and send nothing."""
    await _crowd(site, _port(site, "WEB"))


async def handshakes(site: Site) -> None:
    """Open 1,500 connections to a TLS listener and 1,500 to one for proxies. Send nothing, neither
    a TLS handshake nor the address of a client.
    """
    await _crowd(site, _port(site, "TLS"), _port(site, "PROXY"))


async def _crowd(site: Site, *ports: int) -> None:
    for port in ports:
        for number in range(1500):
            await site.open(f"127.0.0.{2 + number % 3}", port)
    async with asyncio.timeout(30):  # wait until the oldest connections are closed
        while files_of(site.running.process.pid) > 1000 * len(ports) + 60:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _port(site: Site, name: str) -> int:
    return int((site.folder / name).read_text())


def with_tls(folder: Path) -> dict[str, str]:
    authority = Authority(folder)
    certificate, key = authority.issue("gateway")
    os.replace(certificate, folder / "gateway.pem")
    os.replace(key, folder / "gateway.key")
    return {}


HALVES = [
    b"GET /api/me HTTP/1.1\r\nHost: x\r\n",
    b"POST /api/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Content-Length: 50\r\n\r\n{",
]


async def requests_and_streams(site: Site) -> None:
    """Send 600 incomplete HTTP requests to the page and to the metrics, and guess passwords. Let a
    viewer open as many streams and sessions as possible. Meanwhile, an operator must be able to log
    in and use the page.
    """
    port, web = _port(site, "WEB"), int(site.web.rpartition(":")[2])
    url = f"http://127.0.0.1:{port}"
    for number in range(600):
        half = await site.open(f"127.0.0.{2 + number % 3}", port if number % 3 else web)
        half.writer.write(HALVES[number % 2])
    async with AsyncExitStack() as stack:
        viewer, operator = [await stack.enter_async_context(browser(url)) for _ in range(2)]
        for number in range(60):
            await viewer.login(f"nobody-{number % 3}", "wrong")
        for _ in range(20):
            assert await viewer.login("lena", "right") == 200
        statuses = Counter()
        for _ in range(20):
            answer = await viewer._http.get(f"{url}/api/events")
            statuses[answer.status] += 1
            stack.callback(answer.close)
        assert statuses == {200: MOST_STREAMS // 2, 503: 20 - MOST_STREAMS // 2}
        assert await operator.login("alice", "right") == 200
        for _ in range(MOST_STREAMS // 2):
            answer = await operator._http.get(f"{url}/api/events")
            assert answer.status == 200
            stack.callback(answer.close)
        assert (await operator.get("/api/me"))[1]["user"] == "alice"


def page_users(folder: Path) -> dict[str, str]:
    Users(folder / "data" / "users").add("lena", "right")
    return users(folder)


ODD_REQUESTS = [
    b"GET %s HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n%s\r\n" % found
    for found in (
        (b"/", b"A: " + b"a" * 8000 + b"\r\n" * 2),
        (b"/", b"A\x00: b\r\n"),
        (b"/" + b"o" * 4000, b""),
        (b"/mqtt", b"Origin: http://[\r\n"),
        (b"/mqtt", b"Origin: https://evil.example/" + b"o" * 4000 + b"\r\n"),
        (b"/mqtt", b"Origin: \xff\r\nX-Forwarded-For: \xff, [::1\r\n"),
        (b"/mqtt", b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: chat\r\n"),
        (b"/metrics", b"Content-Length: x\r\n"),
    )
] + [
    b"\x16\x03\x01\x00\x05hello",
    b"GET http://[ HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: [::1\r\nCookie: =\xff\r\n\r\n",
    b"POST /api/login HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n[]",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
]
ODD_BYTES = [
    *(b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, b"\x16\x03\x01\xff", bytes(20)),
    b"\x10\x10\x00\x04MQTT\x63\x02\x00\x00\x00\x04" + b"name",
    b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04" + b"\xff\xfe\x00\x01",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
    *(SIGNATURE + found for found in (b"\x21\x11\xff\xff", b"\x31\x11\0\0", b"\x21\x11\0\1x")),
    b"invented",  # stands for a CONNECT with a new client identifier and user name
]
ODD_PEERS, HELLOS = 220, 2000
MOST_LINES, MOST_BYTES = 110, 30_000
"""Largest number of lines and bytes that strangers at one listener or port may cause in the log."""
_LINES: dict[Path, list[Pty]] = {}


def _with_tls_and_serial(folder: Path) -> dict[str, str]:
    _LINES[folder] = [Pty(), Pty()]
    for line, name in zip(_LINES[folder], ("line", "open-line"), strict=True):
        (folder / name).symlink_to(line.path)
    return with_tls(folder)


async def strangers(site: Site) -> None:
    """Send wrong bytes to each type of listener, each time from another address, and also after a
    TLS handshake. Send greetings of boards with different names at serial ports.
    """
    log = site.running.log
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    async def ask(number: int, port: int, odd: list[bytes], tls: bool) -> None:
        address = (f"127.1.0.{2 + number}", 0)
        how = {"ssl": trusting} if tls and number % 2 else {}
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=address, **how)
        data = odd[number % len(odd)]
        if data == b"invented":
            data = bytes_of(Connect(f"c{number}", username=f"u{number}", password=b"x"))
        writer.write(data)
        # after a part of a packet, the gateway waits for the rest
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(0.5):
                while await reader.read(1 << 16):
                    pass
        writer.close()

    async def greet(line: Pty) -> None:
        for number in range(HELLOS):
            data = Hello(number, 1, 0, 1, 56, 2, f"stranger-{number}").to_bytes()
            while data:
                with suppress(BlockingIOError):
                    data = data[os.write(line.master, data) :]
                with suppress(BlockingIOError):
                    os.read(line.master, 1 << 16)
                await asyncio.sleep(0)
        line.unplug()

    floods = {
        name: [
            ask(number, port, ODD_REQUESTS if is_http else ODD_BYTES, "TLS" in name)
            for number in range(ODD_PEERS)
        ]
        for name, port, is_http in (
            ("tcp", site.port, False),
            *((name, _port(site, name), False) for name in ("TLS", "PROXY")),
            *((name, _port(site, name), True) for name in ("WEB", "TLS-WEB", "PAGE")),
            ("metrics", int(site.web.rpartition(":")[2]), True),
        )
    }
    closed, open_to_all = _LINES.pop(site.folder)
    for name, flood in (
        *floods.items(),
        ("serial", [greet(closed)]),
        ("open", [greet(open_to_all)]),
    ):
        before, begun = len(log), time.monotonic()
        await together(flood)  # type: ignore[arg-type]
        size = sum(map(len, log[before:]))
        print(f"{name}: {len(log) - before} lines, {size} bytes, {time.monotonic() - begun}")
        assert len(log) - before <= MOST_LINES, log[before:]
        assert size <= MOST_BYTES
    assert not any("Traceback" in line for line in log)


CERTIFICATE, KEY = "FOLDER/gateway.pem", "FOLDER/gateway.key"


def listener(name: str, *lines: str) -> str:
    """Return the section of a second listener. Its port will be written to a file with this
    name.
    """
    return f'[[listener]]\nbind = "127.0.0.1:{name}-PORT"\n' + "".join(
        f"{item}\n" for item in lines
    )


FLOODS = [
    Flood(
        "log lines about requests and greetings of strangers",
        strangers,
        listener("WEB", 'type = "websocket"')
        + "".join(
            listener(name, kind, f'tls = {{ certificate = "{CERTIFICATE}", key = "{KEY}" }}')
            for name, kind in (("TLS", ""), ("TLS-WEB", 'type = "websocket"'))
        )
        + listener("PROXY", 'proxy_protocol = ["127.0.0.0/8"]', "anonymous = true")
        + '[page]\nbind = "127.0.0.1:PAGE-PORT"\noperators = ["alice"]\n'
        + '[[serial]]\nport = "FOLDER/line"\n[[serial]]\nport = "FOLDER/open-line"\nopen = true\n',
        memory=70 * MEGABYTE,  # scrypt takes 32 MiB of this
        disk=2 * MEGABYTE,
        says="is not admitted",
        lines=400,
        env=_with_tls_and_serial,
    ),
    Flood(
        "what comes due at once: sessions that expire, wills, silent clients",
        due,
        disk=6 * MEGABYTE,  # at most WAL_BYTES and the tables; the number of commits varies
    ),
    Flood(
        "connections",
        connections,
        "[limits]\nconnections = 100\n",
        says="limits.connections",
        lines=2,
        counts="refused_total request=connect reason=quota_exceeded",
    ),
    Flood(
        "CONNECTs",
        connects,
        "[limits]\nconnects_per_s = 20\n",
        says="limits.connects_per_s",
        counts="refused_total request=connect reason=connection_rate_exceeded",
    ),
    Flood(
        "size of a CONNECT, of a client identifier, of a SUBSCRIBE; user properties of a packet",
        identifiers,
        says="limits.client_id_bytes",
        lines=22,
        counts="refused_total request=connect reason=client_identifier_not_valid",
    ),
    Flood(
        "sessions",
        sessions,
        "[limits]\nsessions = 500\n",
        says="limits.sessions",
        lines=2,
        counts="refused_total request=connect reason=quota_exceeded",
        disk=2 * MEGABYTE,
    ),
    Flood(
        "passwords that wait to be compared; as many questions to a hook again",
        passwords,
        env=users,
        memory=70 * MEGABYTE,  # scrypt takes 32 MiB of this
        says="wrong passwords",
        lines=12,
        counts="refused_total request=connect reason=server_busy",
    ),
    Flood(
        "requests, logins and streams of the page; requests of metrics",
        requests_and_streams,
        '[page]\nbind = "127.0.0.1:WEB-PORT"\noperators = ["alice"]\nviewers = ["lena"]\n',
        env=page_users,
        memory=70 * MEGABYTE,  # scrypt takes 32 MiB of this
        disk=2 * MEGABYTE,
        says="wrong passwords",
        lines=12,
    ),
    Flood(
        "what comes before a CONNECT is answered",
        before_the_answer,
        env=users,
        memory=80 * MEGABYTE,
        says="bytes arrived before it was answered",
        lines=12,
        counts="refused_total request=connect reason=quota_exceeded",
    ),
    Flood(
        "packets that have not come whole",
        partial,
        "[limits]\nmemory_bytes = 20_000_000\n",
        memory=60 * MEGABYTE,
        says="limits.memory_bytes",
        lines=62,
        counts="disconnects_total reason=quota_exceeded",
    ),
    Flood(
        "WebSocket messages that have not come whole",
        fragments,
        listener("WEB", 'type = "websocket"'),
        memory=60 * MEGABYTE,
        says="127.0.0.1",
    ),
    Flood(
        "connections that are no WebSocket yet",
        upgrades,
        listener("WEB", 'type = "websocket"'),
        memory=60 * MEGABYTE,
        says="before their WebSocket upgrade",
        lines=3,
    ),
    Flood(
        "TLS handshakes; PROXY headers that have not come",
        handshakes,
        listener("TLS", f'tls = {{ certificate = "{CERTIFICATE}", key = "{KEY}" }}')
        + listener("PROXY", 'proxy_protocol = ["127.0.0.0/8"]', "anonymous = true"),
        env=with_tls,
        memory=200 * MEGABYTE,
        says="TLS handshakes",
        lines=10,
    ),
]
