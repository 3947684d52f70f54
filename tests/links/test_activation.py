"""Sockets that systemd has opened: the gateway takes over each of them once, by its name, and
serves it.
"""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.links.activation import activated_sockets
from gateway.links.tcp import TcpListener
from gateway.links.websocket import WebSocketListener
from tests.links.board import Broker, until

_SERVICE = """
import os, sys
from gateway.links.activation import activated_sockets
os.environ["LISTEN_PID"] = str(os.getpid()) if sys.argv[1] == "me" else "1"
taken = activated_sockets()
print({name: [sock.getsockname()[1] for sock in socks] for name, socks in sorted(taken.items())})
print(sorted(name for name in os.environ if name.startswith("LISTEN_")), activated_sockets() == {})
"""


@pytest.mark.parametrize("meant_for", ["me", "another"])
def test_sockets_are_taken_over_once_and_only_by_the_process_they_are_meant_for(
    meant_for: str,
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as mqtt,
        socket.create_server(("127.0.0.1", 0)) as tls,
    ):
        ports = [sock.getsockname()[1] for sock in (mqtt, tls)]
        # As systemd does, from descriptor 3 on. The shell moves them there, whatever their
        # numbers are here.
        command = f'exec "$0" -c "$1" {meant_for} 3<&{mqtt.fileno()} 4<&{tls.fileno()}'
        ran = subprocess.run(
            ["bash", "-c", command, sys.executable, _SERVICE],
            env=os.environ
            | {
                "LISTEN_FDS": "2",
                "LISTEN_FDNAMES": "mqtt:mqtts",
                "PYTHONPATH": str(Path(__file__).parents[2]),
            },
            pass_fds=(mqtt.fileno(), tls.fileno()),
            capture_output=True,
            text=True,
            check=True,
        )
    taken, left = ran.stdout.splitlines()
    assert taken == (str({"mqtt": ports[:1], "mqtts": ports[1:]}) if meant_for == "me" else "{}")
    assert left == "[] True"


def test_no_socket_is_activated_without_systemd() -> None:
    assert activated_sockets({}) == {}


@pytest.mark.parametrize("kind", [TcpListener, WebSocketListener])
async def test_a_listener_serves_a_socket_that_is_open_already(
    kind: type[TcpListener] | type[WebSocketListener],
) -> None:
    broker = Broker()
    open_already = socket.create_server(("127.0.0.1", 0))
    open_already.setblocking(False)
    listener = kind(broker.accept, "", 0, sockets=[open_already])
    await listener.start()
    host, port = listener.addresses[0]
    assert (host, port) == open_already.getsockname()
    reader, writer = await asyncio.open_connection(host, port)
    if kind is WebSocketListener:
        writer.write(
            b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection:"
            b" Upgrade\r\nSec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Version:"
            b" 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        assert await reader.readline() == b"HTTP/1.1 101 Switching Protocols\r\n"
    await until(lambda: broker.connections)
    writer.close()
    await listener.close()
