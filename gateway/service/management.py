"""Management endpoints of a running gateway: web page, metrics, control socket, notifications. In:
the gateway's parts. Out: the endpoints that the configuration asks for, open until `close`. Modules
that take much memory are imported only if they are used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from gateway.access.authentication import Passwords
from gateway.boards.admission import Registry
from gateway.bridge.status import BridgeStatus
from gateway.config import Config, split_bind
from gateway.errors import OncewayError
from gateway.links.address import format_address
from gateway.links.lora.status import Overheard, RadioStatus
from gateway.links.serial_port import PortStatus
from gateway.links.tls import Tls, certificate_names
from gateway.runtime.administration import end_session
from gateway.runtime.engine import Engine
from gateway.service.control import Control, Lending, SetAside
from gateway.system.jobs import Job
from gateway.web.health import problems
from gateway.web.page_flash import PageFlash
from gateway.web.source import Source

if TYPE_CHECKING:
    from gateway.config import (
        HomeAssistantSection,
        MirrorSection,
        NotifySection,
        PageSection,
    )
    from gateway.mirror.json_topics import Mirror
    from gateway.site.wiring.membership import Membership
    from gateway.web.messages import Messages

log = logging.getLogger(__name__)


class _Closing(Protocol):
    async def close(self) -> None: ...


class Management:
    """The management endpoints. ports: returns the serial ports seen since the start. passwords:
    returns the present passwords. lending: lends serial ports. restored: why the store began a new
    generation. membership: None without a site. set_aside: messages of bridges. restart:
    configuration keys that take effect at the next start only. absent: returns a sentence for each
    listener whose address this machine does not have yet.
    """

    def __init__(
        self,
        config: Config,
        engine: Engine,
        ports: Callable[[], list[PortStatus]],
        registry: Registry,
        passwords: Callable[[], Passwords],
        lending: Lending,
        restored: str | None = None,
        radios: Callable[[], list[RadioStatus]] = list,
        bridges: Callable[[], list[BridgeStatus]] = list,
        membership: Membership | None = None,
        overhearers: set[Callable[[Overheard], None]] | None = None,
        set_aside: SetAside | None = None,
        restart: Sequence[str] = (),
        absent: Callable[[], list[str]] = list,
    ) -> None:
        self._config = config
        self._source = Source(
            engine.broker,
            engine.commits.times,
            lambda: engine.commits.wait_s,
            ports,
            config.gateway.data,
            restored,
            registry.boards,
            radios,
            bridges,
            membership.rows if membership else list,
            set() if overhearers is None else overhearers,
            registry.expected,
            history=registry.history,
            restart=restart,
            absent=[absent],
            jobs=[*engine.jobs, *registry.jobs, *(membership.jobs if membership else ())],
            doubt=lambda: engine.clock.doubt,
        )
        self._membership = membership
        self._registry = registry
        self._engine = engine
        self._passwords = passwords
        self.control = Control(
            config.gateway.data, engine, self._source, lending, membership, set_aside
        )
        self._flash = PageFlash(config.gateway.data, registry, ports)
        self._open: list[_Closing] = [self.control, self._flash]

    async def start(self) -> None:
        """Start the control socket, notifications, mirror, page and metrics. Raises OncewayError if
        an address of page or metrics is in use; a failure of the control socket is only logged.
        """
        try:
            await self.control.start()
        except OncewayError as error:  # clients and boards can still be served
            log.error(
                "%s. `onceway session` and `onceway gateway status` do not reach this gateway",
                error,
            )
        config = self._config
        if config.notify.is_wanted:
            self._start_notify(config.notify)
        if config.mirror is not None or config.page is not None:
            mirror = self._start_mirror(config.mirror)
            if config.home_assistant is not None and config.mirror is not None:
                self._start_home(config.home_assistant, mirror, config.mirror.topic)
            if config.page is not None:
                await self._start_page(config.page, mirror)
        if config.web is not None:
            await self._start_web(config.web.bind)

    def watch(self, *jobs: Job) -> None:
        """Add background jobs whose problems are shown in the status."""
        self._source.jobs.extend(jobs)

    async def close(self) -> None:
        for part in self._open:
            await part.close()

    def _start_mirror(self, section: MirrorSection | None) -> Mirror:
        from gateway.mirror.json_topics import Mirror
        from gateway.mirror.last import LastReadings

        is_open = any(serial.open for serial in self._config.serial)
        last = LastReadings(self._config.gateway.data)
        last.axis = lambda: self._engine.broker.now
        mirror = Mirror(
            self._engine,
            last,
            section.topic if section is not None else None,
            lambda name: self._registry.tolerates({name}, is_open),
            lambda name: not self._registry.expected.is_problem(name),
        )
        mirror.start()
        self.watch(*mirror.jobs)
        self._open.append(mirror)
        self._registry.boards.on_publication = mirror.take
        return mirror

    def _start_notify(self, section: NotifySection) -> None:
        from gateway.notify.teller import Teller
        from gateway.web.told import Told

        teller = Teller(
            self._config.gateway.data,
            self._config.gateway.name,
            section,
            Told(self._source).problems,
        )
        teller.start()
        self.watch(*teller.jobs)
        self._source.untold.append(lambda: teller.failures)
        self._source.ways.extend(teller.ways)
        self.control.test_notify = teller.test
        self._open.append(teller)

    def _start_home(self, section: HomeAssistantSection, mirror: Mirror, topic: str) -> None:
        from gateway.mirror.home_assistant import HomeAssistant

        home = HomeAssistant(
            self._config.gateway.name,
            section,
            self._engine,
            mirror,
            topic,
            self._registry,
            lambda: [item.what for item in problems(self._source)],
            self._flash,
        )
        home.start()
        self.watch(home.job)
        self._open.append(home)

    async def _start_page(self, section: PageSection, mirror: Mirror) -> None:
        from gateway.boards import log as board_log
        from gateway.boards.bundled_firmware import kinds
        from gateway.boards.commands import command
        from gateway.web.board_rows import BoardRows
        from gateway.web.clients import Clients
        from gateway.web.live import Live
        from gateway.web.log_lines import LogLines
        from gateway.web.page import Deeds, PageServer
        from gateway.web.page_logins import PageLogins
        from gateway.web.page_messages import publish
        from gateway.web.page_registry import PageRegistry

        tls, names = None, []
        if section.certificate is not None and section.key is not None:
            tls = Tls(section.certificate, section.key, name=f"page {section.bind}")
            names = certificate_names(section.certificate)
        await asyncio.to_thread(kinds)  # `kinds` reads files, at its first call only
        boards = BoardRows(self._source, mirror.last, self._registry.registered, kinds)
        mirror.on_taken.append(boards.touch)
        self._registry.boards.answered = boards.touch
        live = Live(self._source, mirror.last, boards)
        logins = PageLogins(
            self._passwords,
            section.operators,
            self._config.gateway.data / "page-logins.json",
            section.viewers if section.names_roles else ["*"],
        )
        page = PageServer(
            *split_bind(section.bind),
            tls,
            live,
            Clients(self._source, partial(end_session, self._engine)),
            LogLines(),
            logins,
            Deeds(
                partial(command, self._engine),
                partial(board_log.whole, self._engine),
                PageRegistry(self._config.gateway.data, self._registry, self._source.ports).change,
                self._where,
                self._watch,
                partial(publish, self._engine),
                self._flash,
                self._membership.shown if self._membership else None,
                self.control.test_notify,
            ),
            [*self._config.gateway.hosts, *names],
            section.proxies,
        )
        await page.start()
        self._source.absent.append(lambda: [page.waits_for] if page.waits_for else [])
        live.start()
        self.watch(live.job, *logins.jobs)
        self._open.append(page)
        for address in page.addresses:
            scheme = "http" if tls is None else "https"
            log.info("web page: %s://%s/", scheme, format_address(address))

    async def _start_web(self, bind: str) -> None:
        # aiohttp and the Prometheus client take 15 MB, which a gateway without metrics saves
        from gateway.web.server import WebServer

        web = WebServer(*split_bind(bind), self._source, self._config.gateway.hosts)
        await web.start()
        self._source.absent.append(lambda: [web.waits_for] if web.waits_for else [])
        self._open.append(web)
        for address in web.addresses:
            log.info("metrics at http://%s/metrics, health at /healthz", format_address(address))

    def _watch(self, user: str, topic_filter: str, messages: Messages) -> Callable[[], None]:
        """Start a live view of messages. Return a function that stops it."""
        from gateway.web.page_messages import Watch

        return Watch(self._engine, user, topic_filter, messages).stop

    def _where(self, device: str, sequence: int) -> dict[str, Any]:
        """Return the places that have a reading (`gateway/web/where.py`). Runs on any thread."""
        from gateway.web.where import where

        return where(self._config, device, sequence)
