"""The listeners, serial ports and radios of a configuration, and their change at a reload.

In: a `Config` at the start, and a new `Config` at each reload. Out: connections, handed to the
engine with the policy of their section.

Rules of a change: all mistakes are found before a running part is touched. If an address can't be
bound, the old listeners are opened again. A section that keeps its address and type keeps its
socket and its connections; its other changes apply to new connections. Connections of a removed
section end with 0x98, and their sessions stay.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from gateway.access.authentication import ListenerAccess, Passwords
from gateway.access.identifiers import Identifiers
from gateway.access.rules import Policy
from gateway.boards.admission import DeviceAccess, Registry
from gateway.broker.session import Attached
from gateway.config import Config, ConfigError, ListenerSection, LoraSection, SerialSection
from gateway.errors import OncewayError
from gateway.links.activation import activated_sockets
from gateway.links.address import format_address
from gateway.links.greeter import Greeter
from gateway.links.lora.status import Overheard, RadioStatus
from gateway.links.serial_port import PortStatus, SerialListener
from gateway.links.tcp import TcpListener
from gateway.links.tls import Tls
from gateway.links.transport import Receiver, Transport
from gateway.mqtt.reason import ReasonCode
from gateway.runtime.administration import dismiss
from gateway.runtime.engine import Engine
from gateway.store.uptime import uptime
from gateway.system.regions import REGIONS

if TYPE_CHECKING:
    from gateway.links.lora.port import LoraListener
    from gateway.links.lora.turns import Others
    from gateway.links.websocket import WebSocketListener

log = logging.getLogger(__name__)

BOARD_FLIGHTS, BOARD_ALIASES = 2, 8
"""Limits of a radio board: messages in flight, and topic aliases. With two messages in flight, the
PUBREL of one is sent with the PUBLISH of the next.
"""

_GONE = ReasonCode.ADMINISTRATIVE_ACTION, "the listener or port is no longer in the configuration"

GreeterFor = Callable[[DeviceAccess], Greeter]
"""A function that makes the greeter of a serial port from the port's access rules."""


class NetworkListener(Protocol):
    """The common interface of TCP and WebSocket listeners."""

    @property
    def addresses(self) -> list[tuple[str, int]]: ...

    @property
    def waits_for(self) -> str | None: ...

    @property
    def stalled_s(self) -> float: ...

    async def start(self, *, waits: bool = False) -> None: ...

    async def change(self, tls: Tls | None, proxy_protocol: Collection[str]) -> None: ...

    def stop(self) -> None: ...

    async def close(self) -> None: ...


class _Door:
    """Base class of listeners, ports and radios in use. Hands their connections to the engine."""

    policy: Policy

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def accept(self, transport: Transport) -> Receiver:
        return self._engine.accept(self.policy)(transport)


class _Network(_Door):
    """A [[listener]] section in use."""

    listener: NetworkListener

    def __init__(
        self,
        engine: Engine,
        section: ListenerSection,
        passwords: Passwords,
        identifiers: Identifiers,
    ) -> None:
        super().__init__(engine)
        self.access = ListenerAccess(section, passwords, identifiers)
        self.policy = _policy(self.access)

    @property
    def place(self) -> tuple[object, ...]:
        """Name, type and TLS of the listener. If one of them changes, a new listener is made."""
        return _place(self.access.section)

    async def take(
        self,
        section: ListenerSection,
        tls: Tls | None,
        config: Config,
        passwords: Passwords,
        identifiers: Identifiers,
    ) -> None:
        """Apply a changed section to new connections."""
        self.access.section, self.access.passwords = section, passwords
        self.access.identifiers = identifiers
        self.policy = _policy(self.access)
        if section.type == "websocket":
            websocket = cast("WebSocketListener", self.listener)
            websocket.origins = section.origins
            websocket.max_message = _longest_message(section, config)
            websocket.change_proxies(section.proxies)
        await self.listener.change(tls, section.proxy_protocol)


