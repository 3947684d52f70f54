"""A gateway put together: configuration, store, broker, listeners.

In: a `Config`. Out: a running gateway, until SIGTERM or SIGINT; then a clean stop. This file
defines the order of start and stop: the lock is taken first and released last, the store is read
before a client may connect, and every client gets its DISCONNECT before the last commit.
"""

import asyncio
import logging
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from gateway.access.authentication import Passwords
from gateway.access.users import Users
from gateway.boards.admission import Registry, Watch, commanded
from gateway.boards.device_list import DeviceList
from gateway.bridge.bridges import Bridges
from gateway.bridge.pairing import forget
from gateway.broker.broker import Broker
from gateway.broker.core import Core
from gateway.broker.neighbours import Neighbours, alone
from gateway.broker.store_rows import Recovered
from gateway.config import Config
from gateway.errors import OncewayError
from gateway.links.greeter import Greeter
from gateway.links.serial_port import PortStatus
from gateway.mqtt.reason import ReasonCode
from gateway.runtime.administration import dismiss
from gateway.runtime.clock import Clock
from gateway.runtime.engine import Engine
from gateway.runtime.garbage import Garbage
from gateway.runtime.internal_client import forget_members
from gateway.runtime.use_of_spool import tell_use_of_spool
from gateway.runtime.watchdog import Watchdog
from gateway.service.change import CHANGEABLE, needs_restart
from gateway.service.listeners import Listeners
from gateway.service.management import Management
from gateway.store import wal
from gateway.store.board_queues import waiting_for_boards
from gateway.store.check import named
from gateway.store.generation import Generation, why_other_generation
from gateway.store.move_rows import had_site
from gateway.store.recovery import Refused, recover
from gateway.store.schema import FILE, StoreError, make_folder, open_store, unusable
from gateway.store.space import release
from gateway.store.uptime import last_seen, uptime
from gateway.system.accounts import leave_for_uplink
from gateway.system.causes import cause
from gateway.system.jobs import InternalErrors
from gateway.system.lock import ProcessLock
from gateway.system.notify import notify

if TYPE_CHECKING:
    from gateway.site.wiring.membership import Membership

log = logging.getLogger(__name__)

_PASSWORD = ReasonCode.NOT_AUTHORIZED, "the user was removed, or the password was changed"
_STOPS = ReasonCode.SERVER_SHUTTING_DOWN, "the gateway is shutting down"
_NOT_TAKEN = ReasonCode.NOT_AUTHORIZED, "the listener no longer accepts such clients"


class BrokenState(OncewayError):
    """Error: the state in memory may be inconsistent after an internal error."""

    exit_code = 70
    """Exit code of the gateway after an internal error (EX_SOFTWARE of sysexits.h)."""

    def __init__(self) -> None:
        super().__init__(
            "the gateway has stopped after an internal error: data in memory may be half"
            " changed. Nothing acknowledged is lost",
            hint="The lines above say what happened: please report them. The next start continues"
            " from the store; systemd starts the gateway by itself",
        )


