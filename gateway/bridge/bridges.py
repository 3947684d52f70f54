"""All bridges of a configuration.

In: the `[[bridge]]` sections. Out: running bridges. If a bridge was removed from the configuration,
its session, its files and the messages that it has set aside are deleted.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from gateway.bridge.aside_rows import Aside
from gateway.bridge.bridge import Bridge
from gateway.bridge.pairing import forget
from gateway.bridge.status import BridgeStatus
from gateway.config import BRIDGE, BridgeSection
from gateway.errors import OncewayError
from gateway.runtime.administration import end_session
from gateway.runtime.engine import Engine
from gateway.system.amounts import amount

log = logging.getLogger(__name__)


class Bridges:
    def __init__(self, engine: Engine, sections: list[BridgeSection]) -> None:
        self._engine = engine
        self._bridges = [Bridge(engine, section) for section in sections]

    async def start(self) -> None:
        """End the sessions of removed bridges, and start the configured bridges."""
        wanted = {bridge.section.client for bridge in self._bridges}
        for client in list(self._engine.broker.sessions):
            if client.startswith(BRIDGE) and client not in wanted:
                await end_session(self._engine, client)
        names = frozenset(bridge.section.name for bridge in self._bridges)
        self._forget_aside(names)
        with suppress(OSError):
            forget(self._engine.broker.config.gateway.data, names)
        for bridge in self._bridges:
            await bridge.start()

    def _forget_aside(self, names: frozenset[str]) -> None:
        """Delete the messages that removed bridges have set aside."""
        self._engine.begin()
        aside = Aside(self._engine.broker)
        for name in set(aside.bridges) - names:
            numbers = aside.numbers(name)
            with self._engine.broker.step:
                for number in numbers:
                    aside.forget(name, number)
            log.warning(
                "bridge %s was removed from the configuration: deleted %s that it had set aside",
                name,
                amount(len(numbers), "message"),
            )

    async def close(self) -> None:
        for bridge in self._bridges:
            await bridge.close()

    @property
    def status(self) -> list[BridgeStatus]:
        return [bridge.status for bridge in self._bridges]

    # -- messages that are set aside

    async def discard(self, name: str, numbers: list[int]) -> int:
        """Delete messages that a bridge has set aside, and wait until the deletion is on disk.
        Return the number of deleted messages. numbers: the messages to delete; empty for all.
        """
        done = self._named(name).aside.discard(numbers)
        await self._engine.commits.kept()
        return done

    async def again(self, name: str, numbers: list[int]) -> int:
        """Put messages that a bridge has set aside back into the bridge's queue, and wait until the
        change is on disk. Return the number of messages put back. numbers: the messages to put
        back; empty for all.
        """
        bridge = self._named(name)
        await self._engine.commits.kept()  # payloads are read from the disk
        session = self._engine.broker.sessions.get(bridge.section.client)
        if session is None:
            raise OncewayError("the bridge has no session now", f"bridge {name}", "Try again")
        try:
            return await bridge.aside.again(session, numbers)
        finally:
            await self._engine.commits.kept()

    def _named(self, name: str) -> Bridge:
        for bridge in self._bridges:
            if bridge.section.name == name:
                return bridge
        raise OncewayError("there is no such bridge", name, "See: onceway gateway status")
