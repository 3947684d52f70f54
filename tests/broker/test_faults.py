"""Every function of the broker and its engine raises an exception, one at a time, while a client
(the victim) acts.

`calls()` finds the functions, so a new function is tried without a change here. Two other clients,
a publisher at QoS 2 and a subscriber that pings, share turns with the victim. Either these
bystanders notice nothing, and only the victim's connection ends. Or the engine stops before its
next commit; after a start, no acknowledged message is lost, and none has arrived twice. `OWN` and
`SHARED` state which of the two must happen, for functions about which the README promises it.
"""

import importlib
import inspect
import logging
import math
import pkgutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from types import FunctionType, ModuleType
from typing import Any

import pytest

import gateway.broker
from gateway.access import rules
from gateway.access.peer import DeviceIdentity
from gateway.access.rules import ByAcl, Policy, Refusal, SlowCheck
from gateway.broker.broker import Broker
from gateway.broker.connection import Connection
from gateway.broker.delivery import Outgoing
from gateway.broker.publish_run import PublishRun
from gateway.broker.send_flow import SendFlow
from gateway.broker.session import Session, State
from gateway.config import QuotaSection
from gateway.errors import OncewayError
from gateway.links.transport import Transport
from gateway.mqtt import encode as encoding
from gateway.mqtt import message_ids, runs, topics
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
    Will,
)
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.stream import PacketStream
from gateway.runtime import client_link, engine, sys_topics
from gateway.runtime.administration import dismiss
from gateway.runtime.client_link import ClientLink
from gateway.site.moving.neighbours import site_of
from gateway.site.moving.replicated import Replicated
from tests.broker import harness
from tests.broker.harness import FOREVER, Client, World

VICTIM = "victim"
V5 = Version.V5


SPOOLED = {11, 12, 13, 14, 21, 22, 23, 24}
"""Packet identifiers of the victim's publications in the spool. From 21 on, they are at QoS 2."""


class AskingAccess(harness.Anonymous):
    """Access rules that check in another thread whether the password is `right`."""

    def refuses_connect(
        self, connection: Connection, packet: Connect
    ) -> Refusal | SlowCheck | None:
        wrong = ReasonCode.BAD_USER_NAME_OR_PASSWORD, "wrong"
        return SlowCheck(VICTIM, lambda: None if packet.password == b"right" else wrong)


class Injected(Exception):
    """An error that the gateway does not know."""


# -- functions that raise


@dataclass(frozen=True)
class Call:
    """A function of the product. owner: its class or module."""

    owner: Any
    name: str
    function: Callable[..., Any]

    def __str__(self) -> str:
        return f"{self.owner.__name__.removeprefix('gateway.broker.')}.{self.name}"


def modules() -> list[ModuleType]:
    found = [
        importlib.import_module(f"gateway.broker.{item.name}")
        for item in pkgutil.iter_modules(gateway.broker.__path__)
    ]
    return [*found, rules, message_ids, runs, topics, sys_topics, engine, client_link, encoding]


def calls() -> Iterator[Call]:
    """Yield the functions and methods in which an exception is tried: those of the broker and its
    engine, and of this harness only those by which it stands in for the product.
    """
    classes: list[type] = [Client, harness.Anonymous, PacketStream]
    for module in modules():
        for name, item in vars(module).items():
            if getattr(item, "__module__", None) != module.__name__:
                continue
            if isinstance(item, FunctionType):
                yield Call(module, name, item)
            elif inspect.isclass(item) and not getattr(item, "_is_protocol", False):
                classes.append(item)
    for owner in classes:
        for name, item in vars(owner).items():
            function = item.fget if isinstance(item, property) else item
            if not isinstance(function, FunctionType) or inspect.iscoroutinefunction(function):
                continue
            if owner is Client and name not in TRANSPORT:
                continue
            if not name.startswith("__") or (owner, name) == (Connection, "__init__"):
                yield Call(owner, name, function)


