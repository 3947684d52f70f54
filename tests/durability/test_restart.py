"""After a restart, the state of the last commit is there, whatever happened before the commit and
whatever was lost after it.

Hypothesis draws what clients do: subscribe, publish, retain, leave wills, disconnect and stay away.
Commits come at any time, and the power is cut. The model is the state in the broker's memory at the
last commit. So a change that a commit has left out is noticed. At the end, the queues are read:
payloads are numbered, and each queue must have its number of messages, in order.
"""

from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.broker.broker import Broker
from gateway.mqtt.packets import (
    Disconnect,
    Publish,
    Pubrel,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
)
from gateway.mqtt.properties import PropertyId as P
from tests.broker.harness import FOREVER, Client, World

CLIENTS = ("a", "b")
TOPICS = ("t/1", "spool/t")
FILTERS = ("t/1", "t/+", "#")
EXPIRIES = (100, 1000, 0xFFFF_FFFF)

client = st.sampled_from(CLIENTS)
payload = st.binary(max_size=40)
OPERATIONS = st.one_of(
    st.tuples(
        st.just("connect"),
        client,
        st.sampled_from(EXPIRIES),
        st.none() | st.tuples(st.sampled_from(TOPICS), st.integers(0, 200)),
    ),
    st.tuples(st.sampled_from(["drop", "leave", "end"]), client),
    st.tuples(
        st.just("subscribe"),
        client,
        st.sampled_from(FILTERS),
        st.integers(0, 2),
        st.booleans(),
        st.booleans(),
    ),
    st.tuples(st.just("unsubscribe"), client, st.sampled_from(FILTERS)),
    *[
        st.tuples(
            st.just("publish"),
            st.sampled_from(TOPICS),
            st.integers(0, 2),
            st.booleans(),
            payload,
            st.integers(1, 3),
        )
    ]
    * 3,
    st.tuples(st.just("clear"), st.sampled_from(TOPICS)),
    st.tuples(st.just("release"), st.integers(1, 20)),
    st.tuples(st.just("sleep"), st.integers(1, 150)),
    *[st.tuples(st.just("commit"))] * 4,
    st.tuples(st.just("power cut")),
)


def memory(broker: Broker) -> dict[str, Any]:
    """Return the state of a broker that must survive a restart."""
    sessions = [session for session in broker.sessions.values() if session.durable]
    return {
        "sessions": {
            item.client: (
                item.id,
                item.expiry,
                None if item.departed is None else round(item.departed, 3),
                item.user,
            )
            for item in sessions
        },
        "subscriptions": {
            (item.client, name): (sub.qos, sub.no_local, sub.retain_as_published)
            for item in sessions
            for name, sub in item.subscriptions.items()
        },
        "queues": {
            item.client: (item.send_flow.messages, item.send_flow.size, item.send_flow.next)
            for item in sessions
        },
        "all queues": sum(item.send_flow.size for item in sessions),
        "received": {item.client: sorted(item.receive_flow.received) for item in sessions},
        "retained": {
            topic: (found.payload, found.qos, found.client)
            for topic in TOPICS
            if (found := broker.retained.get(topic)) is not None
        },
        "wills": {
            name: (will.topic, will.delay, None if will.due is None else round(will.due, 3))
            for name, will in broker.wills.items()
        }
        | {
            item.session.client: (item.will.topic, item.will.delay, None)
            for item in broker.connections
            if item.session and item.will
        },
        "spool": (broker.spool.size, broker.spool.next),
    }


