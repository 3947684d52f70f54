"""A client of the gateway's own: MQTT without a network.

In: topic filters. Out: the messages that match, at QoS 0, on the event loop. It is a client like
any other, with a session and a connection that people see; access rules hold for it, as for the
user INSIDE (`Config` lets it read what it is there for).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from gateway.broker.access import ByAcl, Caller, Policy, Refusal
from gateway.broker.peer import Peer
from gateway.config import INSIDE
from gateway.links.carrier import Receiver
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import Connack, Connect, Publish, Side, Subscribe, Subscription, Version
from gateway.mqtt.stream import PacketStream
from gateway.service.engine import Engine


class _Access(ByAcl):
    def refuses_connect(self, caller: Caller, packet: Connect) -> Refusal | None:
        caller.user = INSIDE
        return None

    def holds(self, caller: Caller) -> bool:
        return True


class Inside:
    """Connected from its creation on (a `Carrier`). heard: called with each message; it may not
    publish, but for what it does later.
    """

    high_water = 1 << 30

    def __init__(
        self, engine: Engine, filters: list[str], heard: Callable[[Publish], None]
    ) -> None:
        self.peer = Peer("inside", "inside")
        self._engine = engine
        self._heard = heard
        self._filters = filters
        self._stream = PacketStream(1 << 28, Version.V5, Side.SERVER)
        self._receiver: Receiver | None = engine.accept(Policy(_Access()))(self)
        self._send(Connect(f"{INSIDE}-{secrets.token_hex(8)}"))

    @property
    def closed(self) -> bool:
        return self._receiver is None

    def close(self) -> None:
        """The broker has ended the connection."""
        self._receiver = None

    abort = close

    def write(self, data: bytes) -> None:
        self._stream.feed(data)
        for packet in self._stream:
            if isinstance(packet, Publish):
                self._heard(packet)
            elif isinstance(packet, Connack) and self._filters:
                # not now: the broker is in the middle of writing
                self._engine.call_later(0, self._subscribe)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    @property
    def unsent(self) -> int:
        return 0

    def _subscribe(self) -> None:
        self._send(Subscribe(1, [Subscription(item, 0) for item in self._filters]))

    def _send(self, packet: Connect | Subscribe) -> None:
        if self._receiver is not None:
            self._receiver.receive(encode(packet, Version.V5))