def members(protocol: Any) -> set[str]:
    """Return the public names of a protocol's members."""
    return {name for item in protocol.__mro__ for name in vars(item) if not name.startswith("_")}


TRANSPORT = members(Transport) & set(vars(Client))


@contextmanager
def replaced(call: Call, function: Callable[..., Any]) -> Iterator[None]:
    """Replace a function or method of the product, in all its modules, while the block runs."""
    undo: list[tuple[Any, str, Any]] = []
    if inspect.isclass(call.owner):
        former = vars(call.owner)[call.name]
        new = property(function, former.fset) if isinstance(former, property) else function
        setattr(call.owner, call.name, new)
        undo.append((call.owner, call.name, former))
    else:
        for module in list(sys.modules.values()):
            if not getattr(module, "__name__", "").startswith("gateway."):
                continue
            for name, item in list(vars(module).items()):
                if item is call.function:
                    setattr(module, name, function)
                    undo.append((module, name, item))
    try:
        yield
    finally:
        for owner, name, former in undo:
            setattr(owner, name, former)


def client_of(item: object) -> str | None:
    """Return the identifier of the client to which an argument belongs, or None."""
    match item:
        case Client():
            return item.connection.client if hasattr(item, "connection") else None
        case Connection():
            return getattr(item, "client", None)
        case ClientLink():
            return client_of(getattr(item, "connection", None))
        case Session():
            return getattr(item, "client", None)
        case SendFlow():
            return client_of(getattr(item, "session", None))
        case Outgoing():
            return client_of(getattr(item, "connection", None))
    return None


class Trap:
    """A replacement of a function. In one call, the replacement raises an exception. nth: number of
    this call, from 0. late: the exception comes after the original function has done its work.
    """

    def __init__(self, call: Call, nth: int, late: bool, scene: "Scene") -> None:
        self.sprung = self.raised = False
        """sprung: the exception was raised. raised: the original function has raised an error in
        that call.
        """
        self.kinds: list[tuple[str, int]] = []
        """For each call: "victim", "other" or "all", and the number of unfinished steps."""
        self._call, self._nth, self._late, self._scene = call, nth, late, scene

    def function(self) -> Callable[..., Any]:
        call, original = self._call, self._call.function

        @wraps(original)
        def trapped(*args: Any, **more: Any) -> Any:
            if not self._scene.begun:
                return original(*args, **more)
            now = len(self.kinds) == self._nth
            self.kinds.append((self._kind(args), self._scene.world.broker.step.unfinished))
            if now and not self._late:
                self.sprung = True
                raise Injected(str(call))
            self.raised |= now
            found = original(*args, **more)
            self.raised &= not now
            if now:
                self.sprung = True
                raise Injected(str(call))
            return found

        return trapped

    def _kind(self, args: tuple[Any, ...]) -> str:
        owners = {client_of(item) for item in args} - {None}
        if owners:
            return "victim" if owners <= {VICTIM, ""} else "other"
        return self._scene.acting


# -- the bystanders


class Bystander:
    """A client that keeps its state when its connection ends, and completes each exchange."""

    def __init__(self, world: World, client_id: str) -> None:
        self.world, self.client_id = world, client_id
        self.client = self._connect()
        self.seen = 0
        """Number of received packets of this connection that `look` has returned."""

    def _connect(self) -> Client:
        client = self.world.connect(self.client_id, clean=False, properties=FOREVER)
        assert client.take(Connack).reason == 0
        return client

    def come_back(self) -> None:
        self.client, self.seen = self._connect(), 0

    def look(self) -> list[Packet]:
        """Return the packets received since the last call."""
        found = self.client.received[self.seen :]
        self.seen = len(self.client.received)
        return found


