"""The network between the gateways of a site, as a process that can cut it and slow it down. In:
the addresses of the gateways, and orders. Out: the addresses at which the gateways reach each
other. Of two members, the one with the lower name connects (gateway/site/links/net.py).
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from itertools import combinations
from typing import Any

from gateway.errors import OncewayError
from hil.programs.ports import free_port
from hil.programs.process import Child, Children

READY_WITHIN = 60.0  # s, on a busy machine


class MemberLinks:
    """The network of a site. addresses: HOST:PORT of each gateway, by name."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self._addresses = dict(addresses)
        self._ports = {ends: free_port() for ends in combinations(sorted(addresses), 2)}
        self._done: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def seen_by(self, name: str) -> dict[str, str]:
        """Return HOST:PORT at which the member `name` reaches each member, by member."""
        ways = {far: port for (near, far), port in self._ports.items() if near == name}
        return self._addresses | {far: f"127.0.0.1:{port}" for far, port in ways.items()}

    async def start(self, children: Children) -> None:
        """Start the network, and wait until gateways can connect. Raises OncewayError."""
        argv = [sys.executable, "-m", "hil.wire.members"]
        for (near, far), port in self._ports.items():
            target = self._addresses[far].rpartition(":")[2]
            argv += ["--link", f"{near}:{far}:{port}:{target}"]
        self._child: Child = await children.start("members", argv, pipe=True, orders=True)
        async with asyncio.timeout(READY_WITHIN):
            async for line in self._child.lines():
                if json.loads(line)["event"] == "ready":
                    return
        raise OncewayError("the network between the gateways did not start", str(self._child.log))

    async def order(self, do: str, member: str, **more: float) -> dict[str, Any]:
        self._child.order(json.dumps({"do": do, "member": member, **more}).encode())
        return await self._done.get()

    async def follow(self) -> None:
        """Read the program's reports until it ends. Raises EndedError if it ended by itself."""
        async for line in self._child.lines():
            self._done.put_nowait(json.loads(line))
        await self._child.process.wait()
        self._child.check()

    async def stop(self) -> None:
        await self._child.stop()
