"""Internal clients: MQTT without a network.

In: packets to send. Out: received packets, on the event loop. Internal clients are clients like any
other, with a visible session and connection. Access rules, quotas and limits apply to them by their
user.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection

from gateway.access.peer import Peer
from gateway.access.rules import ByAcl, Caller, Policy, Refusal
from gateway.broker.broker import Broker
from gateway.config import INSIDE, MEMBER
from gateway.links.faults import blame
from gateway.links.transport import Receiver
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Packet,
    Publish,
    Side,
    Subscribe,
    Subscription,
    Version,
)
from gateway.mqtt.stream import PacketStream
from gateway.runtime.engine import Engine

_LONGEST_PACKET = 1 << 28


class _Access(ByAcl):
    """Access rules of an internal client, which is always let in."""

    def __init__(self, user: str) -> None:
        self._user = user

    def refuses_connect(self, caller: Caller, packet: Connect) -> Refusal | None:
        caller.user = self._user
        return None

    def holds(self, caller: Caller) -> bool:
        return True


def forget_members(broker: Broker, wanted: Collection[str] = ()) -> None:
    """End the sessions of former peer gateways (`gateway/site/wiring/forwarding.py`). wanted:
    client identifiers of the present peer gateways.
    """
    for client, session in list(broker.sessions.items()):
        if client.startswith(MEMBER) and session.user == INSIDE and client not in wanted:
            broker.end_session(session)


class Client:
    """A client that is connected from its creation on (a `Transport`).

    on_packet: callback with each packet, in the middle of the broker's work, and with None at the
    end of the connection; an exception in it ends the connection. connect: the CONNECT to send; by
    default one whose session ends with the connection. packet_bytes: largest packet that the client
    may send, in place of limits.packet_bytes.
    """

    high_water = 1 << 30

    def __init__(
        self,
        engine: Engine,
        name: str,
        user: str,
        on_packet: Callable[[Packet | None], None],
        connect: Connect | None = None,
        packet_bytes: int | None = None,
    ) -> None:
        self.peer = Peer(name, name)
        self._engine = engine
        self._on_packet = on_packet
        self._stream = PacketStream(_LONGEST_PACKET, Version.V5, Side.SERVER)
        # the client exists as long as this object, so it needs no Keep Alive
        policy = Policy(
            _Access(user),
            keep_alive_s=0,
            keeps_sessions=connect is not None,
            reads_reasons=True,
            never_moves=True,
            packet_bytes=packet_bytes,
        )
        self._receiver: Receiver | None = engine.accept(policy)(self)
        self._receive(connect or Connect(f"{INSIDE}-{secrets.token_hex(8)}"))

    @property
    def closed(self) -> bool:
        return self._receiver is None

    def send(self, packet: Packet) -> None:
        """Send a packet to the broker, after the current call: the broker may be just writing to
        this client.
        """
        self._engine.call_later(0, lambda: self._receive(packet))

    def leave(self) -> None:
        """End the connection from this side. After that, `on_packet` is not called any more."""
        self._on_packet = lambda packet: None
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.lost("the request is answered")

    def close(self) -> None:
        """Note that the broker has ended the connection."""
        self._receiver = None
        self._on_packet(None)

    abort = close

    def write(self, data: bytes) -> None:
        self._stream.feed(data)
        for packet in self._stream:
            self._on_packet(packet)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    @property
    def unsent(self) -> int:
        return 0

    @property
    def undelivered(self) -> int:
        return self.unsent

    def _receive(self, *packets: Packet) -> None:
        if self._receiver is None:
            return
        try:
            data = b"".join(encode(packet, Version.V5) for packet in packets)
        except Exception as error:
            blame(self.peer.address, error)
            receiver, self._receiver = self._receiver, None
            receiver.lost("internal error")
            self._on_packet(None)
        else:
            self._receiver.receive(data)


class InternalClient:
    """The gateway itself as a client: the user INSIDE, with the read rights that `Config` gives it.
    It subscribes to `filters` at QoS 0. heard: called with each message.
    """

    def __init__(
        self, engine: Engine, filters: list[str], heard: Callable[[Publish], None]
    ) -> None:
        self._filters = filters
        self._heard = heard
        self._client = Client(engine, "inside", INSIDE, self._on_packet)

    @property
    def closed(self) -> bool:
        return self._client.closed

    def _on_packet(self, packet: Packet | None) -> None:
        if isinstance(packet, Publish):
            self._heard(packet)
        elif isinstance(packet, Connack):
            wanted = [Subscription(item, 0) for item in self._filters]
            self._client.send(Subscribe(1, wanted))