class Writer(Bystander):
    """A client that publishes at QoS 2."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "writer")
        self.open: dict[int, Packet] = {}
        """Packets that the client would send again, by identifier."""
        self.recorded: list[int] = []

    def write(self, number: int) -> None:
        packet = self.open[number] = Publish("spool/by", b"%d" % number, 2, number)
        self.client.bring(encode(packet, V5))

    def go_on(self) -> None:
        """Continue the exchanges until no packet comes: answer each PUBREC with PUBREL, and note
        each PUBREC and PUBCOMP.
        """
        while packets := self.look():
            for packet in packets:
                if isinstance(packet, Pubrec):
                    assert packet.reason == 0
                    self.recorded.append(packet.packet_id)
                    self.open[packet.packet_id] = Pubrel(packet.packet_id)
                    self.client.send(Pubrel(packet.packet_id))
                elif isinstance(packet, Pubcomp):
                    assert packet.reason == 0
                    del self.open[packet.packet_id]

    def come_back(self) -> None:
        super().come_back()
        for packet in self.open.values():
            if isinstance(packet, Publish):
                packet.dup = True
            self.client.send(packet)
        self.go_on()


class Reader(Bystander):
    """A client that subscribes at QoS 2 and pings."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "reader")
        self.client.subscribe("spool/by")
        self.got: list[bytes] = []
        self.pongs = 0
        self._held: set[int] = set()

    def go_on(self) -> None:
        while packets := self.look():
            for packet in packets:
                if isinstance(packet, Publish):
                    if packet.packet_id not in self._held:
                        self.got.append(packet.payload)
                    self._held.add(packet.packet_id)
                    self.client.send(Pubrec(packet.packet_id))
                elif isinstance(packet, Pubrel):
                    self._held.discard(packet.packet_id)
                    self.client.send(Pubcomp(packet.packet_id))
                elif isinstance(packet, Pingresp):
                    self.pongs += 1


# -- the victim's acts


