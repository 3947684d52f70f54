"""The device registry of a site with real gateways: a change at one gateway applies at all."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.mqtt.packets import Connack, Connect, Version
from gateway.site.cli import app
from gateway.site.wiring import registry as site_registry
from gateway.site.wiring.registry import SiteRegistry
from provisioning.identity import Identity
from provisioning.registry import Device, Registry
from tests.service.wire import Wire
from tests.site.gateways import SOON_S, Gateways, gateways

KEY, OTHER = b"\x5a\x17" * 8, b"\xc3\x99" * 8


def registry(site: Gateways, name: str) -> Registry:
    return Registry(site.data(name) / "registry.db")


def write(site: Gateways, at: str, name: str, key: bytes) -> None:
    """Write a board's key to the registry, as `device add` and `device rekey` do."""
    with closing(registry(site, at)) as opened:
        opened.finish(opened.begin(Identity(name, key), "uno", "/dev/ttyACM0"), "f" * 64)


async def until(site: Gateways, at: str, name: str, holds: Callable[[Device], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while True:
            if (site.data(at) / "registry.db").exists():
                with closing(registry(site, at)) as opened:
                    found = opened.find(name)
                if found is not None and holds(found):
                    return
            await asyncio.sleep(0.1)


async def reason(site: Gateways, at: str, client: str) -> int:
    """Return the reason code of the CONNACK for a network client with this client identifier."""
    wire = Wire(*await asyncio.open_connection("127.0.0.1", site.running[at].port), Version.V5)
    wire.send(Connect(client, Version.V5, True))
    code = (await wire.take(Connack)).reason
    wire.writer.close()
    return code


async def refused(site: Gateways, at: str, client: str) -> None:
    async with asyncio.timeout(SOON_S):
        while True:
            if await reason(site, at, client) != 0:
                return
            await asyncio.sleep(0.1)


async def test_boards_are_let_in_rekeyed_and_revoked_at_all(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        assert await reason(site, "b", "roof-1") == 0
        write(site, "a", "roof-1", KEY)
        await until(site, "b", "roof-1", lambda found: found.key == KEY)
        # b refuses a client with the board's name, too: the running gateway knows the change
        await refused(site, "b", "roof-1")
        with closing(registry(site, "b")) as opened:
            opened.admit("guest")
        await until(site, "a", "guest", lambda found: found.status == "admitted")

        # while b is stopped, the board's key changes there; meanwhile a revokes the board
        first = site.running["b"]
        await first.end(signal.SIGTERM)
        write(site, "b", "roof-1", OTHER)
        with closing(registry(site, "a")) as opened:
            opened.revoke("roof-1")
        await site.start("b")
        for name in "ab":
            await until(
                site,
                name,
                "roof-1",
                lambda found: found.status == "revoked" and found.key == OTHER,
            )
        async with asyncio.timeout(SOON_S):
            while True:
                if not any(row["boards"] for row in (await site.rows("b"))[1:]):
                    break
                await asyncio.sleep(0.1)
        for name in "ab":
            # the registry has the change before the gateway reports the lost one
            await site.running[name].logged("is lost, because a revocation elsewhere")
            (lost,) = (await site.rows(name))[0]["conflicts"]
            assert lost.startswith("device roof-1: the change at b (")
            assert "because a revocation elsewhere overrides it" in lost
        told = CliRunner().invoke(app, ["status", "--config", str(site.config("a"))])
        assert "device roof-1: the change at b (" in told.output
        logs = "".join(line for running in (first, *site.running.values()) for line in running.log)
        assert "changed at other members of the site: roof-1" in logs
        for key in (KEY, OTHER):
            assert key.hex() not in logs
            assert repr(key) not in logs


async def test_unreadable_registry_is_reported_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(site_registry, "RETRY_S", 0.01)
    file = tmp_path / "registry.db"
    file.write_bytes(b"no database" * 1000)
    sent: asyncio.Queue[bytes] = asyncio.Queue()
    shared = SiteRegistry(tmp_path, lambda member, frame: sent.put_nowait(frame))
    shared.sharing.joined("b")
    shared.start()
    try:
        async with asyncio.timeout(SOON_S):
            while not caplog.text:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.1)
            await asyncio.sleep(1)  # it tries several times
            assert sent.empty()
            other = tmp_path / "other.db"
            with closing(Registry(other)) as opened:
                opened.admit("guest")
            other.replace(file)
            digest = await sent.get()
            assert len(digest) == 2049
            assert any(digest[1:]), "of the board that was let in"
    finally:
        await shared.close()
    assert caplog.text.count("Trying again") == 1
    assert "not a device registry" in caplog.text
