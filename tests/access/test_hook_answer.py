"""Only a complete answer of an HTTP hook counts. Each kind of answer is cut off after each byte."""

import io
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gateway.access.hook import AuthHook
from gateway.access.hook_answer import MOST_BYTES, CutOff, OddAnswer, read_status
from gateway.config import AccessSection
from gateway.mqtt.reason import ReasonCode as R
from tests.links.certificates import Authority

OK = b"HTTP/1.1 200 OK\r\n"
WHOLE = {
    "length": OK + b"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\nok",
    "length of nothing": OK + b"Content-Length: 0\r\n\r\n",
    "length twice": OK + b"Content-Length: 2\r\ncontent-length: 2, 2\r\n\r\nok",
    "no content": b"HTTP/1.1 204 No Content\r\nServer: x\r\n\r\n",
    "no reason": b"HTTP/1.1 204\r\n\r\n",
    "bare line feeds": b"HTTP/1.0 200 OK\nContent-Length: 2\n\nok",
    "chunks": (
        OK
        + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\na;name=value\r\n0123456789\r\n0\r\n\r\n"
    ),
    "no chunks": OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and a trailer": (
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\nDigest: x\r\n\r\n"
    ),
    "chunks and a length": (
        OK + b"Content-Length: 1\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    ),
    "a first answer": b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nok",
    "hints": b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
}
TO_THE_END = {
    "to the end": OK + b"Server: x\r\n\r\n",
    "another coding": OK + b"Transfer-Encoding: gzip\r\n\r\n",
}
ODD = [
    b"SSH-2.0-OpenSSH\r\n",
    b"HTTP/2 200 OK\r\n\r\n",
    b"HTTP/1.1 20 OK\r\n\r\n",
    b"HTTP/1.1 2000 OK\r\n\r\n",
    b"HTTP/1.1\r\n\r\n",
    OK + b"no field\r\n\r\n",
    OK + b"Content-Length : 0\r\n\r\n",
    OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nok",
    OK + b"Content-Length:\r\n\r\n",
    OK + b"Content-Length: ,\r\n\r\nok",
    OK + b"Transfer-Encoding:\r\n\r\n",
    OK + b"Transfer-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok",
    OK + b"Transfer-Encoding: chunked, gzip\r\n\r\n",
    OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    OK + b"Transfer-Encoding: Chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    OK + b"Content-Length: -1\r\n\r\n",
    OK + b"Content-Length: +2\r\n\r\nok",
    OK + b"Content-Length: 0x2\r\n\r\nok",
    OK + b"Content-Length: 10000000\r\n\r\n" + bytes(10_000_000),
    OK + b"Content-Length: 99999999999999999999\r\n\r\n",
    OK + b"\r\n" + bytes(MOST_BYTES),
    OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
    OK + b"Transfer-Encoding: chunked\r\n\r\n\r\n",
    OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n",
    OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"80000\r\n" + bytes(1 << 19) + b"\r\n" * 1,
    OK + b"A: b\r\n" * 1000,
    OK + b"A: " + b"b" * 100_000,
]


@pytest.mark.parametrize("kind", WHOLE)
def test_an_answer_that_ends_at_any_byte_but_its_last_is_cut_off(kind: str) -> None:
    whole = WHOLE[kind]
    assert read_status(io.BytesIO(whole)) in (200, 204)
    assert read_status(io.BytesIO(whole + b"HTTP/1.1 403 No\r\n")) in (200, 204)
    for end in range(len(whole)):
        with pytest.raises(CutOff):
            read_status(io.BytesIO(whole[:end]))


@pytest.mark.parametrize("kind", TO_THE_END)
def test_a_body_without_a_length_ends_with_the_connection(kind: str) -> None:
    """RFC 9112, section 8: an answer without a length ends when the connection is closed. It is
    complete if its header is complete.
    """
    head = TO_THE_END[kind]
    for body in (b"", b"o", b"ok"):
        assert read_status(io.BytesIO(head + body)) == 200
    for end in range(len(head)):
        with pytest.raises(CutOff):
            read_status(io.BytesIO(head[:end]))


@pytest.mark.parametrize("answer", ODD)
def test_malformed_hook_answer_refuses_the_login(answer: bytes) -> None:
    with pytest.raises(OddAnswer):
        read_status(io.BytesIO(answer))


@contextmanager
def saying(answer: bytes, *, resets: bool = False, stays: bool = False) -> Iterator[str]:
    """Run a server that sends these bytes to its first client. resets: the server ends the
    connection by RST. stays: the server leaves the connection open.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept = []

        def serve() -> None:
            with socket.socket(fileno=server.dup().detach()) as mine:
                mine.settimeout(20)
                client, _ = mine.accept()
            client.recv(1 << 16)
            client.sendall(answer)
            if stays:
                kept.append(client)
                return
            if resets:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        thread.join(20)
        for client in kept:
            client.close()


def ask(url: str, timeout_s: float = 20) -> int:
    """Return the reason code that the hook gives, 0 for success."""
    hook = AuthHook(AccessSection(url=url, hook_timeout_s=timeout_s))
    refusal = hook.refuses("carol", b"right", "c", "127.0.0.1", "l")
    return 0 if refusal is None else refusal[0]


@pytest.mark.parametrize(
    ("answer", "lets_in"),
    [
        (b"", False),
        (b"HTTP/1.1 200", False),
        (b"HTTP/1.1 200 OK\r\n", False),
        (OK + b"Content-Length: 2\r\n\r\no", False),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", False),
        *((answer, True) for answer in (*WHOLE.values(), *TO_THE_END.values())),
    ],
)
def test_hook_answer_over_tcp_decides_the_login(answer: bytes, lets_in: bool) -> None:
    with saying(answer) as url:
        assert ask(url) == (R.SUCCESS if lets_in else R.SERVER_UNAVAILABLE)


@pytest.mark.parametrize("head", TO_THE_END.values())
def test_a_body_that_never_ends_is_no_answer(head: bytes) -> None:
    """At its time limit, the gateway closes the connection. The part of the answer that has arrived
    does not count as an answer.
    """
    with saying(head, stays=True) as url:
        begin = time.monotonic()
        assert ask(url, 0.3) == R.SERVER_UNAVAILABLE
        assert time.monotonic() - begin < 10


@pytest.mark.parametrize("notified", [True, False])
@pytest.mark.parametrize("kind", ["to the end", "length"])
def test_end_of_a_tls_answer_without_close_notify_is_a_cut(
    kind: str, notified: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer with a Content-Length is complete without close_notify (RFC 9112, sections 8 and
    9.8).
    """
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("hook"))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            plain, _ = server.accept()
            with context.wrap_socket(plain, server_side=True) as client:
                while b"}" not in client.recv(1 << 16):  # unread input would make the close a reset
                    pass
                client.sendall((WHOLE | TO_THE_END)[kind])
                if notified:
                    with suppress(OSError):  # the gateway may have closed the connection already
                        client.unwrap()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        found = ask(f"https://127.0.0.1:{server.getsockname()[1]}/")
        thread.join(20)
    whole = notified or kind == "length"
    assert found == (R.SUCCESS if whole else R.SERVER_UNAVAILABLE)
