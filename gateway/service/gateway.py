"""A gateway put together: configuration, store, broker, listeners.

In: a `Config`. Out: a running gateway, until SIGTERM or SIGINT; then a clean stop. Start and stop order is the point of this file: the
lock comes first and goes last, the store is read before anybody may connect, and every client is told goodbye before the last commit.
"""

import asyncio
import logging
import signal
import socket
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from typing import Any, Protocol

from gateway.broker.broker import Broker, Policy
from gateway.config import Config, ConfigError, ListenerSection
from gateway.errors import OncewayError
from gateway.links.activation import activated_sockets
from gateway.links.carrier import Accept
from gateway.links.handshake import Greeter
from gateway.links.serial_port import PortStatus, SerialListener
from gateway.links.tcp import TcpListener
from gateway.links.tls import Tls
from gateway.lock import ProcessLock
from gateway.mqtt.errors import MqttError
from gateway.service.access import ListenerAccess, Passwords
from gateway.service.clock import Clock
from gateway.service.devices import Admission, Registry
from gateway.service.engine import Engine
from gateway.service.notify import notify
from gateway.service.users import Users
from gateway.store.recovery import recover
from gateway.store.schema import FILE, StoreError, make_folder, open_store

log = logging.getLogger(__name__)


class Gateway:
    """A gateway of one configuration. Use: `await run()`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._stop = asyncio.Event()
        self._registry = Registry(config.gateway.data)
        self._passwords = Passwords(Users(config.users_file))
        self._access: list[ListenerAccess] = []
        self._tls: list[Tls] = []
        self._engine: Engine | None = None
        self._network: list[NetworkListener] = []
        self._serial: list[SerialListener] = []

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where it listens on the network."""
        return [address for listener in self._network for address in listener.addresses]

    @property
    def ports(self) -> list[PortStatus]:
        """Each serial port seen so far, with the counters of its link."""
        return [port for listener in self._serial for port in listener.ports]

    def stop(self) -> None:
        """Ask `run` to come to its end."""
        self._stop.set()

    def reload(self) -> None:
        """Read the users and the listeners' certificates again. What cannot be read stays as it is."""
        try:
            users = Users(self.config.users_file)
            changed = self._passwords.changed(users)
            self._passwords = Passwords(users)
            for access in self._access:
                access.passwords = self._passwords
            if self._engine is not None:
                self._engine.dismiss(changed)
            for tls in self._tls:
                tls.reload()
        except OncewayError as error:
            log.error("not reloaded: %s", error)
        else:
            log.info("users and certificates read again")

    async def run(self, started: Callable[["Gateway"], None] = lambda _: None) -> None:
        """Serve until `stop`. started: called when clients may connect."""
        config, loop = self.config, asyncio.get_running_loop()
        make_folder(config.gateway.data)
        with closing(ProcessLock(config.gateway.data / "gateway.lock")):
            clock = Clock(config.gateway.trust_clock)
            broker = _open_broker(config, clock.utc())
            clock.start(broker.now, loop.time())
            self._engine = engine = Engine(broker, clock, config.gateway.data)
            try:
                await self._listen(engine, Greeter(broker.spool.boot, utc=lambda: (clock.utc() or 0) // 1_000_000, admit=self._admits))
                log.info("gateway %s: start %d, %d sessions", config.gateway.name, broker.spool.boot, len(broker.sessions))
                notify("READY=1")
                started(self)
                await self._stop.wait()
                notify("STOPPING=1")
            finally:
                await engine.stop()
                for network in self._network:
                    await network.close()
                for serial in self._serial:
                    await serial.close()

    def _admits(self, name: str) -> bool:
        """Whether a board may greet at all; what it may do on its port is said at CONNECT."""
        return self._registry.admits(name, stranger=any(serial.open for serial in self.config.serial))

    def _listener(self, section: ListenerSection, accept: Accept, sockets: dict[str, list[socket.socket]]) -> "NetworkListener":
        """A listener that is not started yet. ConfigError when systemd has no socket of that name."""
        given = sockets.get(section.systemd or "", [])
        if section.systemd and not given:
            raise ConfigError(f"systemd hands over no socket named {section.systemd!r}", hint="Set FileDescriptorName= in the socket unit")
        options: dict[str, Any] = {"name": section.name, "sockets": given}
        if section.tls is not None:
            files = section.tls
            tls = Tls(files.certificate, files.key, client_ca=files.client_ca, client_required=files.client_required)
            self._tls.append(tls)
            options["tls"] = tls
        if section.type == "tcp":
            return TcpListener(accept, *section.address, **options)
        from gateway.links.websocket import WebSocketListener  # aiohttp takes 12 MB that a Pi without browsers does not spend

        return WebSocketListener(
            accept, *section.address, origins=section.origins, max_message=self.config.limits.packet_bytes + 5, **options
        )

    async def _listen(self, engine: Engine, greeter: Greeter) -> None:
        sockets = activated_sockets()
        for section in self.config.listener:
            access = ListenerAccess(section.anonymous, self._passwords)
            self._access.append(access)
            listener = self._listener(section, engine.accept(Policy(access, section.receive_maximum)), sockets)
            await listener.start()
            self._network.append(listener)
            log.info("listening on %s", ", ".join(f"{host}:{port}" for host, port, *_ in listener.addresses))
        for serial in self.config.serial:
            policy = Policy(Admission(self._registry, serial.open), serial.receive_maximum)
            port = SerialListener(engine.accept(policy), serial.port, greeter, baud=serial.baud, name=serial.port)
            await port.start()
            self._serial.append(port)
            log.info("serial ports %s at %d baud", serial.port, serial.baud)


class NetworkListener(Protocol):
    """What TCP and WebSocket listeners have in common."""

    @property
    def addresses(self) -> list[tuple[str, int]]: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...


def _open_broker(config: Config, utc: int | None) -> Broker:
    """A broker with everything that the store holds. StoreError when the store is damaged."""
    folder = config.gateway.data
    try:
        with closing(open_store(folder, config.gateway.name)) as database:
            return Broker(config, recover(database, utc, config.limits.inflight))
    except (sqlite3.DatabaseError, MqttError, KeyError, ValueError, struct.error) as error:
        raise StoreError(f"the store is damaged ({error})", str(folder / FILE), f"See: onceway store salvage --data {folder}") from error


async def serve(config: Config) -> None:
    """Run a gateway until SIGTERM or SIGINT."""
    gateway = Gateway(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, gateway.stop)
    loop.add_signal_handler(signal.SIGHUP, gateway.reload)
    await gateway.run()
