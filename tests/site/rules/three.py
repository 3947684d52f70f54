"""A site of three members on virtual time, for tests of single rules."""

from random import Random

from gateway.site.rules.messages import (
    Beat,
    Message,
    decode,
)
from tests.site.sim_client import Client
from tests.site.sim_holder import Record
from tests.site.world import World


class Site(World):
    """Three members, each linked to the others, and one client."""

    def __init__(self) -> None:
        super().__init__(Random(0), members=3, clients=1)
        self.said: list[tuple[str, str, Message]] = []
        self.spy = self._note
        self.run(1.0)
        self.said.clear()

    def _note(self, sender: str, receiver: str, frame: bytes) -> None:
        message = decode(frame)
        if not isinstance(message, Beat):
            self.said.append((sender, receiver, message))

    @property
    def client(self) -> Client:
        return self.clients[0]

    def kinds(self, sender: str) -> list[str]:
        return [type(message).__name__ for one, _, message in self.said if one == sender]

    def come(self, gateway: str, seconds: float = 2.0, clean: bool = False) -> None:
        self.client.connect(gateway, clean)
        self.run(seconds)

    def move_and_restore(self) -> None:
        """Move the session from a to b. Then restore a's store to its state before the move."""
        self.come("a")
        copy = dict(self.gateways["a"].disk)
        self.come("b")
        self.crash("a")
        self.gateways["a"].restore(copy, set())
        self.start("a")

    def silence(self, *members: str) -> None:
        """Cut these members off in both directions. Wait until all members have noticed."""
        for member in members:
            for name in set(self.names) - {member}:
                self.cut(member, name, notice=0.1)
        self.run(2.0)

    def hear(self) -> None:
        for link in self.links.values():
            self.heal(*link.ends)
        self.run(3.0)

    def place_at(self, name: str) -> Record:
        return self.gateways[name].holder.records[self.client.name]

    def place(self) -> tuple[str, Record]:
        places = self.places(self.client.name)
        assert len(places) == 1, places
        return places[0]


def slow_commit(site: Site, gateway: str, seconds: float) -> None:
    """Begin a commit that takes this long. Later changes wait for the next commit."""
    site.commit_s = lambda: seconds  # type: ignore[method-assign]
    site.gateways[gateway].holder.commit(lambda: None, lambda: None)
    site.commit_s = lambda: 0.0  # type: ignore[method-assign]


def begin_with(site: Site, **records: Record) -> None:
    """Give the members these records of the client, and cut all links."""
    site.eager = 0.0
    site.silence("a", "b", "c")
    for name, record in records.items():
        site.crash(name)
        site.gateways[name].disk[site.client.name] = record
        site.start(name)
    site.client.marked = True


def assert_nothing_is_swallowed(site: Site) -> None:
    """Let the client visit all gateways and publish. Assert that its publication counts as new."""
    for gateway in "abc":
        site.come(gateway)
    site.client.publish()
    site.run(0.1)
    assert site.reached["doubt"] > 0
    assert site.client.flight[1][1] == "PUBREL", "world.py has looked"


def forget(site: Site, gateway: str) -> None:
    """Restore the gateway's store to its first, empty state."""
    site.crash(gateway)
    site.gateways[gateway].restore({}, set())
    site.client.marked = True
    site.start(gateway)
    site.run(2.0)


def move_slowly(site: Site, giver: str, to: str) -> None:
    """Begin to move the client's session, which has a received packet identifier. The commit at the
    giver takes 4.2 s.
    """
    site.eager = 0.0
    site.come(giver)
    site.client.publish()
    site.run(0.1)
    site.client.connect(to)
    while "Take" not in site.kinds(to):
        site.run(0.001)
    slow_commit(site, giver, 4.2)
    site.run(0.2)