class Gateway:
    """A gateway, from its start to its stop (`run`). read: returns the configuration as it is in
    the file now, for `reload`.
    """

    def __init__(self, config: Config, read: Callable[[], Config] | None = None) -> None:
        self.config = config
        self._read = read or (lambda: self.config)
        self._stop = asyncio.Event()
        self._reloading = asyncio.Lock()
        self._registry = Registry(config.gateway.data)
        self._passwords = Passwords(Users(config.users_file), config.access)
        self._engine: Engine | None = None
        self._restart: list[str] = []
        """Configuration keys that have changed and take effect at the next start only."""
        self._running: asyncio.Task[None] | None = None
        self._listeners: Listeners | None = None
        self._devices: DeviceList | None = None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Addresses of the gateway's listeners on the network."""
        return self._listeners.addresses if self._listeners else []

    @property
    def ports(self) -> list[PortStatus]:
        """Each serial port seen so far, with the counters of its link."""
        return self._listeners.ports if self._listeners else []

    def stop(self) -> None:
        self._stop.set()

    async def reload(self) -> tuple[OncewayError | None, list[str]]:
        """Load configuration, users and certificates again, and use them. If there is a mistake,
        the old files stay in force. Return the mistake, and the keys that take effect only at the
        next start.
        """
        async with self._reloading:
            engine, listeners = self._engine, self._listeners
            if engine is None or listeners is None or self._stop.is_set():
                return OncewayError("the gateway is starting or stopping. Try again later"), []
            try:
                found = self._read()
                config = self.config.model_copy(
                    update={name: getattr(found, name) for name in CHANGEABLE}
                )
                passwords = Passwords(Users(config.users_file), config.access, self._passwords)
                await listeners.change(config, passwords)
            except OncewayError as error:
                for text in error.lines:
                    log.error("not reloaded, the old configuration stays in force: %s", text)
                notify("STATUS=Not reloaded: the new configuration cannot be used")
                return error, []
            changed_users, self._passwords = self._passwords.changed(passwords), passwords
            self._restart[:] = unchanged = needs_restart(self.config, found)
            spooled, self.config = bool(self.config.spooled), config
            engine.begin()
            with engine.broker.step:
                engine.broker.reconfigure(config)
            if spooled != bool(config.spooled):
                tell_use_of_spool(engine.broker)
            if self._devices is not None:
                self._devices.changed()
            dismiss(
                engine,
                lambda one: one.user in changed_users and one.peer.certificate_name is None,
                *_PASSWORD,
            )
            dismiss(engine, lambda one: not one.policy.access.holds(one), *_NOT_TAKEN)
            log.info("configuration, users and certificates read again")
            for key in unchanged:
                log.warning("%s has changed: it takes effect at the next start of the service", key)
            waits = f"Reloaded; need a restart: {', '.join(unchanged)}" if unchanged else ""
            notify(f"STATUS={waits}")
            return None, unchanged

    async def run(self, started: Callable[["Gateway"], None] = lambda _: None) -> None:
        """Serve until `stop`. started: called when clients may connect. Raises BrokenState if the
        engine has failed (`Engine.fail`).
        """
        self._running = asyncio.current_task()
        try:
            await self._serve(started)
        finally:
            if self._engine is not None and self._engine.broken:
                raise BrokenState

    def _end(self) -> None:
        """End `run` at once. Called when the engine has failed."""
        self._stop.set()
        if self._running is not None:
            self._running.cancel()

    async def _serve(self, started: Callable[["Gateway"], None]) -> None:
        config, loop = self.config, asyncio.get_running_loop()
        make_folder(config.gateway.data)
        with closing(ProcessLock(config.gateway.data / "gateway.lock")):
            clock = Clock(config.gateway.trust_clock)
            broker, restored = _open_broker(config, clock)
            broker.registered = self._registry.reserves
            broker.router.heard["commands"] = partial(commanded, self._registry)
            self._registry.boards.last_publications.recall(config.gateway.data)
            if restored is not None:
                log.warning(
                    "a new generation of the store begins: %s. Packet identifiers of messages in"
                    " flight are forgotten, and boards begin new sessions: commands that"
                    " waited for boards are gone",
                    restored,
                )
            clock.start(broker.now, loop.time())
            self._engine = engine = Engine(broker, clock, config.gateway.data, failed=self._end)
            handshakes, utc = count(1), lambda: (clock.utc() or 0) / 1_000_000
            greeter = partial(Greeter, broker.spool.boot, utc=utc, handshakes=handshakes)
            self._listeners = listeners = Listeners(
                engine,
                self._registry,
                lambda access: greeter(
                    admit=access.greets, key=access.key, again=self._registry.refresh_now
                ),
                utc,
                config.gateway.data,
            )
            errors = InternalErrors()
            loop.set_exception_handler(errors.take)
            membership = _membership(config, engine, restored is not None)
            bridges = Bridges(engine, config.bridge)
            management = Management(
                config,
                engine,
                lambda: self.ports,
                self._registry,
                lambda: self._passwords,
                listeners.lending,
                restored,
                lambda: listeners.radios,
                lambda: bridges.status,
                membership,
                listeners.overhearers,
                bridges,
                self._restart,
                lambda: listeners.waiting,
            )
            management.watch(errors)
            management.control.reload = self.reload
            try:
                if membership is not None:
                    # before a client connects whose session is at another member
                    await membership.start()
                # before a message is published that a bridge would miss
                await bridges.start()
                await listeners.change(config, self._passwords)
                await management.start()
                if not config.spooled:
                    tell_use_of_spool(broker)
                if membership is not None:
                    membership.started()
                log.info(
                    "gateway %s: start %d, %d sessions",
                    config.gateway.name,
                    broker.spool.boot,
                    len(broker.sessions),
                )
                notify("READY=1")
                started(self)
                parts = {
                    "event loop's timers": lambda: engine.stalled_s,
                    "store's writer": lambda: engine.commits.stalled_s,
                    "links": lambda: listeners.stalled_s,
                }
                with (
                    closing(
                        DeviceList(engine, self._registry, config.gateway.data, clock.utc)
                    ) as self._devices,
                    closing(
                        Watch(
                            config.gateway.data,
                            self._registry,
                            engine,
                            lambda: self.ports,
                            partial(_tell_change, self._devices, membership),
                            membership.holders if membership else None,
                            (lambda: membership.is_first) if membership else (lambda: True),
                        )
                    ) as watch,
                    closing(Watchdog(parts)),
                    closing(Garbage()),
                ):
                    management.control.look = watch.look
                    management.watch(*self._devices.jobs)
                    await self._stop.wait()
                notify("STOPPING=1")
                if membership is not None and membership.has_company:
                    async with self._reloading:
                        await membership.hand_over(
                            listeners.close_doors(),
                            lambda clients: listeners.send_away(clients, *_STOPS),
                        )
            finally:
                async with self._reloading:
                    try:
                        if not engine.broken:  # otherwise they end with the process
                            await bridges.close()
                            if membership is not None:
                                await membership.close()
                    finally:
                        await engine.stop()
                        await listeners.close()
                        await management.close()