class Scene:
    """A world with the victim and two bystanders. begun: whether functions may raise. acting: the
    client that is acting: "victim" or "other"; "all" while the engine works for all.
    """

    def __init__(self) -> None:
        self.begun, self.acting = False, "other"
        self.world = world = World(
            moves=True,
            outgoing_bytes=270_000,
            session_expiry_s=1000,
            keep_alive_s=60,
            receive_maximum=60,
            quota=[QuotaSection(users=[VICTIM], messages_per_s=10)],
        )
        self.reader, self.writer = Reader(world), Writer(world)
        world.accepted("former").publish("kept/1", b"r", 1, retain=True)
        self.friend = world.accepted("friend", answers=True)
        self.friend.subscribe("v/#", "will")
        self.wrote = 0
        self.pings = 0
        self.victims: list[Client] = []
        self.last: dict[str, Any] = {}
        """Arguments of the victim's last CONNECT."""
        self.rounds = 0
        """Number of finished turns, each with one act of the victim."""
        self.broke = self.patient = False

    # -- one turn for all

    def turn(self, act: Callable[[], None] = lambda: None) -> None:
        """Let the victim act, and the bystanders continue, in one turn of the engine."""
        self._act(act)
        if not self.world.engine.broken:
            self.wrote += 1
            self.writer.write(self.wrote)
        if not self.world.engine.broken:
            self.pings += 1
            self.reader.client.bring(encode(Pingreq(), V5))
        self.acting = "all"
        self.world.turn()
        self.acting = "other"
        self._look()
        self.rounds += 1

    def _act(self, act: Callable[[], None]) -> None:
        self.acting = "victim"
        try:
            act()
        except (Injected, OncewayError) as error:  # raised by a transport or a command
            logging.getLogger(__name__).error("the transport ends", exc_info=error)
        finally:
            self.acting = "other"

    def _look(self) -> None:
        if self.world.engine.broken:
            self._start_again()
            return
        sound(self.world.broker)
        if self.world.slow_disk or self.patient:
            return
        self.writer.go_on()
        self.reader.go_on()
        assert not self.writer.open
        assert self.reader.got == [b"%d" % number for number in range(1, self.wrote + 1)]
        assert self.reader.pongs == self.pings
        assert not self.reader.client.closed
        assert not self.writer.client.closed

    def _start_again(self) -> None:
        """Check that the broken engine makes no further commit, and that acknowledged messages are
        in the store. Then start again.
        """
        self.broke = True
        commits = len(self.world.commits)
        self.world.turn()
        self.world.sleep(5)
        assert len(self.world.commits) == commits, "a commit after the failure"
        self.acknowledged()
        self.world.slow_disk = self.patient = False
        self.world.power_cut()
        self.pings = self.reader.pongs
        for bystander in (self.reader, self.writer):
            bystander.come_back()
        self.world.turn()
        self._look()

    # -- promises

    def acknowledged(self) -> None:
        """Check that acknowledged messages are in the spool, and that each message at QoS 2 has one
        row.
        """
        rows = Counter(payload for (payload,) in self.world.rows("SELECT payload FROM spool"))
        for packet in self.writer.look():
            if isinstance(packet, Pubrec):
                self.writer.recorded.append(packet.packet_id)
                self.writer.open[packet.packet_id] = Pubrel(packet.packet_id)
        for number in self.writer.recorded:
            assert rows[b"%d" % number] == 1, number
        for client in self.victims:
            for packet in client.received:
                if isinstance(packet, Puback | Pubrec) and packet.packet_id in SPOOLED:
                    assert packet.reason >= 0x80 or rows[b"v%d" % packet.packet_id], packet
        assert all(count == 1 for payload, count in rows.items() if payload.startswith(b"v2"))

    def end(self) -> None:
        """Complete all exchanges. Then memory and store must have the same content."""
        self.turn()
        self.world.commit()
        self.acknowledged()
        rows = Counter(payload for (payload,) in self.world.rows("SELECT payload FROM spool"))
        assert all(rows[b"%d" % number] == 1 for number in range(1, self.wrote + 1))
        told = state(self.world.broker)
        self.world.power_cut()
        assert state(self.world.broker) == told

    # -- the victim

    def victim(self, **more: Any) -> Client:
        """Return the victim's connection. If the last one is closed, connect with the same
        arguments again. more: arguments that differ.
        """
        if not self.victims or self.victims[-1].closed:
            self.connect(**self.last | more)
        return self.victims[-1]

    def connect(
        self,
        policy: Policy | None = None,
        version: Version = V5,
        device: DeviceIdentity | None = None,
        **more: Any,
    ) -> None:
        self.last = more | {"policy": policy, "version": version, "device": device}
        client = self.world.open(version, policy=policy, device=device)
        client._receive = client._link.receive  # type: ignore[method-assign]
        self.victims.append(client)
        properties = FOREVER | {PropertyId.TOPIC_ALIAS_MAXIMUM: 3, PropertyId.RECEIVE_MAXIMUM: 4}
        will = Will("will", b"w", 1, properties={PropertyId.WILL_DELAY_INTERVAL: 2})
        wanted = {"clean_start": False, "keep_alive": 10, "will": will, "properties": properties}
        if version < V5:
            wanted |= {"properties": None, "will": None}
        said = Connect(**{"client_id": VICTIM, "version": version} | wanted | more)
        client.bring(encode(said, version))

    def say(self, *packets: Packet) -> None:
        client = self.victim()
        client.bring(b"".join(encode(packet, client.version) for packet in packets))

    def play(self, acts: str = "client") -> None:
        """Let the victim do all acts of a script, "client" or "bounds"."""
        self.begun = True
        for act in getattr(self, f"{acts}_acts"):
            self.turn(act)
        self.begun = False
        self.end()

    @property
    def client_acts(self) -> list[Callable[[], None]]:
        return [
            self.connect,
            lambda: self.say(
                Subscribe(
                    1,
                    [Subscription("v/#", 2), Subscription("kept/#", 1), Subscription("$SYS/#", 0)],
                    {PropertyId.SUBSCRIPTION_IDENTIFIER: [7]},
                ),
                Subscribe(2, [Subscription("$share/g/s", 1)]),
                Pingreq(),
            ),
            lambda: self.say(
                Publish("spool/v", b"v0", 0),
                Publish("spool/v", b"v11", 1, 11),
                Publish("spool/v", b"v12", 1, 12),
                Publish("spool/v", b"v21", 2, 21),
                Publish("spool/v", b"v22", 2, 22),
            ),
            lambda: self.say(Publish("spool/v", b"v21", 2, 21, dup=True), Pubrel(21), Pubrel(99)),
            lambda: self.say(
                Publish("v/own", b"x", 2, 31, properties={PropertyId.TOPIC_ALIAS: 1}),
                Publish("", b"y", 1, 32, properties={PropertyId.TOPIC_ALIAS: 1}),
                Publish("v/q", b"z", 0, properties={PropertyId.MESSAGE_EXPIRY_INTERVAL: 9}),
                Publish("v/kept", b"k", 1, 33, retain=True),
            ),
            self.answer,
            self.answer,
            lambda: self.others("v/a", 0, 1, 2),
            self.answer,
            self.answer,
            lambda: self.say(
                Puback(77, ReasonCode.NO_MATCHING_SUBSCRIBERS),
                Pubrec(78, ReasonCode.UNSPECIFIED_ERROR),
                Pubcomp(79, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND),
            ),
            lambda: self.others("s", 1),
            self.be_slow,
            lambda: self.world.sleep(1),
            self.read_a_little,
            lambda: self.world.sleep(1),
            lambda: self.victims[-1].read_on(),
            self.answer,
            self.wait_for_the_disk,
            self.commit,
            self.connect,  # takes its session over
            lambda: self.victim().drop(),
            lambda: self.others("v/away", 1, 2, 1),
            self.connect,
            self.answer,
            lambda: self.say(Unsubscribe(3, ["kept/#", "none"])),
            lambda: self.victim().bring(b"\xf0\x00"),
            lambda: self.world.sleep(3),  # its will is due
            self.connect,
            lambda: self.world.sleep(20),  # its keep alive is over
            lambda: self.connect(clean_start=True, properties={}, will=None),
            lambda: self.say(Subscribe(1, [Subscription("v/#", 2)])),
            lambda: self.others("v/z", 0, 1, 2),
            lambda: dismiss(
                self.world.engine,
                lambda item: item.client == VICTIM,
                ReasonCode.ADMINISTRATIVE_ACTION,
                "test",
            ),
            self.connect,
            lambda: self.say(Disconnect()),
            lambda: self.world.end_session(VICTIM),
            lambda: self.connect(client_id=""),
        ]

    @property
    def bounds_acts(self) -> list[Callable[[], None]]:
        """Acts of a client whose password is checked, that reaches bounds, and that speaks MQTT
        3.1.1. Then follow acts of a board that has proved its key.
        """
        asked = Policy(AskingAccess())
        bound = Policy(harness.Anonymous(), receive_maximum=2)
        long = b"x" * 30_000
        return [
            lambda: self.connect(policy=asked, username=VICTIM, password=b"wrong"),
            lambda: self.connect(policy=asked, username=VICTIM, password=b"right"),
            lambda: self.say(Subscribe(1, [Subscription("v/#", 1)])),
            lambda: self.victim().drop(),
            lambda: self.others("v/a", *[1] * 12),
            lambda: self.connect(policy=asked, username=VICTIM, password=b"right"),
            *[self.answer] * 4,
            self.hurry,
            self.be_the_slowest,
            self.forgive,
            self.wait_for_another_disk,
            self.copy,
            lambda: self.connect(policy=asked, username=VICTIM, password=b"right"),
            lambda: self.say(*[Publish("v/q", b"", 0)] * 9),
            lambda: self.say(Pingreq()),
            lambda: self.world.sleep(5),
            lambda: self.say(Publish("spool/v", b"v11", 1, 11), Publish("spool/v", b"v21", 2, 21)),
            self.be_held_back,
            self.commit,
            lambda: self.world.end_session(VICTIM),
            lambda: self.connect(policy=bound, version=Version.V3_1_1),
            lambda: self.say(*[Publish("v/q", long, 1, number) for number in range(40, 46)]),
            lambda: self.connect(policy=bound),
            lambda: self.say(*[Publish("v/q", long, 2, number) for number in range(40, 46)]),
            self.meet_a_full_disk,
            lambda: self.connect(policy=bound),
            lambda: self.say(Publish("v/q", b"put off", 1, 50)),
            lambda: self.world.sleep(2),
            lambda: self.world.end_session(VICTIM),
            lambda: self.connect(device=DeviceIdentity(VICTIM, 7, 21, proved=True)),
            lambda: self.say(Publish("spool/v", b"v22", 2, 22), Publish("spool/v", b"v23", 2, 23)),
            lambda: self.say(Publish("spool/v", b"v23", 2, 23, dup=True), Pubrel(22), Pubrel(99)),
            lambda: self.victim().drop(),
            lambda: self.connect(device=DeviceIdentity(VICTIM, 7, 24, proved=True)),
        ]

    def hurry(self) -> None:
        """Let the turn count as over before all bytes of the victim are parsed."""
        broker, calls = self.world.broker, iter([True])
        broker.turn_is_over = lambda: next(calls, False)
        self.say(Pingreq(), Pingreq())

    def be_the_slowest(self) -> None:
        """Let the output for all clients together exceed its bound, with most of it for the
        victim.
        """
        self.be_slow()
        self.acting = "all"
        self.world.turn()
        engine = self.world.engine
        link = engine._links.get(self.victims[-1].connection)
        if link is not None:
            engine.output.bytes += self.world.broker.limits.memory_bytes
            engine.output._slow[link] = None
            engine.begin()

    def forgive(self) -> None:
        self.world.engine.output.bytes = 0

    def wait_for_another_disk(self) -> None:
        """Let acknowledgements wait until a second gateway has a copy."""
        broker = self.world.broker
        site_of(broker).second_disk = Replicated(lambda rows: None, broker.spool.next - 1)
        self.patient = True
        identity = {PropertyId.USER_PROPERTY: [("incarnation", "1"), ("seq", "1")]}
        self.say(
            Publish("spool/v", b"v13", 1, 13),
            Publish("spool/v", b"v24", 2, 24),
            Publish("v/q", b"i", 1, 34, properties=identity),
        )

    def copy(self) -> None:
        self.patient = False
        self.world.engine.commits.spool_is_safe(1 << 40)
        site_of(self.world.broker).second_disk = None

    def be_held_back(self) -> None:
        """Let the victim's packets wait for the disk."""
        self.world.slow_disk, self.world.disk.backlog = True, 0
        self.say(Publish("spool/v", b"v12", 1, 12))
        self.world.disk.backlog = sys.maxsize

    def meet_a_full_disk(self) -> None:
        self.victim()
        self.world.disk_full(True)
        self.say(
            Publish("spool/v", b"v14", 1, 14),
            Publish("spool/v", b"v24", 2, 24),
            Subscribe(4, [Subscription("more", 1)]),
            Pingreq(),
        )
        self.world.disk_full(False)

    def answer(self) -> None:
        """Answer all packets that the victim has received."""
        client = self.victim()
        found, client.received = client.received, []
        for packet in found:
            client._answer(packet)

    def others(self, topic: str, *qos: int) -> None:
        """Let another client publish messages that the victim receives."""
        self.acting = "other"
        for number, level in enumerate(qos):
            self.friend.bring(encode(Publish(topic, b"%d" % number, level, 50 + number), V5))

    def be_slow(self) -> None:
        self.victim().reads = False
        self.acting = "other"
        for number in range(5):
            self.friend.bring(encode(Publish("v/big", bytes(70_000), 0), V5))
            self.friend.bring(encode(Publish("v/big", b"1", 1, 60 + number), V5))

    def read_a_little(self) -> None:
        if self.victim().unsent:
            self.victim().read_a_little()

    def wait_for_the_disk(self) -> None:
        self.victim().reads = True
        self.world.slow_disk = True
        self.say(Publish("spool/v", b"v13", 1, 13), Publish("spool/v", b"v23", 2, 23))

    def commit(self) -> None:
        self.world.slow_disk = False
        self.world.commit()


