"""A gateway put together: configuration, store, broker, listeners.

In: a `Config`. Out: a running gateway, until SIGTERM or SIGINT; then a clean stop. Start and stop order is the point of this file: the
lock comes first and goes last, the store is read before anybody may connect, and every client is told goodbye before the last commit.
"""

import asyncio
import logging
import signal
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing

from gateway.broker.access import Anonymous
from gateway.broker.broker import Broker, Policy
from gateway.config import Config
from gateway.links.handshake import Greeter
from gateway.links.serial_port import SerialListener
from gateway.links.tcp import TcpListener
from gateway.lock import ProcessLock
from gateway.mqtt.errors import MqttError
from gateway.service.clock import Clock
from gateway.service.devices import Admission, Registry
from gateway.service.engine import Engine
from gateway.service.notify import notify
from gateway.store.recovery import recover
from gateway.store.schema import FILE, StoreError, make_folder, open_store

log = logging.getLogger(__name__)


class Gateway:
    """A gateway of one configuration. Use: `await run()`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._stop = asyncio.Event()
        self._registry = Registry(config.gateway.data)
        self._tcp: list[TcpListener] = []
        self._serial: list[SerialListener] = []

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where it listens on TCP."""
        return [address for listener in self._tcp for address in listener.addresses]

    def stop(self) -> None:
        """Ask `run` to come to its end."""
        self._stop.set()

    async def run(self, started: Callable[["Gateway"], None] = lambda _: None) -> None:
        """Serve until `stop`. started: called when clients may connect."""
        config, loop = self.config, asyncio.get_running_loop()
        make_folder(config.gateway.data)
        with closing(ProcessLock(config.gateway.data / "gateway.lock")):
            clock = Clock(config.gateway.trust_clock)
            broker = _open_broker(config, clock.utc())
            clock.start(broker.now, loop.time())
            engine = Engine(broker, clock, config.gateway.data)
            try:
                await self._listen(engine, Greeter(broker.spool.boot, utc=lambda: (clock.utc() or 0) // 1_000_000, admit=self._admits))
                log.info("gateway %s: start %d, %d sessions", config.gateway.name, broker.spool.boot, len(broker.sessions))
                notify("READY=1")
                started(self)
                await self._stop.wait()
                notify("STOPPING=1")
            finally:
                await engine.stop()
                for tcp in self._tcp:
                    await tcp.close()
                for serial in self._serial:
                    await serial.close()

    def _admits(self, name: str) -> bool:
        """Whether a board may greet at all; what it may do on its port is said at CONNECT."""
        return self._registry.admits(name, stranger=any(serial.open for serial in self.config.serial))

    async def _listen(self, engine: Engine, greeter: Greeter) -> None:
        for section in self.config.listener:
            policy = Policy(Anonymous(section.anonymous), section.receive_maximum)
            listener = TcpListener(engine.accept(policy), *section.address, name=section.bind)
            await listener.start()
            self._tcp.append(listener)
            log.info("listening on %s", ", ".join(f"{host}:{port}" for host, port, *_ in listener.addresses))
        for serial in self.config.serial:
            policy = Policy(Admission(self._registry, serial.open), serial.receive_maximum)
            port = SerialListener(engine.accept(policy), serial.port, greeter, baud=serial.baud, name=serial.port)
            await port.start()
            self._serial.append(port)
            log.info("serial ports %s at %d baud", serial.port, serial.baud)


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
    await gateway.run()