class Run:
    """A broker with its clients, and the state at its last commit."""

    def __init__(self) -> None:
        self.world = World(session_expiry_s=0xFFFF_FFFF)
        self.world.slow_disk = True
        self.world.on_commit = self._committed
        self.clients: dict[str, Client] = {}
        self.committed = memory(self.world.broker)
        self.published = 0
        self.publisher = self._publisher()
        self.world.commit()

    def _publisher(self) -> Client:
        return self.world.connect("publisher", clean=False, properties=FOREVER)

    def _committed(self) -> None:
        self.committed = deepcopy(memory(self.world.broker))

    def do(self, name: str, *more: Any) -> None:
        getattr(self, name.replace(" ", "_"))(*more)

    def connect(self, name: str, expiry: int, will: tuple[str, int] | None) -> None:
        said = (
            Will(will[0], b"will of " + name.encode(), 1, False, {P.WILL_DELAY_INTERVAL: will[1]})
            if will
            else None
        )
        self.clients[name] = self.world.connect(
            name, clean=False, properties={P.SESSION_EXPIRY_INTERVAL: expiry}, will=said
        )

    def drop(self, name: str) -> None:
        if name in self.clients and not self.clients[name].closed:
            self.clients.pop(name).drop()

    def leave(self, name: str) -> None:
        if name in self.clients and not self.clients[name].closed:
            self.clients.pop(name).send(Disconnect())

    def end(self, name: str) -> None:
        self.clients.pop(name, None)
        self.world.connect(name, clean=True).send(Disconnect())

    def subscribe(
        self, name: str, topic_filter: str, qos: int, no_local: bool, retain: bool
    ) -> None:
        if name in self.clients:
            self.clients[name].send(
                Subscribe(1, [Subscription(topic_filter, qos, no_local, retain, 2)])
            )

    def unsubscribe(self, name: str, topic_filter: str) -> None:
        if name in self.clients:
            self.clients[name].send(Unsubscribe(1, [topic_filter]))

    def publish(self, topic: str, qos: int, retain: bool, data: bytes, count: int) -> None:
        taken = self.world.broker.sessions["publisher"].receive_flow.received
        free = [number for number in range(1, 21) if number not in taken][:count]
        if qos < 2 or len(free) == count:
            numbers = range(self.published, self.published + count)
            self.published += count
            identifiers = free if qos == 2 else range(30, 33) if qos else (0, 0, 0)
            self.publisher.send(
                *(
                    Publish(topic, b"%06d" % number + data, qos, packet_id, retain)
                    for number, packet_id in zip(numbers, identifiers, strict=False)
                )
            )

    def clear(self, topic: str) -> None:
        self.publisher.publish(topic, b"", retain=True)

    def release(self, number: int) -> None:
        self.publisher.send(Pubrel(number))

    def sleep(self, seconds: int) -> None:
        self.world.sleep(seconds)

    def commit(self) -> None:
        self.world.commit()

    def power_cut(self) -> None:
        self.clients.clear()
        self.world.power_cut()
        now = self.world.broker.now
        assert memory(self.world.broker) == expected(self.committed, now)
        self.publisher = self._publisher()
        self.world.commit()

    def drain(self) -> None:
        """Check that all messages that wait for a session arrive, once and in order."""
        self.world.slow_disk = False
        self.sleep(0)  # lets sessions and messages expire
        for name, session in list(self.world.broker.sessions.items()):
            due = session.send_flow.messages
            reader = self.world.connect(name, clean=False, properties=FOREVER, answers=True)
            came = [packet.payload for packet in reader.received if isinstance(packet, Publish)]
            assert len(came) == due
            numbers = [payload[:6] for payload in came if not payload.startswith(b"will")]
            assert numbers == sorted(set(numbers))


def expected(state: dict[str, Any], now: float) -> dict[str, Any]:
    """Return the state after a restart, from the state at the last commit. Clients that were
    connected count as departed at `now`.
    """
    state = deepcopy(state)
    connected = {name for name, (_, _, left, _) in state["sessions"].items() if left is None}
    for name in connected:
        number, expiry, _, user = state["sessions"][name]
        state["sessions"][name] = (number, expiry, round(now, 3), user)
    for name, (topic, delay, due) in state["wills"].items():
        if due is None:
            expiry = state["sessions"][name][1] if name in state["sessions"] else 0
            state["wills"][name] = (topic, delay, round(now + min(delay, expiry), 3))
    return state


@settings(max_examples=100, deadline=None)
@given(st.lists(OPERATIONS, min_size=10, max_size=40))
def test_committed_data_survive_a_restart(operations: list[tuple[Any, ...]]) -> None:
    run = Run()
    for name in CLIENTS:
        run.connect(name, 1000, None)
        run.subscribe(name, "#", 2, False, False)
    for operation in operations:
        run.do(*operation)
    run.commit()
    run.power_cut()
    run.drain()