def sound(broker: Broker) -> None:
    """Check that the broker's counters match its content, and that no queue has a message twice."""
    sessions = broker.by_id.values()
    for session in sessions:
        flow = session.send_flow
        unsent = [delivery for delivery in flow.pending if delivery.flags >> 1]
        waiting = [*flow.pending, *(delivery for _, delivery in flow.behind)]
        flights = [*flow.flights.acknowledging, *flow.flights.receiving, *flow.flights.resend]
        left = sum(delivery.count - delivery.sent for delivery in waiting)
        assert flow.tail or flow.messages == len(flights) + left, session.client
        for number, _ in flow.flights.resend:
            assert all(number < item.first + item.sent for item in unsent), session.client
        flying = [*flow.flights.acknowledging.items(), *flow.flights.receiving.items()]
        for delivery in {item for _, item in flying} & set(unsent):
            here = [at for at, item in flying if item is delivery]
            assert max(here) < delivery.first + delivery.sent, session.client
        assert (session.connection is None) == (session.departed is not None), session.client
        assert session.connection is None or session.connection.state is State.OPEN
    assert broker.queued == sum(session.send_flow.size for session in sessions)
    assert broker.received == sum(len(session.receive_flow.received) for session in sessions)
    assert broker.router.count == sum(len(session.subscriptions) for session in sessions)
    connected = [connection for connection in broker.connections if connection.session is not None]
    assert sum(broker.listeners.values()) == len(connected)


