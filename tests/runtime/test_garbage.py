"""The gateway leaves almost no reference cycles for Python's garbage collector."""

import asyncio
import gc
import socket
from pathlib import Path

import uvloop

from gateway.config import parse
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import Connect, Disconnect, Publish, Subscribe, Subscription, Version
from gateway.service.gateway import Gateway
from tests.service.process import free_port

CLIENTS = 200
SAID = b"".join(
    encode(packet, Version.V5)
    for packet in (
        Connect(""),
        Subscribe(1, [Subscription("t", 1)]),
        Publish("t", b"x", 1, 2),
        Disconnect(),
    )
)


# with asyncio's own event loop, each connection would leave ten objects; the gateway uses uvloop
def test_connections_and_routes_leave_nothing(tmp_path: Path) -> None:
    assert uvloop.run(left_by_clients(tmp_path)) < CLIENTS


async def left_by_clients(tmp_path: Path) -> int:
    """Return the number of objects that the collector frees after clients have come and gone."""
    port, loop = free_port(), asyncio.get_running_loop()
    listener = {"bind": f"127.0.0.1:{port}", "anonymous": True}
    gateway = Gateway(parse({"gateway": {"data": str(tmp_path)}, "listener": [listener]}, "here"))
    started = asyncio.Event()
    task = asyncio.create_task(gateway.run(lambda _: started.set()))

    async def visit() -> None:
        with socket.socket() as client:
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", port))
            await loop.sock_sendall(client, SAID)
            while await loop.sock_recv(client, 1000):
                pass

    try:
        await started.wait()
        await visit()
        gc.collect()
        gc.disable()
        for _ in range(CLIENTS):
            await visit()
        return gc.collect()
    finally:
        gc.enable()
        gateway.stop()
        await task
