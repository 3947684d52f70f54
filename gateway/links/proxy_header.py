"""The PROXY protocol, version 2: a proxy such as HAProxy names its client before the first byte of
the connection (haproxy.org, doc/proxy-protocol.txt, section 2.2).

In: a new connection of a proxy. Out: the client's address, or None if the connection is the proxy's
own. Only as many bytes are read as the header has, so the TLS handshake or the MQTT packets after
it stay in the socket.
"""

import asyncio
import socket
from ipaddress import IPv6Address, ip_address

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
LONGEST = 4096
"""Largest number of bytes after the fixed part of a header. A longer header is refused unread."""
_FIXED = len(SIGNATURE) + 4
_TELLS = 5
"""Number of first bytes of the signature that suffice to distinguish it from an MQTT packet, a TLS
handshake and an HTTP request.
"""
_VERSION_2, _LOCAL, _PROXY = 0x20, 0, 1
_ADDRESS_BYTES = {0x11: 4, 0x21: 16}
"""Size of an address in bytes, by family and transport: TCP over IPv4, TCP over IPv6."""
_NO_ADDRESS = 0x00, 0x31
"""Families without an IP address: unspecified, and a Unix socket."""


class ProxyHeaderError(Exception):
    """Error: a proxy sent something other than a header."""


async def read_header(connection: socket.socket) -> tuple[str, int] | None:
    """Read the header of a non-blocking socket. Return the client's host and port, or None if the
    proxy names no client. Raises ProxyHeaderError, and OSError if the connection is lost.
    """
    fixed = await _exactly(connection, _FIXED)
    if not fixed.startswith(SIGNATURE):
        version_1 = fixed.startswith(b"PROXY ")
        raise ProxyHeaderError(
            "version 1 of the PROXY protocol: let the proxy send version 2 (send-proxy-v2)"
            if version_1
            else "no PROXY header of version 2, although proxy_protocol lists the peer's address"
        )
    command, family = fixed[12:14]
    size = int.from_bytes(fixed[14:], "big")
    if size > LONGEST:
        raise ProxyHeaderError(f"a PROXY header of {size} bytes; at most {LONGEST} are allowed")
    return client_of(command, family, await _exactly(connection, size))


def client_of(command: int, family: int, data: bytes) -> tuple[str, int] | None:
    """Return the client's host and port from a header's parts, or None if the header names no
    client. command, family: bytes 12 and 13 of the header. data: addresses, ports, and extensions,
    which are ignored. Raises ProxyHeaderError.
    """
    if command == _VERSION_2 | _LOCAL:
        return None
    if command != _VERSION_2 | _PROXY:
        raise ProxyHeaderError(f"a PROXY header of unknown version or command 0x{command:02x}")
    if family in _NO_ADDRESS:
        return None
    size = _ADDRESS_BYTES.get(family)
    if size is None:
        raise ProxyHeaderError(f"a PROXY header that is not for a TCP connection: 0x{family:02x}")
    if len(data) < 2 * size + 4:
        raise ProxyHeaderError("a PROXY header that is too short for its addresses")
    host = ip_address(data[:size])
    if isinstance(host, IPv6Address) and host.ipv4_mapped is not None:
        host = host.ipv4_mapped
    return str(host), int.from_bytes(data[2 * size : 2 * size + 2], "big")


async def claims_header(connection: socket.socket) -> bool:
    """Wait for the first bytes of a connection, leave them in the socket, and return whether they
    begin a PROXY header. Raises OSError if the connection is lost.
    """
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(connection.fileno(), _wake, readable)
    try:
        await readable
    finally:
        loop.remove_reader(connection.fileno())
    return connection.recv(_TELLS, socket.MSG_PEEK) == SIGNATURE[:_TELLS]


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


async def _exactly(connection: socket.socket, size: int) -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < size:
        piece = await loop.sock_recv(connection, size - len(data))
        if not piece:
            raise ConnectionResetError("closed in the middle of a PROXY header")
        data += piece
    return data
