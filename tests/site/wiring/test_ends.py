"""The end of a session in a site, compared with one broker: a table of ends.

Each end has its effects on the client's will, its shared subscriptions, its queue and the retained
message. In one broker, all clients are at the same gateway. In the site, the client is at a and
returns at b, the other clients are at c, and the publisher is at one of these gateways.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Subscribe,
    Subscription,
    Version,
    Will,
)
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode
from tests.broker.harness import FOREVER, Client
from tests.site.wiring.test_local_member import Sites

DELAY_S = 3
EXPIRY_S = 6
SHARED = [b"s%d" % number for number in range(4)]


class Seen(NamedTuple):
    """The visible effects of the end of a session. wills: payloads on the will's topic, in order,
    including the "online" that the client publishes when it is back. retained: last payload on that
    topic. present: Session Present of the next CONNACK; None if the client does not return. queue:
    queued payloads that the client gets at its return. shared: payloads of the shared subscription
    that any subscriber received after the end.
    """

    wills: tuple[bytes, ...]
    retained: bytes
    present: bool | None
    queue: tuple[bytes, ...]
    shared: tuple[bytes, ...]


class Scene:
    """The clients of one run. names: four gateways: the one of the client, the one to which the
    client returns, the one of the other clients, and the one of the publisher. delay: Will Delay
    Interval in seconds.
    """

    def __init__(self, *names: str, delay: int, connected: bool) -> None:
        self.at, self.back, self.others, source = names
        self.sites = Sites(*sorted(set(names)))
        self.watcher = self.open(self.others, "watcher", Subscription("will", 1))
        self.partner = self.open(self.others, "partner", Subscription("$share/g/s", 1))
        self.publisher = self.open(source, "publisher")
        properties = {P.WILL_DELAY_INTERVAL: delay} if delay else None
        self.will = Will("will", b"offline", 1, True, properties)
        self.client = self.come(self.at, clean=True)
        self.say(self.client, Publish("will", b"online", 1, 9, retain=True))
        wanted = [Subscription("$share/g/s", 1), Subscription("q", 1)]
        self.say(self.client, Subscribe(1, wanted))
        self.partner.break_line()  # so that both subscribers have queued messages
        if not connected:
            self.client.break_line()
        self.sites.pass_time(0.3)
        for number, payload in enumerate(SHARED):
            self.say(self.publisher, Publish("s", payload, 1, 1 + number))
        if not connected:
            self.say(self.publisher, Publish("q", b"queued", 1, 20))
        self.client.take_all()
        self.watcher.take_all()

    def open(self, name: str, client_id: str, *wanted: Subscription) -> Client:
        client = self.sites[name].open(answers=True)
        self.say(client, Connect(client_id, Version.V5, False, properties=FOREVER))
        self.say(client, Subscribe(1, list(wanted or [Subscription("none")])))
        client.take_all()
        return client

    def say(self, client: Client, *packets: Packet) -> None:
        self.sites.say(client, *packets)

    def come(self, name: str, clean: bool) -> Client:
        client = self.sites[name].open()
        properties = {P.SESSION_EXPIRY_INTERVAL: EXPIRY_S}
        self.say(client, Connect("c", Version.V5, clean, properties=properties, will=self.will))
        return client

    def seen(self, end: Callable[["Scene"], Client | None]) -> Seen:
        found, present = end(self), None
        queue: list[bytes] = []
        shared: list[bytes] = []
        if found is not None:
            present = found.take(Connack).session_present
            for packet in found.take_all(Publish):
                (queue if packet.topic == "q" else shared).append(packet.payload)
            self.say(found, Publish("will", b"online", 1, 9, retain=True))
        self.sites.pass_time(2 * EXPIRY_S if found is None else DELAY_S + 1)
        wills = tuple(packet.payload for packet in self.watcher.take_all(Publish))
        again = self.sites[self.others].open(answers=True)
        self.say(again, Connect("partner", Version.V5, False, properties=FOREVER))
        shared += [packet.payload for packet in again.take_all(Publish)]
        self.say(again, Subscribe(1, [Subscription("will", 1)]))
        (retained,) = [packet.payload for packet in again.take_all(Publish)]
        return Seen(wills, retained, present, tuple(queue), tuple(sorted(shared)))


def takes_over(scene: Scene) -> Client:
    return scene.come(scene.back, clean=False)


def begins_anew(scene: Scene) -> Client:
    return scene.come(scene.back, clean=True)


def expires(scene: Scene) -> None:
    scene.client.break_line()


def disconnects(scene: Scene) -> None:
    scene.say(scene.client, Disconnect())


def disconnects_with_will(scene: Scene) -> None:
    scene.say(scene.client, Disconnect(ReasonCode.DISCONNECT_WITH_WILL))


def ends_at_once(scene: Scene) -> None:
    scene.say(scene.client, Disconnect(properties={P.SESSION_EXPIRY_INTERVAL: 0}))


def is_ended(scene: Scene) -> None:
    scene.sites[scene.at].end_session("c")


def is_back(scene: Scene) -> Client:
    """Reconnect before the session expires or the will is sent."""
    if not scene.client.closed:
        scene.client.break_line()
    scene.sites.pass_time(1)
    return scene.come(scene.back, clean=False)


ENDS: dict[str, Callable[[Scene], Any]] = {
    function.__name__: function
    for function in (
        takes_over,
        begins_anew,
        expires,
        disconnects,
        disconnects_with_will,
        ends_at_once,
        is_ended,
        is_back,
    )
}
ABSENT = ("takes_over", "begins_anew", "is_ended", "is_back")


@pytest.mark.few(24)
@pytest.mark.mqtt("MQTT-3.1.2-8", "MQTT-3.1.3-9")
@pytest.mark.parametrize("source", ["a", "b", "c"])
@pytest.mark.parametrize("delay", [0, DELAY_S])
@pytest.mark.parametrize(
    ("end", "connected"),
    [*((end, True) for end in ENDS), *((end, False) for end in ABSENT)],
)
def test_an_end_looks_as_at_one_broker(end: str, connected: bool, delay: int, source: str) -> None:
    one = Scene(*"aaaa", delay=delay, connected=connected).seen(ENDS[end])
    site = Scene(*"abc", source, delay=delay, connected=connected).seen(ENDS[end])
    assert site == one
    assert set(site.shared) <= set(SHARED)


def without_a(sites: Sites) -> None:
    """Remove a from the site, as `onceway site remove a` does."""
    sites.names = "b", "c"
    del sites.members["a"]
    sites.part("b", "c")
    for name in sites.names:
        sites.members[name].change()
    sites.join("b", "c")
    sites.pass_time(2)


@pytest.mark.parametrize("source", ["b", "c"])
@pytest.mark.parametrize("connected", [False, True])
def test_end_with_a_removed_member_is_that_of_one_broker_but_for_what_it_alone_has(
    connected: bool, source: str
) -> None:
    """a is removed from the site, and with it the client's session. Each shared message that waits
    for a goes once to the other subscriber. The client gets a new session, which receives later
    messages. The will and the queue of its old session are lost with a.
    """
    scene = Scene("a", "b", "c", source, delay=0, connected=connected)
    sites = scene.sites
    sites.part("a", "b")
    sites.part("a", "c")
    for number in range(4):
        scene.say(scene.publisher, Publish("s", b"late %d" % number, 1, 30 + number))
    without_a(sites)
    found = scene.come("b", clean=False)
    assert not found.take(Connack).session_present
    scene.say(found, Subscribe(1, [Subscription("q", 1)]))
    scene.say(scene.publisher, Publish("q", b"new", 1, 40))
    again = sites["c"].open(answers=True)
    scene.say(again, Connect("partner", Version.V5, False, properties=FOREVER))
    shared = [packet.payload for packet in again.take_all(Publish)]
    assert [item for item in sorted(shared) if item not in SHARED] == [
        b"late %d" % number for number in range(4)
    ], "each once"
    assert [packet.payload for packet in found.take_all(Publish) if packet.topic == "q"] == [b"new"]
    assert not scene.watcher.take_all(Publish), "its will is at a"
    assert sites.members["b"].site.figures()["members"] == 1