def state(broker: Broker) -> dict[str, Any]:
    """Return the part of the broker's state in memory that must be in the store. Identifiers that a
    board has sent are left out, because the board's anti-replay window has them.
    """
    durable = [session for session in broker.sessions.values() if session.durable]
    return {
        "sessions": {
            session.client: (
                sorted(session.subscriptions),
                session.send_flow.messages,
                [] if session.receive_flow.mark else sorted(session.receive_flow.received),
                sorted(session.send_flow.flights.released),
            )
            for session in durable
        },
        "spool": (broker.spool.size, broker.spool.next),
        "retained": sorted(item.topic for item in broker.retained.everything()),
    }


# -- the trials

BOUNDARY = {
    "Engine.do",
    "Engine.serve",
    "Engine.fault",
    "Engine.fail",
    "ClientLink.abort",
    "Commits.spool_is_safe",
    "Step",
}
"""Functions and classes that catch the exceptions of the functions that they call."""
FOR_ALL = {"Engine.hear"}
"""Functions that only bystanders call, not the victim."""
THREAD = {
    f"Commits.{name}" for name in ("_from_store", "_from_writer", "_on_failure", "_on_landed")
}
"""Functions that run in the writer's thread. They only forward something to the event loop."""


CALLS = [
    call
    for call in calls()
    if not {str(call), call.owner.__name__.rpartition(".")[2]} & (BOUNDARY | THREAD | FOR_ALL)
]
_PACKETS_OUT = {"take", "answer", "acknowledge", "send", "send_qos_0", "shape", "resume_sending"}
_END = {"disconnect", "lost", "end", "_farewell", "on_disk", "on_two_disks"}
_OF_A_CLASS = {
    Connection: _PACKETS_OUT | _END,
    PacketStream: {"feed", "take"},
    PublishRun: {"shape"},
    runs.Publishes: {"packets"},
    encoding: {"encode", "encode_within", "acknowledgements"},
}
OWN = {
    str(call)
    for call in CALLS
    if call.owner in (Client, ClientLink, ByAcl) or call.name in _OF_A_CLASS.get(call.owner, ())
}
"""Functions that work for one connection: they read, encode, write, close and decode, and check the
rights of its client.
"""
SHARED = ("Router.", "Spool.", "Changes.", "NeededRows.", "Broker.seal", "RoutedTopic.")
"""Beginnings of the names of functions that work on state of all clients."""


