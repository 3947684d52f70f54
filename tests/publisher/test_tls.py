"""A publisher whose connection is not trusted, or whose server speaks another protocol. The
publisher names the cause, and the message waits in the journal.
"""

import asyncio
import ssl
from pathlib import Path

import pytest

from onceway_publisher import Publisher, StillWaiting
from tests.links.certificates import Authority

CAUSES = {
    "mqtts://localhost": "certificate is refused: Hostname mismatch",
    "mqtts://127.0.0.1 expired": "certificate is refused: certificate has expired",
    "mqtts://127.0.0.1 foreign": "unable to get local issuer certificate. Name the file",
    "mqtts://127.0.0.1 plain": "If the port has no TLS, write mqtt://",
    "mqtt://127.0.0.1": "If the port uses TLS, write mqtts://",
}


@pytest.mark.parametrize("case", CAUSES)
async def test_an_impossible_connection_is_reported_with_its_remedy(
    case: str, tmp_path: Path
) -> None:
    url, _, kind = case.partition(" ")
    authority = Authority(tmp_path, "Trusted")
    signer = Authority(tmp_path, "Foreign") if kind == "foreign" else authority
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*signer.issue("onceway", expired=kind == "expired"))

    async def close_at_first_bytes(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await reader.read(100)
        writer.close()

    listener = await asyncio.start_server(
        close_at_first_bytes, "127.0.0.1", 0, ssl=None if kind == "plain" else context
    )
    async with (
        listener,
        Publisher(
            f"{url}:{listener.sockets[0].getsockname()[1]}",
            device="boiler",
            journal=tmp_path / "boiler.db",
            tls=str(authority.path) if url.startswith("mqtts") else None,
            start_s=0,
            stop_s=0,
        ) as p,
    ):
        await p.publish("t", 1)
        async with asyncio.timeout(60):
            while p.problem is None:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert CAUSES[case] in p.problem
        with pytest.raises(StillWaiting, match="messages that wait"):
            await p.flush(0)


async def test_a_server_without_an_answer_is_reported(tmp_path: Path) -> None:
    async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(nothing, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    journal = tmp_path / "boiler.db"
    url = f"mqtt://127.0.0.1:{port}"
    async with listener, Publisher(url, device="b", journal=journal, start_s=0, stop_s=0) as p:
        await p.publish("t", 1)
        with pytest.raises(StillWaiting, match=f"127.0.0.1:{port} has not answered yet"):
            await p.flush(0)
