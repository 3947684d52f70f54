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
from gateway.service.boards import Boards
from gateway.service.control import Control
from gateway.service.engine import Engine
from gateway.web.source import Source

if TYPE_CHECKING:
    from gateway.web.server import WebServer

log = logging.getLogger(__name__)


class Outside:
    """ports: serial ports seen so far. restored: why this is another life of the store."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        ports: Callable[[], list[PortStatus]],
        boards: Boards,
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
            boards,
        )
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

    async def close(self) -> None:
        await self._control.close()
        if self._web is not None:
            await self._web.close()
