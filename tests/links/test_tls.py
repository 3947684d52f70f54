"""TLS listeners, client certificates and renewal."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.errors import OncewayError
from gateway.links import counted_server
from gateway.links.tcp import TcpListener
from gateway.links.tls import Tls, common_name
from gateway.links.tls import client_context as outgoing_context
from gateway.links.transport import Lingering
from tests.links.board import Broker, until
from tests.links.certificates import Authority


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@contextlib.asynccontextmanager
async def listening(broker: Broker, tls: Tls) -> AsyncIterator[int]:
    listener = TcpListener(broker.accept, "127.0.0.1", 0, name="tls", tls=tls)
    await listener.start()
    try:
        yield listener.addresses[0][1]
    finally:
        await listener.close()


def client_context(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.path)


async def test_bytes_go_both_ways_under_tls(broker: Broker, authority: Authority) -> None:
    async with listening(broker, Tls(*authority.issue("gateway"))) as port:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client_context(authority)
        )
        writer.write(b"CONNECT")
        await until(lambda: broker.connections and broker.last.received == b"CONNECT")
        assert broker.last.transport.peer.certificate_name is None
        broker.last.transport.write(bytes(1_000_000))
        broker.last.transport.close()
        assert await reader.read() == bytes(1_000_000)
        writer.close()


async def test_a_client_certificate_names_its_owner(
    broker: Broker, authority: Authority, tmp_path: Path
) -> None:
    tls = Tls(*authority.issue("gateway"), client_ca=authority.path, client_required=True)
    context = client_context(authority)
    context.load_cert_chain(*authority.issue("sensor-17"))
    async with listening(broker, tls) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        await until(lambda: broker.connections)
        assert broker.last.transport.peer.certificate_name == "sensor-17"
        writer.close()


async def test_revoked_certificate_is_refused_and_logged_once(
    broker: Broker, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    own, good, bad = authority.issue("gateway"), authority.issue("good"), authority.issue("bad")
    tls = Tls(
        *own,
        client_ca=authority.path,
        client_crl=authority.revoke(bad[0]),
        client_required=True,
        name="0.0.0.0:8883",
    )
    async with listening(broker, tls) as port:
        for _ in range(3):
            context = client_context(authority)
            context.load_cert_chain(*bad)
            with contextlib.suppress(ssl.SSLError, ConnectionError):
                reader, _ = await asyncio.open_connection("127.0.0.1", port, ssl=context)
                assert await asyncio.wait_for(reader.read(), 10) == b""
        assert not broker.connections
        context = client_context(authority)
        context.load_cert_chain(*good)
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        await until(lambda: broker.connections)
        writer.close()
    assert caplog.messages == ["0.0.0.0:8883: a TLS handshake failed: certificate revoked"]


async def test_missing_or_foreign_certificate_is_refused(
    broker: Broker, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    stranger = client_context(authority)
    stranger.load_cert_chain(*Authority(tmp_path / "other", "Other").issue("sensor-17"))
    tls = Tls(*authority.issue("gateway"), client_ca=authority.path, client_required=True)
    async with listening(broker, tls) as port:
        for context in (client_context(authority), stranger):
            with contextlib.suppress(ssl.SSLError, ConnectionError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
                writer.write(b"CONNECT")
                assert await reader.read() == b""
        assert not broker.connections


async def test_an_optional_certificate_may_be_missing(broker: Broker, authority: Authority) -> None:
    async with listening(
        broker, Tls(*authority.issue("gateway"), client_ca=authority.path)
    ) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(authority))
        await until(lambda: broker.connections)
        assert broker.last.transport.peer.certificate_name is None
        writer.close()


def test_the_lowest_version_is_1_2(authority: Authority) -> None:
    tls = Tls(*authority.issue("gateway"))
    assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_2


async def test_plain_bytes_on_a_tls_port_are_dropped_and_logged(
    broker: Broker, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(broker, Tls(*authority.issue("gateway"))) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x10\x10\x00\x04MQTT\x05\x02\x00\x3c")
        with contextlib.suppress(ConnectionError):
            await reader.read()
        assert not broker.connections
        writer.close()
    assert [message.partition(" failed: ")[0] for message in caplog.messages] == [
        "tls: a TLS handshake"
    ]


async def test_renewed_files_serve_new_connections_on_the_same_port(
    broker: Broker, authority: Authority
) -> None:
    async def serial_number(writer: asyncio.StreamWriter) -> object:
        return writer.get_extra_info("peercert")["serialNumber"]

    listener = TcpListener(
        broker.accept, "127.0.0.1", 0, name="tls", tls=Tls(*authority.issue("gateway"))
    )
    await listener.start()
    port = listener.addresses[0][1]
    try:
        reader, first = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client_context(authority)
        )
        await until(lambda: broker.connections)
        held = broker.last
        for _ in range(2):
            await listener.change(Tls(*authority.issue("gateway")))
            assert listener.addresses == [("127.0.0.1", port)]
            _, second = await asyncio.open_connection(
                "127.0.0.1", port, ssl=client_context(authority)
            )
            assert await serial_number(second) != await serial_number(first)
            second.close()
        held.transport.write(b"still here")
        assert await reader.read(100) == b"still here"
        first.close()
    finally:
        await listener.close()


async def test_a_lingering_connection_under_tls_sends_its_last_bytes(
    broker: Broker, authority: Authority
) -> None:
    async with listening(broker, Tls(*authority.issue("gateway"))) as port:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client_context(authority)
        )
        await until(lambda: broker.connections)
        transport = broker.last.transport
        assert isinstance(transport, Lingering)
        transport.write(b"the reason")
        transport.linger()
        assert await asyncio.wait_for(reader.read(), 20) == b"the reason"
        assert broker.last.reason is None
        writer.close()


@pytest.mark.parametrize("own", [False, True])
async def test_outgoing_connection_checks_the_server_and_shows_its_own_certificate(
    own: bool, broker: Broker, authority: Authority, tmp_path: Path
) -> None:
    pair = authority.issue("site-1") if own else (None, None)
    tls = Tls(*authority.issue("gateway"), client_ca=authority.path)
    async with listening(broker, tls) as port:
        for trusted in (Authority(tmp_path, "Another").path, None):
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.open_connection(
                    "127.0.0.1", port, ssl=outgoing_context(trusted, *pair)
                )
        context = outgoing_context(authority.path, *pair)
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        await until(lambda: broker.connections)
        assert broker.last.transport.peer.certificate_name == ("site-1" if own else None)
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        writer.close()


def test_faults_of_certificate_files_are_reported(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("gateway")
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    with pytest.raises(OncewayError, match=r"absent.pem: cannot be read: No such file"):
        Tls(tmp_path / "absent.pem", key)
    with pytest.raises(OncewayError, match="holds no revocation list"):
        Tls(certificate, key, client_ca=authority.path, client_crl=authority.path)
    with pytest.raises(OncewayError, match="holds no revocation list"):
        Tls(certificate, key, client_ca=authority.path, client_crl=garbage)
    with pytest.raises(OncewayError, match="not in PEM format"):
        Tls(garbage, key)
    with pytest.raises(OncewayError, match="does not belong to the certificate"):
        Tls(certificate, authority.issue("other")[1])
    with pytest.raises(OncewayError, match="protected by a passphrase"):
        Tls(*authority.issue("locked", passphrase=b"secret"))
    with pytest.raises(OncewayError, match="holds no certificate"):
        Tls(certificate, key, client_ca=garbage)


def test_certificate_without_a_common_name_names_no_user() -> None:
    assert common_name(None) is None
    assert common_name({"subject": ((("organizationName", "x"),),)}) is None


async def test_sockets_without_a_handshake_are_bounded_and_refuse_no_client(
    broker: Broker, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted_server, "MOST", 5)
    async with listening(broker, Tls(*authority.issue("gateway"))) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        gone = [asyncio.ensure_future(reader.read()) for reader, _ in silent]
        await until(lambda: sum(item.done() for item in gone) == 7)
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(authority))
        writer.write(b"CONNECT")
        await until(lambda: broker.connections and broker.last.received == b"CONNECT")
        writer.close()
        for item in gone:
            item.cancel()
        for _, silent_writer in silent:
            silent_writer.close()