def _tell_change(devices: DeviceList, membership: "Membership | None") -> None:
    """Publish the changed device registry, and send it to the other members."""
    devices.changed()
    if membership is not None:
        membership.registry.changed()


def _membership(config: Config, engine: Engine, restored: bool) -> "Membership | None":
    """Return the gateway's part in its site. Without a site, return None; also end the sessions of
    peer gateways of an earlier site, and the session moves with them."""
    if config.site is None:
        forget_members(engine.broker)
        engine.broker.neighbours.leave()
        return None
    from gateway.site.wiring.membership import Membership

    return Membership(config, engine, restored)


def _neighbours(config: Config, state: Recovered) -> Callable[[Core, Recovered], Neighbours]:
    """Return the maker of `Neighbours`: `alone` if the gateway has never been in a site."""
    if config.site is None and not had_site(state):
        return alone
    from gateway.site.moving.neighbours import SiteNeighbours

    return SiteNeighbours


def _open_broker(config: Config, clock: Clock) -> tuple[Broker, str | None]:
    """Return a broker with the state of the store. Also return why a new store generation begins,
    or None if none begins. Raises StoreError if the store is damaged or its disk is full.
    """
    folder = config.gateway.data
    release(folder)  # a start needs some of the reserve on a full disk
    try:
        leave_for_uplink(folder)
        log_gone = wal.vanished(folder / FILE)
        with closing(open_store(folder, config.gateway.name)) as database:
            restored = why_other_generation(database, folder, log_gone)
            clock.know(last_seen(database))
            if restored is not None:
                forget(folder)  # before the start that makes the new generation permanent
                for line in waiting_for_boards(database):
                    log.warning("message dropped, because boards begin new sessions: %s", line)
            try:
                state = recover(
                    database,
                    clock.utc(),
                    config.limits.inflight,
                    uptime(),
                    forget=restored is not None,
                    by_user=config.shares_spool,
                )
                broker = Broker(config, state, _neighbours(config, state))
            except (OncewayError, Refused):
                raise
            except Exception as error:
                raise unusable(folder, named(database, error)) from error
            Generation(folder, database).change()
            return broker, restored
    except OSError as error:
        why = cause(error)
        raise StoreError(
            f"cannot write the files beside the store: {why.reason} ({error.strerror})",
            str(folder),
            why.todo,
        ) from error
    except (sqlite3.DatabaseError, ValueError) as error:
        raise unusable(folder, error) from error


async def serve(config: Config, read: Callable[[], Config] | None = None) -> None:
    """Run a gateway until SIGTERM or SIGINT. On SIGHUP, use the configuration from `read`."""
    gateway = Gateway(config, read)
    loop = asyncio.get_running_loop()
    reloads: set[asyncio.Task[Any]] = set()

    def reload() -> None:
        task = loop.create_task(gateway.reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, gateway.stop)
    loop.add_signal_handler(signal.SIGHUP, reload)
    await gateway.run()