def _policy(access: ListenerAccess) -> Policy:
    section = access.section
    return Policy(
        access,
        section.receive_maximum,
        section.connections,
        section.packet_bytes,
        section.keep_alive_s,
        reads_reasons=section.refuse == "reason code",
    )


class _Serial(_Door):
    """A [[serial]] section in use."""

    listener: SerialListener

    def __init__(self, engine: Engine, section: SerialSection, registry: Registry) -> None:
        super().__init__(engine)
        self.access = DeviceAccess(registry, section.open)
        self.take(section)

    def take(self, section: SerialSection) -> None:
        """Use this section for new connections."""
        self.section = section
        self.access.stranger = section.open
        self.policy = Policy(self.access, section.receive_maximum)


def _place(section: ListenerSection) -> tuple[object, ...]:
    return section.name, section.type, section.tls is not None


class _Lora(_Door):
    """A [[lora]] section in use."""

    listener: LoraListener

    def __init__(self, engine: Engine, section: LoraSection, registry: Registry) -> None:
        super().__init__(engine)
        self.section = section
        self.access = DeviceAccess(registry, False)
        self.policy = Policy(
            self.access, receive_maximum=BOARD_FLIGHTS, device_aliases=BOARD_ALIASES
        )
        self._names = {number: name for name, number in section.boards.items()}
        self._registry = registry

    def name(self, number: int) -> str | None:
        """Return the name of the board with this number in the configuration or the registry."""
        return self._names.get(number) or self._registry.name(self.section.network, number)

    def others(self, config: Config) -> Others | None:
        """Return the other gateways of the site, whose radios hear the same boards, or None."""
        if config.site is None or len(config.site.members) < 2:
            return None
        from gateway.links.lora.turns import Others

        names = sorted(config.site.members)
        return Others(len(names), names.index(config.gateway.name), self._holds)

    def _holds(self, number: int) -> bool:
        """Whether this gateway has the session of a board."""
        session = self._engine.broker.sessions.get(self.name(number) or "")
        return session is not None and not session.ended

    def key(self, number: int) -> bytes | None:
        """Return the key of the board with this number; None if there is none that may connect."""
        name = self.name(number)
        if name is None or not self._registry.admits(name, False):
            return None
        return self._registry.key(name)


