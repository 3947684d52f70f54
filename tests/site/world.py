"""A site in memory, on virtual time: gateways with disks, links that delay, break and are cut, and
clients that roam, publish at QoS 2 and judge the answers.

In: a seeded `Random`, and the events to simulate. Out: AssertionError if a promise of
gateway/site/docs/session-moves.md is broken. Each gateway runs the real `Member`. Its sessions are
in memory, and on a disk with the content of the last commit.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from random import Random

from gateway.site.rules.contacts import START_S
from gateway.site.rules.holder import ALL_CLIENTS
from gateway.site.rules.messages import Beat, decode
from tests.site.sim_client import Client
from tests.site.sim_gateway import Gateway
from tests.site.sim_holder import Event, Record


class Link:
    """A link between two members. Frames of one direction arrive in order, each after a delay."""

    def __init__(self, ends: tuple[str, str]) -> None:
        self.ends = ends
        self.number = 0
        """Number of the present connection, 0 for none."""
        self.sees: dict[str, int] = dict.fromkeys(ends, 0)
        """Number of the connection that each end regards as open. 0: none."""
        self.cut = False
        self.dials = 0
        """Number of the newest planned dial. Older ones are void."""
        self.held: list[Event] = []
        """Frames that wait until a cut link is healed."""
        self.frames: dict[str, deque[bytes]] = {end: deque() for end in ends}
        """Frames on their way, by receiver."""
        self.clear = dict.fromkeys(ends, 0.0)
        """Time at which the newest frame arrives, by receiver."""


class World:
    def __init__(self, random: Random, members: int = 3, clients: int = 1) -> None:
        self.random = random
        self.now = 100.0
        self.reached: Counter[str] = Counter()
        self.names = tuple("abcde"[:members])
        self.crashes = 0.0
        """Probability that a gateway crashes right before or after a commit."""
        self.breaks = 0.0
        """Probability that a connection breaks after a frame. The frame may or may not arrive.
        After a keep-alive, no connection breaks.
        """
        self.commit_max = 0.02
        self.eager = 0.7
        self.patience = START_S
        """Time that clients can wait for members that may be starting, in seconds."""
        self.line_s = 0.0
        """Additional delay of each frame between members, in seconds."""
        self.numbers = 0
        self.routed: Counter[int] = Counter()
        self.gone: set[int] = set()
        """Numbers of messages on disks that were replaced by older ones."""
        self.expired: set[int] = set()
        """Numbers of sessions that have expired at any gateway."""
        self.undoubted: set[int] = set()
        """Numbers of sessions that began with Session Present 0 without being suspect."""
        self.bytes = 0
        self.spy: Callable[[str, str, bytes], None] | None = None
        self._events: list[tuple[float, int, Event]] = []
        self._count = 0
        self.links = {
            (one, other): Link((one, other))
            for one in self.names
            for other in self.names
            if one < other
        }
        self.gateways = {name: Gateway(self, name) for name in self.names}
        self.clients = [Client(self, f"client-{number}") for number in range(clients)]
        for name in self.names:
            self.start(name)

    # Time.

    def at(self, when: float, event: Event) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, event))

    def after(self, seconds: float, event: Event) -> None:
        self.at(self.now + seconds, event)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = until

    def delay(self) -> float:
        return self.random.choice((0.0005, 0.002, 0.01))

    def commit_s(self) -> float:
        return self.random.random() * self.commit_max

    def next_number(self) -> int:
        self.numbers += 1
        return self.numbers

    # Gateways and links.

    def start(self, name: str) -> None:
        if self.gateways[name].member is None:
            self.gateways[name].start()
            for link in self.links.values():
                if name in link.ends:
                    self._dial(link, self.delay())

    def crash(self, name: str, *, stopped: bool = False) -> None:
        """Crash a member. stopped: the other members hear that it stops."""
        if self.gateways[name].member is not None:
            self.reached["crash"] += 1
            self.gateways[name].crash()
            for link in self.links.values():
                if name in link.ends:
                    link.sees[name] = 0
                    self.break_link(link, stopped=stopped)

    def crash_at_commit(self, name: str) -> bool:
        if self.random.random() < self.crashes:
            self.reached["crash at a commit"] += 1
            self.crash(name)
            self.after(self.random.random() * 2, partial(self.start, name))
            return True
        return False

    def link(self, one: str, other: str) -> Link:
        return self.links[min(one, other), max(one, other)]

    def _dial(self, link: Link, seconds: float) -> None:
        """Plan a dial after this time. An earlier planned dial of this link is dropped."""
        link.dials += 1
        self.after(seconds, partial(self._connect, link, link.dials))

    def _connect(self, link: Link, dial: int) -> None:
        """Connect if both ends run and the link is not cut; otherwise dial again later."""
        if dial != link.dials:
            return
        one, other = (self.gateways[end] for end in link.ends)
        if link.cut or one.member is None or other.member is None or any(link.sees.values()):
            self._dial(link, 0.2)
            return
        self.numbers += 1
        link.number = number = self.numbers
        for end in link.ends:
            link.sees[end] = number
            link.clear[end] = self.now
            self.after(self.delay(), partial(self._tell, link, end, number, True))

    def _tell(self, link: Link, end: str, number: int, up: bool, stopped: bool = False) -> None:
        gateway = self.gateways[end]
        other = link.ends[link.ends[0] == end]

        def tell() -> None:
            if gateway.member is None:
                return
            if up and link.sees[end] == number:
                gateway.links[other] = number
                run = self.gateways[other].starts
                begun = gateway.met.get(other) != run
                gateway.met[other] = run
                gateway.member.joined(other, gateway.now, begun)
            elif not up:
                gateway.links[other] = 0
                gateway.member.link_ended(other, gateway.now, stopped)

        gateway.run(tell)

    def break_link(self, link: Link, within: float = 0.01, stopped: bool = False) -> None:
        """Break the connection of a link. Each end notices that separately, within `within`
        seconds.
        """
        number, link.number = link.number, 0
        link.held.clear()
        for frames in link.frames.values():
            frames.clear()
        if not number:
            return
        for end in link.ends:
            notice = partial(self._notice, link, end, number, stopped)
            self.after(self.random.random() * within, notice)

    def _notice(self, link: Link, end: str, number: int, stopped: bool) -> None:
        if link.sees[end] == number:
            self._tell(link, end, number, False, stopped)
            link.sees[end] = 0
        if not any(link.sees.values()):
            self._dial(link, 0.2)

    def cut(self, one: str, other: str, notice: float = 2.0) -> None:
        """Cut the link between two members. If the link stays cut, its connection breaks: each end
        notices this at a random time, after at most twice `notice` seconds.
        """
        link = self.link(one, other)
        if not link.cut:
            self.reached["cut"] += 1
            link.cut = True
            number = link.number

            def give_up() -> None:
                if link.cut and link.number == number:
                    self.break_link(link, within=notice)

            self.after(self.random.random() * notice, give_up)

    def heal(self, one: str, other: str) -> None:
        link = self.link(one, other)
        link.cut = False
        held, link.held = link.held, []
        for event in held:
            event()

    def send(self, sender: str, receiver: str, frame: bytes) -> None:
        link = self.link(sender, receiver)
        number = self.gateways[sender].links.get(receiver, 0)
        self.bytes += len(frame)
        if self.spy is not None:
            self.spy(sender, receiver, frame)
        if not number or number != link.number:
            return
        link.frames[receiver].append(frame)
        event = partial(self._carry, link, sender, receiver, number)
        if link.cut:
            link.held.append(event)
        else:
            event()
        if (
            self.breaks
            and not isinstance(decode(frame), Beat)
            and self.random.random() < self.breaks
        ):
            self.reached["broken off"] += 1
            self.after(self.random.random() * 0.03, partial(self._break_off, link, number))

    def _break_off(self, link: Link, number: int) -> None:
        if link.number == number:
            self.break_link(link)

    def _carry(self, link: Link, sender: str, receiver: str, number: int) -> None:
        """Plan the arrival of the oldest frame that is on its way to the receiver."""
        # after the notice of the connection, which takes up to 10 ms
        earliest = self.now + 0.01 + self.delay() + self.line_s
        link.clear[receiver] = max(link.clear[receiver], earliest)
        arrive = partial(self._arrive, link, sender, receiver, number)
        self.at(link.clear[receiver], arrive)

    def _arrive(self, link: Link, sender: str, receiver: str, number: int) -> None:
        if link.cut and link.number == number:
            link.held.append(partial(self._carry, link, sender, receiver, number))
        elif link.number == number:
            frame, gateway = link.frames[receiver].popleft(), self.gateways[receiver]

            def receive() -> None:
                if gateway.member is not None and link.sees[receiver] == number:
                    gateway.member.received(sender, frame, gateway.now)

            gateway.run(receive)

    # The rules of the judge.

    def mark(self, client: str) -> None:
        next(one for one in self.clients if one.name == client).marked = True

    def on_expired(self, client: str, number: int) -> None:
        """Discard the client's state, because its session has expired [MQTT-4.1.0-2]."""
        one = next(one for one in self.clients if one.name == client)
        if one.session == number:
            one.session = None
            one.flight.clear()

    def on_ended(self, client: str, record: Record) -> None:
        """Record the end of a session that may continue as a suspect session at another member."""
        one = next(one for one in self.clients if one.name == client)
        if record.session is not None and one.went_on == record.session.number:
            one.doubted = self.numbers

    def on_routed(self, client: str, message: int) -> None:
        self.routed[message] += 1

    def check_first(self, client: str, message: int) -> None:
        """Check that a message goes to one disk, once. Two kinds of messages may come twice:
        messages from before a session became suspect (docs/limitations.md), and messages from
        before a Clean Start that the client has given up.
        """
        doubted = next(one for one in self.clients if one.name == client).doubted
        first = message <= doubted or not self.is_written(message)
        assert first, f"{client}: message {message} is there twice"

    def is_written(self, message: int) -> bool:
        """Return whether a message is on a disk, or was on one before an older disk replaced it."""
        return message in self.gone or any(
            message in gateway.written for gateway in self.gateways.values()
        )

    def check(self, changed: Gateway) -> None:
        """Check for each client of this gateway: at most one gateway considers its own session the
        newest.
        """
        for client in changed.holder.records:
            for gateway in self.gateways.values():
                if gateway is changed or gateway.paused or client not in gateway.holder.records:
                    continue
                assert not (changed.is_newest(client) and gateway.is_newest(client)), (
                    f"{client} has its newest session at {changed.name} and {gateway.name}"
                )

    def places(self, client: str) -> list[tuple[str, Record]]:
        return [
            (name, gateway.holder.records[client])
            for name, gateway in self.gateways.items()
            if client in gateway.holder.records
        ]

    def settle(self, seconds: float = 10.0) -> None:
        """Heal all links, start all gateways, and wait until the site is quiet. Assert that at most
        one gateway has a session of each client.
        """
        self.crashes, self.breaks, self.commit_max = 0.0, 0.0, 0.02
        for gateway in self.gateways.values():
            if gateway.paused:
                gateway.resume()
            self.start(gateway.name)
        for link in self.links.values():
            self.heal(*link.ends)
        self.run(seconds)
        for name, record in self.places(ALL_CLIENTS):
            raise AssertionError(f"{name} has not told all that it was restored: {record}")
        for client in self.clients:
            places = self.places(client.name)
            sessions = [name for name, record in places if record.session is not None]
            assert len(sessions) <= 1, f"{client.name} is in several places: {places}"
            for name, record in places:
                over = record.session is None and not record.unheard
                assert not over, f"{client.name} is over at {name}: {record}"
                assert record.given_to is None, f"{client.name} is given away at {name}: {record}"
                assert not record.older, f"{name} still has others end {client.name}: {record}"