Seen = dict[str, dict[str, list[tuple[str, int]]]]
"""For each script and function: its calls, in the form of `Trap.kinds`."""


@pytest.fixture(scope="module", autouse=True)
def endless_turns() -> Iterator[None]:
    """Let no turn end because of its duration. So each call happens equally often, even on a busy
    machine.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_TURN_S", math.inf)
        yield


@pytest.fixture(scope="module")
def seen() -> Seen:
    logging.disable(logging.CRITICAL)
    found = {}
    for script in SCRIPTS:
        Scene().play(script)  # this fills the caches of the process
        scene = Scene()
        traps = {str(call): (call, Trap(call, -1, False, scene)) for call in calls()}
        with ExitStack() as stack:
            for call, trap in traps.values():
                stack.enter_context(replaced(call, trap.function()))
            scene.play(script)
        found[script] = {name: trap.kinds for name, (_, trap) in traps.items()}
    logging.disable(logging.NOTSET)
    return found


SCRIPTS = "client", "bounds"


def trials(seen: Seen, call: Call) -> Iterator[tuple[str, int]]:
    """Yield each call that is to raise an exception, as a script and the call's number in it.
    Chosen are calls that belong to the victim, or, if the victim has none, to all clients: the last
    call, and the first one for each number of unfinished steps.
    """
    for kind in "victim", "all":
        for script in SCRIPTS:
            kinds = seen[script][str(call)]
            if found := [at for at, (one, _) in enumerate(kinds) if one == kind]:
                firsts = {kinds[at][1]: at for at in reversed(found)}
                for at in sorted({*firsts.values(), found[-1]}):
                    yield script, at
                return


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.soak)])
def every(request: pytest.FixtureRequest) -> bool:
    """Whether the test tries each call both as an early and as a late one. `make test` tries the
    first call early, and the last one late.
    """
    return bool(request.param)


TRIED = [
    pytest.param(
        call,
        marks=[]
        if str(call) in OWN or str(call).startswith(SHARED) or number % 4 == 0
        else [pytest.mark.soak],
    )
    for number, call in enumerate(CALLS)
]
"""All functions. `make test` tries those of OWN and SHARED, and every fourth of the others."""


@pytest.mark.parametrize("call", TRIED, ids=str)
def test_an_exception_ends_one_connection_or_the_engine(
    call: Call, seen: Seen, caplog: pytest.LogCaptureFixture, every: bool
) -> None:
    places = list(trials(seen, call))
    for script, at in places:
        for late in False, True:
            if not every and (script, at) != places[-1 if late else 0]:
                continue
            caplog.clear()
            scene = Scene()
            trap = Trap(call, at, late, scene)
            with replaced(call, trap.function()):
                scene.play(script)
            if late and trap.raised:
                continue
            assert trap.sprung
            where = f"{call}, call {at} in {script}, {'late' if late else 'early'}"
            assert f"Injected: {call}" in caplog.text, f"{where}: nobody says so"
            if str(call) in OWN:
                assert not scene.broke, f"{where}: the engine has stopped"
            if str(call).startswith(SHARED):
                assert scene.broke, f"{where}: the engine has gone on"


def test_faults_of_each_function_for_one_connection_are_tried(seen: Seen) -> None:
    reached = {str(call) for call in CALLS if any(trials(seen, call))}
    assert OWN - reached == set()
