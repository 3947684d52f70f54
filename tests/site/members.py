"""Members of a site on loopback: their certificates in folders, and their running nets."""

import asyncio
import json
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gateway.config import Config, parse
from gateway.site.framing import FRAME_BYTES, Frames, Kind, pack, pack_number
from gateway.site.links.link import OLDEST, VERSION
from gateway.site.links.net import Net
from gateway.site.pki import folder as files
from gateway.site.pki.authority import Membership, authority_of, found, membership
from gateway.site.pki.tls import dialling
from tests.service.process import free_port

SOON_S = 60


async def until(true: Callable[[], object]) -> None:
    """Wait until `true()` holds, at most SOON_S seconds."""
    async with asyncio.timeout(SOON_S):
        while not true():  # noqa: ASYNC110 - of many things
            await asyncio.sleep(0.01)


class Site:
    """The folders of a site's members. The first member has the certificate authority."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        self.addresses = {name: f"127.0.0.1:{free_port()}" for name in names}
        self.first = names[0]
        for name in names:
            (folder / name).mkdir(parents=True, exist_ok=True)
        found(self.of(self.first), self.first)
        for name in names[1:]:
            self.issue(name)

    def of(self, name: str) -> Path:
        """Return the folder `site` in the member's data directory."""
        return self.folder / name / "site"

    def issue(self, name: str, place: Path | None = None, **how: Any) -> Membership:
        """Create the files that `onceway site join` creates."""
        authority = authority_of(self.of(self.first))
        assert authority is not None
        key = Ed25519PrivateKey.generate()
        certificate = authority.issue(name, key.public_key(), **how)
        made = Membership(certificate, authority.certificate, key)
        folder = place or self.of(name)
        files.make_folder(folder)
        files.replace(folder / files.MEMBER, made.to_pem())
        return made

    def config(self, name: str, **site: Any) -> Config:
        data = str(self.folder / name)
        return parse(
            {
                "gateway": {"name": name, "data": data},
                "site": {"members": self.addresses, "bind": self.addresses[name]} | site,
            },
            "test",
        )


class Member:
    """The `Net` of a member, with a record of its calls: joined and lost members, and received
    frames.
    """

    def __init__(self, config: Config) -> None:
        self.name = config.gateway.name
        self.events: list[tuple[str, str]] = []
        self.frames: list[tuple[str, bytes]] = []
        self.refuse: Exception | None = None
        self.net = Net(
            config,
            secrets.token_hex(8),
            lambda name: self.events.append(("joined", name)),
            lambda name: self.events.append(("left", name)),
            self._received,
        )

    def _received(self, name: str, frame: bytes) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.frames.append((name, frame))

    def linked(self, name: str) -> bool:
        return any(row["connected"] and row["name"] == name for row in self.net.status())

    def row(self, name: str) -> dict[str, Any]:
        return next(row for row in self.net.status() if row["name"] == name)


@asynccontextmanager
async def running(*configs: Config) -> AsyncIterator[list[Member]]:
    members = [Member(config) for config in configs]
    try:
        for member in members:
            await member.net.start()
        yield members
    finally:
        for member in members:
            await member.net.close()


@asynccontextmanager
async def joined(*configs: Config) -> AsyncIterator[list[Member]]:
    """Run members, and yield them when all are linked."""
    async with running(*configs) as members:
        await until(
            lambda: all(
                one.linked(other.name) for one in members for other in members if one is not other
            )
        )
        yield members


class Peer:
    """A connection to a member, in which the test sends and reads each frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._frames = Frames(FRAME_BYTES)
        self._ready: list[tuple[Kind, bytes]] = []

    def say(self, kind: Kind, body: bytes = b"") -> None:
        self.writer.write(pack(kind, body))

    def greet(self, **changes: Any) -> None:
        greeting = {
            "version": VERSION,
            "oldest": OLDEST,
            "generation": "0" * 16,
            "clock": time.time(),
            "removed": [],
        }
        self.say(Kind.GREETING, json.dumps(greeting | changes).encode())

    async def next(self) -> tuple[Kind, bytes] | None:
        """Return the next frame, or None if the connection has ended."""
        async with asyncio.timeout(SOON_S):
            while not self._ready:
                try:
                    data = await self.reader.read(1 << 16)
                except OSError:
                    return None
                if not data:
                    return None
                self._frames.feed(data)
                self._ready += self._frames
        return self._ready.pop(0)

    async def hear(self, kind: Kind) -> bytes:
        while (found := await self.next()) is not None:
            if found[0] is kind:
                return found[1]
        raise AssertionError(f"it ended before {kind.name}")

    async def ended(self) -> None:
        while await self.next() is not None:
            pass

    async def join(self, **changes: Any) -> None:
        self.greet(**changes)
        await self.hear(Kind.GREETING)
        self.writer.write(pack_number(Kind.ALIVE, 1))


@asynccontextmanager
async def dialled(address: str, context: ssl.SSLContext | None) -> AsyncIterator[Peer]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(
        host, int(port), ssl=context, server_hostname="" if context else None
    )
    try:
        yield Peer(reader, writer)
    finally:
        writer.transport.abort()


def as_member(site: Site, name: str, folder: Path | None = None) -> ssl.SSLContext:
    """Return a TLS context for a `Peer`, with this member's certificate."""
    place = folder or site.of(name)
    return dialling(place, membership(place))
