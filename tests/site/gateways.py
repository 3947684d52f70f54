"""Gateways of one site as processes on loopback, and clients that move between them."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from gateway.commands import control_client as control
from gateway.config import load
from gateway.doctor import services
from gateway.doctor.finding import Finding
from gateway.doctor.site import site as doctor_of_site
from gateway.mqtt.packets import Connack, Connect, Version
from gateway.mqtt.properties import PropertyId
from gateway.site.pki.authority import authority_of, membership
from gateway.site.pki.removed import Removed
from tests.service.process import GatewayProcess, free_port, start
from tests.service.wire import Wire
from tests.site.members import Site

SOON_S = 60
PROGRAM = ("-m", "gateway")


class Gateways:
    """Gateways of one site; the first one in `names` has the site's certificate authority. web:
    each gateway has a [web] section. text: further text of each configuration, if `web` is false.
    site: further text of each [site] section. program: arguments of Python that run a gateway.
    """

    def __init__(
        self,
        folder: Path,
        *names: str,
        web: bool = False,
        text: str = "",
        site: str = "",
        program: tuple[str, ...] = PROGRAM,
    ) -> None:
        self.site = Site(folder, *names)
        self.names = names
        self.running: dict[str, GatewayProcess] = {}
        self.program = program
        self._clients: list[Wire] = []
        members = "\n".join(f'{name} = "{at}"' for name, at in self.site.addresses.items())
        self.web = {name: free_port() for name in names} if web else {}
        for name in names:
            more = f'\n[web]\nbind = "127.0.0.1:{self.web[name]}"\n' if web else text
            self.config(name).write_text(
                f'[gateway]\nname = "{name}"\ndata = "{self.data(name)}"\n'
                '[[listener]]\nbind = "127.0.0.1:0"\nanonymous = true\nrefuse = "reason code"\n'
                f'[site]\nbind = "{self.site.addresses[name]}"\n{site}\n'
                f"[site.members]\n{members}\n{more}"
            )

    def data(self, name: str) -> Path:
        return self.site.folder / name

    def config(self, name: str) -> Path:
        return self.site.folder / f"{name}.toml"

    async def start(self, name: str) -> None:
        running = await start("--config", str(self.config(name)), program=self.program)
        self.running[name] = running
        await running.ready()

    async def kill(self, name: str) -> None:
        await self.running[name].end(signal.SIGKILL)

    def remove(self, name: str) -> None:
        """Remove a member by `onceway site remove` on the first gateway."""
        folder = self.site.of(self.names[0])
        authority = authority_of(folder)
        assert authority is not None
        removed = Removed(folder, membership(folder))
        removed.heard([authority.remove(name, int(time.time()))])
        removed.save()

    async def joined(self, *names: str, lost: str = "") -> None:
        """Wait until each of these gateways has a lease from each other member, except from `lost`.
        Without names: all gateways. Raises TimeoutError if one takes longer than SOON_S.
        """
        for name in names or self.names:
            async with asyncio.timeout(SOON_S):
                while True:
                    rows = await self.rows(name)
                    if all(row["lease"] or row["name"] == lost for row in rows[1:]):
                        break
                    await asyncio.sleep(0.05)

    async def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of `onceway site status` at this gateway."""
        try:
            return await asyncio.to_thread(control.ask, self.data(name), do="site")
        except control.NotRunning as error:
            running = self.running[name]
            code, lines = running.process.returncode, "".join(running.log[-20:])
            raise AssertionError(
                f"{name} does not answer; its exit code: {code}\n{lines}"
            ) from error

    async def shown(self, name: str, true: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Wait at most SOON_S until `true` holds for this gateway's status rows about the other
        members.
        """
        async with asyncio.timeout(SOON_S):
            while True:
                if true((await self.rows(name))[1:]):
                    break
                await asyncio.sleep(0.05)

    async def told(self, name: str, words: str) -> None:
        """Wait at most SOON_S until a row of this gateway's status has a problem with this text."""
        async with asyncio.timeout(SOON_S):
            while True:
                if any(words in (row["problem"] or "") for row in await self.rows(name)):
                    break
                await asyncio.sleep(0.05)

    async def figures(self, name: str) -> dict[str, int]:
        figures: dict[str, int] = (await self.rows(name))[0]["figures"]
        return figures

    async def sessions(self, name: str) -> list[str]:
        rows = await asyncio.to_thread(control.ask, self.data(name), do="sessions")
        return [row["client"] for row in rows if not row["client"].startswith("onceway")]

    def examined(self, name: str) -> list[Finding]:
        """Return doctor's findings about the gateway and its site."""
        config = load(self.config(name))
        return [*services.gateway(config), *doctor_of_site(config)]

    async def get(self, name: str, path: str) -> str:
        """Return the answer of the gateway's web server to a GET of this path."""
        url = f"http://127.0.0.1:{self.web[name]}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return await answer.text()

    async def connect(
        self, name: str, client: str = "c", *, clean: bool = False
    ) -> tuple[Wire, bool]:
        """Connect a client. Return its connection and Session Present."""
        port = self.running[name].port
        found = Wire(*await asyncio.open_connection("127.0.0.1", port), Version.V5)
        # from Python 3.13 on, a connection without a reference is closed
        self._clients.append(found)
        found.send(
            Connect(
                client,
                Version.V5,
                clean,
                properties={PropertyId.SESSION_EXPIRY_INTERVAL: 3600},
            )
        )
        connack = await found.take(Connack)
        assert connack.reason == 0, connack
        return found, connack.session_present


@asynccontextmanager
async def gateways(
    folder: Path,
    *names: str,
    web: bool = False,
    text: str = "",
    site: str = "",
    program: tuple[str, ...] = PROGRAM,
) -> AsyncIterator[Gateways]:
    """Start gateways, and yield them when all are linked. web: with a web server. The gateways
    end with the block.
    """
    found = Gateways(folder, *names, web=web, text=text, site=site, program=program)
    async with AsyncExitStack() as stack:
        for name in names:
            stack.push_async_callback(end, found, name)
            await found.start(name)
        await found.joined()
        yield found


async def end(found: Gateways, name: str) -> None:
    running = found.running.get(name)
    if running is not None and running.process.returncode is None:
        running.process.send_signal(signal.SIGCONT)
        await running.end(signal.SIGKILL)