class Listeners:
    """All listeners, serial ports and radios. The first call of `change` opens them. greeter:
    creates the greeter of a serial port. utc: returns the seconds since 1970, 0 while unknown.
    folder: folder for the records of airtime.
    """

    def __init__(
        self,
        engine: Engine,
        registry: Registry,
        greeter: GreeterFor,
        utc: Callable[[], float],
        folder: Path,
    ) -> None:
        self._utc = utc
        self._folder = folder
        self._lora: list[_Lora] = []
        self.overhearers: set[Callable[[Overheard], None]] = set()
        """Receivers of all frames that the radios hear."""
        self._disk = ThreadPoolExecutor(1, "airtime")
        self._engine = engine
        self._registry = registry
        self._greeter = greeter
        self._activated = activated_sockets()
        self._network: list[_Network] = []
        self._serial: list[_Serial] = []
        self._started = False
        self._lent: set[str] = set()
        """Device files that are lent to other processes."""

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Addresses of the listeners on the network."""
        return [address for item in self._network for address in item.listener.addresses]

    @property
    def ports(self) -> list[PortStatus]:
        """The status of each serial port that was seen since the start."""
        return [port for item in self._serial for port in item.listener.ports]

    @property
    def stalled_s(self) -> float:
        """Longest time in seconds for which a listener or port has made no progress."""
        network = [item.listener.stalled_s for item in self._network]
        return max(network + [item.listener.stalled_s for item in self._serial], default=0.0)

    @property
    def waiting(self) -> list[str]:
        """Sentences, one for each listener whose address this machine does not have yet."""
        found = [item.listener.waits_for for item in self._network]
        return [text for text in found if text is not None]

    @property
    def radios(self) -> list[RadioStatus]:
        """Status of each configured radio."""
        return [item.listener.status for item in self._lora]

    def _overhear(self, overheard: Overheard) -> None:
        for take in self.overhearers:
            take(overheard)

    async def change(self, config: Config, passwords: Passwords) -> None:
        """Apply the listeners of a configuration. If it raises OncewayError, the old listeners stay
        open. At the start, a listener waits for an address that the machine does not have yet. At a
        reload, such an address is a mistake, because a person can correct it at once.
        """
        names = Identifiers(config.access, passwords.has, self._registry.reserves)
        read = [certificates(section) for section in config.listener]
        staying, coming = [], []
        going = list(self._network)
        for section, tls in zip(config.listener, read, strict=True):
            found = next((item for item in going if item.place == _place(section)), None)
            if found is None:
                coming.append(self._new_network(section, tls, config, passwords, names))
            else:
                going.remove(found)
                staying.append((found, section, tls))
        await self._replace(going, coming, waits=not self._started)
        self._started = True
        for item, section, tls in staying:
            await item.take(section, tls, config, passwords, names)
        self._network = [item for item, _, _ in staying] + coming
        closed = [item.access for item in going]
        dismiss(self._engine, lambda connection: connection.policy.access in closed, *_GONE)
        for item in going:
            await item.listener.close()
        await self._change_serial(config.serial)
        await self._change_lora(config)
        for item in self._network:
            if item.access.accepts_no_client:
                log.warning(
                    "%s: no client can connect: there is no user. Add one: onceway user add NAME",
                    item.access.section.name,
                )

    async def _replace(self, going: list[_Network], coming: list[_Network], *, waits: bool) -> None:
        """Stop the listeners in `going` and start those in `coming`. If a listener can't start,
        start those in `going` again, and raise OncewayError. waits: as for `Endpoint.listen`.
        """
        for item in going:
            item.listener.stop()
        try:
            for item in coming:
                await item.listener.start(waits=waits)
                if not item.listener.waits_for:
                    where = ", ".join(map(format_address, item.listener.addresses))
                    log.info("listening on %s", where)
        except OncewayError:
            for item in coming:
                await item.listener.close()
            for item in going:
                await item.listener.start(waits=True)
            raise

    def _new_network(
        self,
        section: ListenerSection,
        tls: Tls | None,
        config: Config,
        passwords: Passwords,
        identifiers: Identifiers,
    ) -> _Network:
        """Return a listener that is not started yet. Raises ConfigError if systemd passes no socket
        with the name in `section.systemd`.
        """
        inherited: list[socket.socket] = self._activated.get(section.systemd or "", [])
        if section.systemd and not inherited:
            names = ", ".join(map(repr, self._activated)) or "none"
            text = f"systemd passes no socket named {section.systemd!r} (passed: {names})"
            raise ConfigError(text, hint="Set FileDescriptorName= in the socket unit")
        item = _Network(self._engine, section, passwords, identifiers)
        common: dict[str, Any] = {"name": section.name, "sockets": inherited, "tls": tls}
        common["proxy_protocol"] = section.proxy_protocol
        if section.type == "tcp":
            item.listener = TcpListener(item.accept, *section.address, **common)
            return item
        # aiohttp takes 13 MB, which a Pi without browsers saves
        from gateway.links.websocket import (
            WebSocketListener,
        )

        item.listener = WebSocketListener(
            item.accept,
            *section.address,
            **common,
            origins=section.origins,
            max_message=_longest_message(section, config),
            proxies=section.proxies,
        )
        return item

    async def _change_serial(self, sections: list[SerialSection]) -> None:
        known = {(item.section.port, item.section.baud): item for item in self._serial}
        wanted = {(section.port, section.baud): section for section in sections}
        self._serial = []
        closed = {port for port, baud in known if (port, baud) not in wanted}
        dismiss(
            self._engine,
            lambda one: one.peer.device is not None and one.peer.listener in closed,
            *_GONE,
        )
        for place, item in known.items():
            if place not in wanted:
                await item.listener.close()
        for place, section in wanted.items():
            found = known.get(place)
            if found is None:
                found = _Serial(self._engine, section, self._registry)
                greeter = self._greeter(found.access)
                found.listener = SerialListener(
                    found.accept,
                    section.port,
                    greeter,
                    baud=section.baud,
                    name=section.port,
                    lent=self._lent,
                )
                await found.listener.start()
                log.info("serial ports %s at %d baud", section.port, section.baud)
            else:
                found.take(section)
            self._serial.append(found)

    @contextmanager
    def lending(self, path: str) -> Iterator[None]:
        """Let another process open this port within the context. Raises OncewayError if the port is
        lent already.
        """
        device = os.path.realpath(path)
        if device in self._lent:
            raise OncewayError("another command uses the port already", path)
        self._lent.add(device)
        try:
            for item in self._serial:
                item.listener.lend(device)
            yield
        finally:
            self._lent.discard(device)

    async def _change_lora(self, config: Config) -> None:
        """Apply the [[lora]] sections. If a section has changed, its boards begin new sessions."""
        sections = config.lora
        going = [item for item in self._lora if item.section not in sections]
        self._lora = [item for item in self._lora if item.section in sections]
        closed = [item.access for item in going]
        dismiss(self._engine, lambda connection: connection.policy.access in closed, *_GONE)
        for item in going:
            await item.listener.close()
        known = [item.section for item in self._lora]
        for section in sections:
            if section in known:
                continue
            # loaded only if there is a radio
            from gateway.links.lora.exchange import Radio
            from gateway.links.lora.port import LoraListener, Settings

            item = _Lora(self._engine, section, self._registry)
            name = section.port.strip("/").replace("/", "-")
            started = uptime()
            item.listener = LoraListener(
                item.accept,
                Settings(
                    section.port,
                    Radio(section.modem),
                    REGIONS[section.region],
                    section.frequency,
                    section.spreading_factor,
                    section.power,
                    section.network,
                ),
                key=item.key,
                name=item.name,
                utc=self._utc,
                machine=started.machine if started else secrets.token_hex(8),
                record=self._folder / f"airtime-{name}.json",
                disk=self._disk,
                overhear=self._overhear,
                others=item.others(config),
            )
            await item.listener.start()
            self._lora.append(item)

    def close_doors(self) -> list[str]:
        """Stop listening on the network. Return the client identifiers of all network clients."""
        for item in self._network:
            item.listener.stop()
        return [one.client for one in self._engine.broker.connections if self._is_network(one)]

    def send_away(self, clients: Collection[str], reason: ReasonCode, text: str) -> None:
        """Disconnect the network clients with these client identifiers."""
        engine = self._engine
        dismiss(engine, lambda one: one.client in clients and self._is_network(one), reason, text)

    def _is_network(self, connection: Attached) -> bool:
        return any(connection.policy.access is item.access for item in self._network)

    async def close(self) -> None:
        """Close all listeners. Connections that the broker has not closed before are dropped."""
        for network in self._network:
            await network.listener.close()
        for serial in self._serial:
            await serial.listener.close()
        for radio in self._lora:
            await radio.listener.close()
        self._disk.shutdown()


def certificates(section: ListenerSection) -> Tls | None:
    """Read a section's certificates; None without TLS. Raises OncewayError if one is unusable."""
    files = section.tls
    if files is None:
        return None
    return Tls(
        files.certificate,
        files.key,
        client_ca=files.client_ca,
        client_crl=files.client_crl,
        client_required=files.client_required,
        name=section.name,
    )


def _longest_message(section: ListenerSection, config: Config) -> int:
    """Return the size in bytes of the longest WebSocket message that is accepted: a client may put
    a packet of the greatest size into one message.
    """
    return (section.packet_bytes or config.limits.packet_bytes) + 5
