"""A simulated client of a site (world.py), which judges the answers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.site.sim_holder import Event

if TYPE_CHECKING:
    from tests.site.sim_gateway import Gateway
    from tests.site.world import World


class Connection:
    def __init__(self, world: World, client: Client, gateway: Gateway, clean: bool) -> None:
        self.world = world
        self.client = client
        self.gateway = gateway
        self.clean = clean
        self.open = False
        """Whether the gateway has accepted the connection."""
        self.waits = False
        """Whether the CONNECT waits for the session lookup."""
        self._arrival = dict.fromkeys(("client", "gateway"), 0.0)
        """Time at which the newest packet arrives at each end. No later packet arrives before that
        time, because TCP keeps the order of packets.
        """

    def lost(self) -> None:
        self.open = False
        self.world.after(self.world.delay(), partial(self.client.on_lost, self))

    def accepted(self, present: bool, number: int) -> None:
        if self.client.connection is self:
            self.client.on_connack(present, number)

    def to_client(self, kind: str, identifier: int, message: int) -> None:
        self._to("client", partial(self.client.on_packet, self, kind, identifier, message))

    def to_gateway(self, act: Event) -> None:
        self._to("gateway", partial(self.gateway.run, act))

    def _to(self, end: str, arrive: Event) -> None:
        at = max(self._arrival[end], self.world.now + self.world.delay())
        self._arrival[end] = at
        self.world.at(at, arrive)


class Client:
    """A client of the site, connected to at most one gateway."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.connection: Connection | None = None
        self.accepted = False
        self.session: int | None = None
        """Number of the client's session, as the client knows it; None: no session."""
        self.flight: dict[int, tuple[int, str]] = {}
        """Messages in flight, by packet identifier: the message, and the packet that the client
        last sent for it.
        """
        self.marked = False
        """Whether the client was ever informed that its session is suspect."""
        self.doubted = 0
        """Messages up to this number may be delivered twice: those from before the session
        continued as suspect, ended by a late Clean Start, or was replaced by a session whose
        CONNACK the client missed. 0: none.
        """
        self.went_on = 0
        """Number of the last session that continued as suspect. 0: no session has."""
        self.cleans = False
        """Whether the client has discarded its state and has not been accepted by a gateway since
        this moment.
        """

    def connect(self, gateway: str, clean: bool = False) -> None:
        self.leave()
        # until a gateway accepts it, a client that has discarded its state cannot continue a
        # session
        self.cleans = clean = clean or self.cleans
        to = self.world.gateways[gateway]
        connection = self.connection = Connection(self.world, self, to, clean)
        if clean:
            self.session = None
            self.flight.clear()  # the client's side of the session ends, too [MQTT-3.1.2-4]

        def arrive() -> None:
            if to.member is None:
                connection.lost()  # no listener
            else:
                to.run(lambda: to.connect(connection))

        self.world.after(self.world.delay(), arrive)

    def leave(self, notice: bool = True) -> None:
        """End the client's connection. notice: whether the gateway learns that the connection has
        ended.
        """
        connection, accepted = self.connection, self.accepted
        self.connection, self.accepted = None, False
        if connection is not None and connection.clean and not accepted:
            self.marked = True  # the end that the client has asked for may still happen
        if connection is not None and notice:
            gateway = connection.gateway

            def gone() -> None:
                if gateway.connections.get(self.name) is connection:
                    del gateway.connections[self.name]

            connection.to_gateway(gone)

    def on_lost(self, connection: Connection) -> None:
        if self.connection is connection:
            self.connection, self.accepted = None, False

    def on_connack(self, present: bool, number: int) -> None:
        self.accepted, self.cleans = True, False
        if present:
            known = self.session in (number, None) or self.marked
            assert known, f"{self.name} is told that session {number} is its session {self.session}"
            if self.session != number and number in self.world.undoubted:
                # the client missed the Session Present 0 of this session, as can happen at one
                # broker
                flight = [message for message, _ in self.flight.values()]
                self.doubted = max((self.doubted, *flight))
        else:
            lost = self.session is not None and not self.marked
            assert not lost, f"{self.name} has lost its session {self.session}"
            self.flight.clear()
        self.session = number
        for identifier in self.flight:
            self._say(identifier)

    def publish(self) -> None:
        """Publish a message, with the lowest free identifier. At most three messages are in
        flight.
        """
        if self.connection is None or not self.accepted or len(self.flight) > 2:
            return
        identifier = next(one for one in range(1, 5) if one not in self.flight)
        self.flight[identifier] = (self.world.next_number(), "PUBLISH")
        self._say(identifier)

    def _say(self, identifier: int) -> None:
        connection = self.connection
        if connection is not None and self.accepted:
            message, said = self.flight[identifier]
            gateway = connection.gateway
            act = gateway.publish if said == "PUBLISH" else gateway.release
            connection.to_gateway(partial(act, connection, identifier, message))

    def on_packet(self, connection: Connection, kind: str, identifier: int, message: int) -> None:
        said = self.flight.get(identifier)
        if connection is not self.connection or said is None or said[0] != message:
            return
        self.world.reached[kind] += 1
        if kind == "PUBREC" and said[1] == "PUBLISH":
            assert self.world.is_written(message), f"PUBREC for message {message}, which is lost"
            self.flight[identifier] = (message, "PUBREL")
            if self.world.random.random() < self.world.eager:
                self._say(identifier)
        elif kind in ("PUBCOMP", "0x92") and said[1] == "PUBREL":
            del self.flight[identifier]
