"""How a running gateway is looked at from outside. In: its parts. Out: what the configuration asks
for, open until `close`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.config import Config, split_bind
from gateway.errors import OncewayError
from gateway.links.address import format_address
from gateway.links.serial_port import PortStatus
from gateway.service.control import Control
from gateway.service.devices import Registry
from gateway.service.engine import Engine
from gateway.web.health import problems
from gateway.web.source import Source

if TYPE_CHECKING:
    from gateway.service.home_assistant import HomeAssistant
    from gateway.service.mirror import Mirror
    from gateway.web.server import WebServer

log = logging.getLogger(__name__)


class Outside:
    """ports: serial ports seen so far. restored: why this is another life of the store."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        ports: Callable[[], list[PortStatus]],
        registry: Registry,
        restored: str | None = None,
    ) -> None:
        self._config = config
        self._source = Source(
            engine.broker,
            engine.commit_times,
            lambda: engine.commit_waits_s,
            ports,
            config.gateway.data,
            restored,
            registry.boards,
        )
        self._registry = registry
        self._engine = engine
        self._mirror = self._made_mirror()
        self._home: HomeAssistant | None = None
        self._control = Control(config.gateway.data, engine, self._source)
        self._web: WebServer | None = None

    async def start(self) -> None:
        """Open. Raises OncewayError."""
        try:
            await self._control.start()
        except OncewayError as error:  # no reason to serve nobody
            log.error(
                "%s. `onceway session` and `onceway gateway status` do not reach this gateway",
                error,
            )
        if self._mirror is not None:
            self._home = self._made_home(self._mirror)
            self._mirror.start()
            self._registry.boards.taken = self._mirror.take
        if self._home is not None:
            self._home.start()
        section = self._config.web
        if section is not None:
            # with aiohttp, 15 MB that a gateway without metrics does not spend
            from gateway.web.server import (
                WebServer,
            )

            self._web = WebServer(*split_bind(section.bind), self._source)
            await self._web.start()
            for address in self._web.addresses:
                log.info(
                    "metrics at http://%s/metrics, health at /healthz", format_address(address)
                )

    def _made_mirror(self) -> Mirror | None:
        config = self._config
        if config.mirror is None:
            return None
        # with its decoder, what a gateway without a mirror does not spend
        from gateway.mirror.last import LastReadings
        from gateway.service.mirror import Mirror

        is_open = any(section.open for section in config.serial)
        return Mirror(
            self._engine,
            LastReadings(config.gateway.data),
            config.mirror.topic,
            lambda name: self._registry.tolerates({name}, is_open),
        )

    def _made_home(self, mirror: Mirror) -> HomeAssistant | None:
        config = self._config
        if config.home_assistant is None:
            return None
        from gateway.service.home_assistant import HomeAssistant

        return HomeAssistant(
            config.gateway.name,
            config.home_assistant,
            self._engine,
            mirror,
            self._registry,
            lambda: [item.what for item in problems(self._source)],
        )

    async def close(self) -> None:
        await self._control.close()
        if self._home is not None:
            self._home.close()
        if self._mirror is not None:
            self._mirror.close()
        if self._web is not None:
            await self._web.close()
