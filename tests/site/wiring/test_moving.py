"""Messages published while a session moves between gateways reach this session exactly once."""

import random
from collections.abc import Callable

import pytest

from gateway.broker.core import Core
from gateway.broker.fan_out import deliver
from gateway.broker.publish_run import NOTICES, PublishRun
from gateway.broker.session import Session
from gateway.mqtt.encode import encode
from gateway.mqtt.errors import ProtocolError
from gateway.mqtt.packets import (
    Connect,
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
)
from gateway.mqtt.properties import PropertyId
from gateway.site.moving import neighbours, notices
from gateway.site.moving.addresses import AT_ONCE, Kind, Stage, encode_notices
from gateway.site.moving.cuts import say
from gateway.site.moving.late_messages import send_on
from gateway.site.moving.moving import end_moves
from gateway.site.moving.neighbours import site_of
from gateway.site.moving.session_moves import SessionMove
from tests.broker.harness import FOREVER
from tests.site.wiring.test_forwarding import SOON_S, Peer, publisher, reader
from tests.site.wiring.test_local_member import Sites
from tests.site.wiring.test_schedules import NAMES, Mover, Source

PAIRS = ("a", "b"), ("a", "c"), ("b", "c")


class Ride:
    """A client that reads and moves, beginning at a, and a publisher at each gateway."""

    def __init__(self, seed: int = 1) -> None:
        self.rng = random.Random(seed)
        self.sites = Sites(*NAMES)
        self.mover = Mover(self.sites)
        self.sites.pass_time(0.1)
        self.sources = {name: Source(self.sites, name) for name in NAMES}
        self._steps = 0

    def steps(self, count: int) -> None:
        """Deliver `count` frames. After every 12 frames, time passes, and one of the publishers
        publishes.
        """
        for _ in range(count):
            if self._steps % 12 == 0:
                self.sites.tick()
                self.sources[NAMES[self._steps // 12 % 3]].publish(self.rng)
            self._steps += 1
            self.sites.step()

    def move(self, name: str) -> None:
        self.mover.look()
        self.mover.leave()
        self.mover.come(name)

    def until(self, reached: Callable[[], bool]) -> None:
        for _ in range(2000):
            if reached():
                return
            self.steps(1)
        raise AssertionError("it does not come to that")

    def has_left(self, name: str = "a") -> bool:
        return "mover" not in self.sites[name].broker.sessions

    def is_at(self, name: str) -> bool:
        return "mover" in self.sites[name].broker.sessions

    def cut(self, name: str) -> None:
        self.look()
        self.sites[name].slow_disk = False
        self.sites.members[name].power_cut()
        self.mover.cut(name)
        self.sources[name].begin()
        self.join()

    def join(self) -> None:
        for pair in PAIRS:
            if frozenset(pair) not in self.sites.links:
                self.sites.join(*pair)

    def look(self) -> None:
        self.mover.look()
        for source in self.sources.values():
            source.look()

    def end(self, at: str) -> None:
        """Let the client connect to a gateway, and wait until all is quiet. Assert that it has
        received each acknowledged message once.
        """
        self.join()
        self.sites.pass_time(2)
        self.move(at)
        self.sites.pass_time(6)
        self.look()
        assert not self.mover.lost
        assert len(self.mover.got) == len(set(self.mover.got)), "once"
        for source in self.sources.values():
            missing = source.acknowledged - set(self.mover.got)
            assert not missing, f"it lacks {sorted(missing)}"
            assert source.acknowledged
        for name in NAMES:
            world = self.sites[name]
            assert not list(site_of(world.broker).session_moves), "it is over"
            assert world.rows("SELECT * FROM journey") == []
            assert world.rows("SELECT client FROM session WHERE length(client) = 0") == []


@pytest.mark.parametrize("path", ["b", "bc", "ba", "bca", "bcb", "bcabc"])
def test_publication_at_any_member_and_step_comes_once(path: str) -> None:
    ride = Ride()
    for name in path:
        ride.move(name)
        ride.steps(150)
    ride.end(path[-1])


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("path", ["b", "bc", "ba", "bcb"])
def test_a_link_that_is_cut_meanwhile_delays_it(path: str, pair: tuple[str, str]) -> None:
    """After each move of the client along `path`, the link of `pair` is cut. The client moves again
    before the gateway behind this link has confirmed the move.
    """
    ride = Ride()
    for name, before in zip(path, "a" + path, strict=False):
        ride.join()
        ride.sites.pass_time(0.7)
        ride.move(name)
        ride.until(lambda name=name, before=before: ride.is_at(name) and ride.has_left(before))
        ride.sites.part(*pair)
        ride.steps(80)
    ride.end(path[-1])


@pytest.mark.parametrize("victim", NAMES)
def test_a_power_cut_at_any_step_loses_and_doubles_nothing(victim: str) -> None:
    for step in range(0, 66, 6):
        ride = Ride(step)
        ride.move("b")
        ride.until(ride.has_left)
        ride.steps(step)
        ride.cut(victim)
        ride.steps(24)
        ride.end("c" if step % 2 else "b")


def test_publication_during_an_unfetched_export_comes_after_the_recall() -> None:
    ride = Ride()
    ride.move("b")
    ride.until(ride.has_left)
    ride.cut("b")
    ride.steps(60)
    assert not ride.is_at("b")
    (forwarder,) = site_of(ride.sites["a"].broker).session_moves
    assert forwarder[0].send_flow.messages
    ride.sites.pass_time(6)
    assert ride.is_at("a")
    ride.steps(20)
    ride.end("a")


def test_a_session_that_comes_back_twice_waits_for_what_the_first_follower_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: list[tuple[Core, Session]] = []

    def hold_the_first(core: Core, session: Session) -> None:
        if not held or held[0][1] is session:
            held.append((core, session))
        else:
            send_on(core, session)

    monkeypatch.setattr(neighbours, "send_on", hold_the_first)
    ride = Ride()
    for steps in 60, 0:
        ride.move("b")
        ride.until(ride.has_left)
        ride.cut("b")
        ride.steps(steps)
        ride.sites.pass_time(6)
        assert ride.is_at("a")
    monkeypatch.undo()
    assert held[0][1].send_flow.messages
    send_on(*held[0])
    ride.end("a")


@pytest.mark.parametrize("victim", ["a", "c"])
def test_a_power_cut_while_it_is_called_back_loses_nothing(victim: str) -> None:
    ride = Ride()
    ride.move("b")
    ride.until(ride.has_left)
    ride.cut("b")
    ride.steps(60)
    ride.sites["a"].slow_disk = True
    ride.sites.pass_time(6)
    ride.sites["a"].commit()
    ride.cut(victim)
    ride.sites["a"].slow_disk = False
    ride.sites.pass_time(6)
    assert ride.is_at("a")
    ride.steps(20)
    ride.end("b")


def test_session_may_move_again_before_its_first_forwarder_is_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The session moves from a to b, back to a, and to b again. Until then, no forwarder sends its
    queue.
    """
    ride = Ride()
    ride.move("b")
    ride.until(ride.has_left)
    ride.cut("b")
    ride.steps(60)
    monkeypatch.setattr(neighbours, "send_on", lambda core, session: None)
    ride.sites.pass_time(6)
    assert ride.is_at("a"), "called back"
    ride.move("b")
    ride.until(ride.has_left)
    assert site_of(ride.sites["a"].broker).session_moves.forwarders == 2
    monkeypatch.undo()
    ride.cut("a")
    ride.end("b")


def move(sites: Sites, client: Peer, name: str, client_id: str = "c") -> Peer:
    """Connect a client again at another gateway, and wait for the move."""
    client.client.break_line()
    sites.settle()
    return Peer(sites, name, client_id)


def open_moves(sites: Sites, names: tuple[str, ...] = NAMES) -> list[SessionMove]:
    return [move for name in names for _, move in site_of(sites[name].broker).session_moves]


def test_later_subscriptions_of_a_moved_session_are_not_held_back() -> None:
    """The client subscribes again while the query of b waits for b's disk, and c has not answered.
    No other member forwards messages for the new subscription, so b sends them without waiting for
    the answers.
    """
    sites = Sites(*NAMES)
    sources = [publisher(sites, name) for name in NAMES]
    client = reader(sites, "a", "t", client="c")
    moved, world = Connect("c", Version.V5, False, properties=FOREVER), sites["b"]
    client.client.break_line()
    client.client = world.open(answers=True)
    client.client.bring(encode(moved, Version.V5))
    here = "SELECT 1 FROM session WHERE client = 'c'"
    world.on_commit = lambda: setattr(world, "slow_disk", bool(world.rows(here)))
    while "c" not in world.broker.sessions:
        if not sites.step():
            sites.tick()
    world.on_commit = lambda: None
    client.say(Subscribe(2, [Subscription("new", 2), Subscription("t/more", 2)]))
    assert {"a", "c"} == next(iter(site_of(world.broker).session_moves))[1].closed
    for number, source in enumerate(sources):
        for topic in ("t", "new"):
            source.publish(topic, f"{topic}{number}", 1, wait=SOON_S)
    world.slow_disk = False
    sites.pass_time(2)
    assert sorted(client.payloads) == [b"new0", b"new1", b"new2", b"t0", b"t1", b"t2"]
    assert not open_moves(sites, sites.names)


def test_a_session_without_subscriptions_is_not_followed_and_costs_nothing() -> None:
    sites = Sites(*NAMES)
    client = Peer(sites, "a", "c")
    sites.frames.clear()
    said: list[bytes] = []
    for member in sites.members.values():
        member.forwarding.received = lambda _, frame: said.append(frame)  # type: ignore[method-assign]
    client = move(sites, client, "b")
    assert not said
    assert not open_moves(sites, sites.names)
    client.say(Subscribe(1, [Subscription("$SYS/#", 1)]))
    move(sites, client, "c")
    assert not said, "what gateways say of themselves is not sent on"


@pytest.mark.parametrize("alone", [True, False])
def test_a_member_of_a_shared_subscription_that_moves_gets_its_part_once(alone: bool) -> None:
    sites = Sites(*NAMES)
    wanted = ("$share/g/t",) if alone else ("$share/g/t", "t")
    group = [reader(sites, "a", *wanted, client="mover")]
    group += [] if alone else [reader(sites, "c", *wanted, client="stays")]
    sources = [publisher(sites, name) for name in NAMES]
    got: list[bytes] = []
    for number in range(60):
        if number % 20 == 5:
            got += group[0].payloads
            group[0].client.break_line()
            group[0].client = sites["bca"[number // 20]].open(answers=True)
            connect = Connect("mover", Version.V5, False, properties=FOREVER)
            group[0].client.bring(encode(connect, Version.V5))
        sites["c"].slow_disk = 6 <= number < 20  # the cut of c arrives late
        client = sources[number % 3].client
        client.bring(encode(Publish("t", b"%d" % number, 1, number + 1), Version.V5))
        for _ in range(12):
            sites.step()
        sites.tick()
    sites.pass_time(2)
    got += [payload for client in group for payload in client.payloads]
    everything = [b"%d" % number for number in range(60)]
    assert sorted(got) == sorted(everything * (1 if alone else 3)), "one of the group, and each"
    assert not open_moves(sites, sites.names)


@pytest.mark.parametrize("dies", [False, True])
def test_shared_messages_before_the_move_is_known_are_forwarded(dies: bool) -> None:
    sites = Sites(*NAMES)
    source, client = publisher(sites, "c"), reader(sites, "a", "$share/g/t", client="c")
    sites.pass_time(2)
    client.client.break_line()
    client.client = sites["b"].open(answers=True)
    moved = Connect("c", Version.V5, False, properties=FOREVER)
    client.client.bring(encode(moved, Version.V5))
    while not any(item.forwarder and item.forwarder.groups for item in open_moves(sites)):
        if not sites.step():
            sites.tick()
    for number in range(1, 5):  # the subscribers of the group get messages in turn
        source.client.bring(encode(Publish("t", str(number).encode(), 1, number), Version.V5))
    late = site_of(sites["c"].broker).session_moves.queues["a"].send_flow
    assert late.messages, "some of it is for a"
    if dies:
        sites["c"].turn(0)
        sites["a"].turn(0)
        sites.members["a"].power_cut()
        sites.join("a", "b")
        sites.join("a", "c")
    sites.pass_time(3)
    assert sorted(client.payloads) == [b"1", b"2", b"3", b"4"]
    assert not open_moves(sites, sites.names)


def test_late_shared_message_for_a_session_that_has_left_the_group_goes_to_another_one() -> None:
    """The client unsubscribes from the group at its new gateway, while messages for its session are
    on their way there.
    """
    sites = Sites(*NAMES)
    source, client = publisher(sites, "c"), reader(sites, "a", "$share/g/t", client="c")
    other = reader(sites, "c", "$share/g/t", client="other")
    other.client.break_line()
    client.client.break_line()
    sites.settle()
    client.client = sites["b"].open(answers=True)
    moved = Connect("c", Version.V5, False, properties=FOREVER)
    client.client.bring(encode(moved, Version.V5))
    while "c" not in sites["b"].broker.sessions:
        if not sites.step():
            sites.tick()
    for number in range(1, 21):
        source.client.bring(encode(Publish("t", str(number).encode(), 1, number), Version.V5))
    client.client.bring(encode(Unsubscribe(9, ["$share/g/t"]), Version.V5))
    sites.pass_time(3)
    other = Peer(sites, "c", "other")
    assert sorted(client.payloads + other.payloads) == sorted(b"%d" % n for n in range(1, 21))
    assert not open_moves(sites, sites.names)


def test_late_message_for_an_ended_session_is_dropped() -> None:
    """A message for the old session is late. The client has then begun a new session at another
    gateway, which must not get the message.
    """
    sites = Sites(*NAMES)
    client = reader(sites, "a", "t", client="c")
    source = publisher(sites, "c")
    client.client.break_line()
    sites["b"].slow_disk = True
    sites.connect("b", "c", wait=0)
    while "c" in sites["a"].broker.sessions:
        if not sites.step():
            sites.tick()
    source.publish("t", "late", 1, wait=SOON_S)
    sites["b"].slow_disk = False
    sites.members["b"].power_cut()
    for other in ("a", "c"):
        sites.join("b", other)
    new = Peer(sites, "b", "c", clean=True)
    new.say(Subscribe(1, [Subscription("t", 1)]))
    sites.pass_time(5)
    assert not new.payloads
    assert not open_moves(sites), "it was asked for, and nobody has it"
    assert sites.members["a"].forwarding.figures()["followers"] == 0


def test_beyond_a_bound_sessions_are_not_followed_and_that_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sites = Sites(*NAMES, sessions=12)  # at most a fourth of them may have a forwarder
    clients = [reader(sites, "a", "t", client=f"c{number}") for number in range(5)]
    sites["c"].slow_disk = True  # the cuts of c do not arrive
    clients = [move(sites, client, "b", f"c{n}") for n, client in enumerate(clients)]
    figures = sites.members["a"].forwarding.figures()
    assert (figures["followers"], figures["followers_refused"]) == (3, 2)
    assert "too many sessions have moved away" in caplog.text
    sites["c"].slow_disk = False
    sites.pass_time(2)
    assert not open_moves(sites, sites.names)
    publisher(sites, "c").publish("t", "m", 1, wait=1)
    assert [client.payloads for client in clients] == [[b"m"]] * 5


@pytest.mark.parametrize("gone", ["a", "c"])
def test_a_gateway_that_is_no_member_any_more_is_not_waited_for(gone: str) -> None:
    """The session at b waits for the cut of c, and for the messages of a's forwarder. gone: the
    gateway that leaves the site.
    """
    sites = Sites(*NAMES)
    client = reader(sites, "a", "t", client="c")
    for other in ("a", "b"):
        sites.part("c", other)
    sites.pass_time(1)
    client.client.break_line()
    sites.connect("b", "c", wait=2)
    assert [move.closed for move in open_moves(sites)] == [set(), {"c"}]
    if gone == "a":
        sites.join("b", "c")
        sites.pass_time(1)
    sites.names = tuple(name for name in NAMES if name != gone)
    for name in sites.names:
        sites.part(gone, name)
    for name in sites.names:
        sites.members[name].power_cut()
    sites.join(*sites.names)
    sites.pass_time(2)
    assert not open_moves(sites, sites.names)


def test_without_a_site_nothing_is_followed() -> None:
    sites = Sites(*NAMES)
    client = reader(sites, "a", "t", client="c")
    sites["c"].slow_disk = True
    client = move(sites, client, "b")
    for name in "ab":
        broker = sites[name].broker
        assert list(site_of(broker).session_moves)
        end_moves(broker)
        broker.settle()
        assert not list(site_of(broker).session_moves)
    publisher(sites, "b").publish("t", "m", 1)
    assert client.payloads == [b"m"]


def test_a_notice_that_was_lost_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "AGAIN_S", 2.0)
    sites = Sites(*NAMES)
    client = reader(sites, "a", "t", client="c")
    sites.pass_time(2)
    for name in NAMES:
        sites[name].slow_disk = name != "b"
    lost = sites["c"].broker
    client.client.break_line()
    sites["a"].slow_disk = False
    sites.connect("b", "c", wait=0.5)
    sites["c"].slow_disk = False
    for other in "ab":  # they end with their waiting messages
        lost.end_session(lost.sessions[f"onceway-site:c:{other}"])
    sites.pass_time(1)
    assert {"c"} in [move.closed for move in open_moves(sites)]
    sites.pass_time(5)
    assert not open_moves(sites, sites.names)


@pytest.mark.parametrize("dies", [False, True])
def test_a_queue_that_is_full_drops_no_notice(dies: bool) -> None:
    """The cut that c sends to b waits in a queue, behind more messages than this queue has room
    for.
    """
    sites = Sites(*NAMES, queue_messages=20, inflight=2)
    client = reader(sites, "a", "t", client="c")
    reader(sites, "b", "before")
    sites.pass_time(2)
    source = publisher(sites, "c")
    sites["c"].slow_disk = True
    for number in range(2):  # messages in flight are never dropped
        source.publish("before", number, 1)
    client = move(sites, client, "b")
    sites.part("b", "c")
    sites["c"].slow_disk = False
    sites.pass_time(1)
    assert {"c"} in [move.closed for move in open_moves(sites)]
    for number in range(50):
        source.publish("t", number, 1)
    figures = sites.members["c"].forwarding.figures()
    assert (figures["forward_waiting"], figures["forward_dropped"]) == (20, 33)
    if dies:
        sites.members["c"].power_cut()
        sites.join("a", "c")
        source = publisher(sites, "c")
        for number in range(50, 100):  # the front of the queue is only on disk
            source.publish("t", number, 1)
    sites.join("b", "c")
    sites.pass_time(3)
    last = 100 if dies else 50
    got = [int(payload) for payload in client.payloads]
    assert got == list(range(last - 15, last)), "what comes after the cut is for the session"
    assert not open_moves(sites, sites.names)


def test_notices_alone_do_not_make_a_queue_longer_than_it_may_be() -> None:
    sites = Sites(*NAMES, queue_messages=20)
    client = reader(sites, "b", "t")
    sites.part("b", "c")
    core = sites["c"].broker
    for number in range(1, 101):
        say(core, ["b"], Kind.TAIL, [Stage(number, 1)])
        sites["c"].turn(0)
    sites.pass_time(1)
    assert sites.members["c"].forwarding.figures()["forward_waiting"] <= 20
    sites.join("b", "c")
    sites.pass_time(2)
    publisher(sites, "c").publish("t", "m", 1)
    sites.pass_time(2)
    assert client.payloads == [b"m"]
    assert sites.members["c"].forwarding.figures()["forward_waiting"] == 0


@pytest.mark.parametrize("payload", [b"junk", bytes(13), b"\1" * 13 * 40])
def test_impossible_notices_cost_a_mad_member_its_exchange_alone(payload: bytes) -> None:
    sites = Sites(*NAMES)
    client = reader(sites, "a", "t")
    mad = sites["b"].broker
    run = PublishRun(mad.router.topic(NOTICES), payload, 1)
    deliver(mad, site_of(mad).session_moves.queues["a"], run, 2, b"", 0, 1, mad.promise())
    sites["b"].turn(0)
    sites.pass_time(2)
    publisher(sites, "b").publish("t", "m", 1, wait=2)
    assert client.payloads == [b"m"]


def test_cut_or_end_of_an_unknown_move_changes_nothing() -> None:
    sites = Sites(*NAMES)
    client = reader(sites, "a", "t", client="c")
    sites["c"].slow_disk = True
    client = move(sites, client, "b")
    before = [(move.stage, move.closed) for move in open_moves(sites)]
    mad, strange = sites["c"].broker, Stage(7, 1)
    sites["c"].slow_disk = False
    for kind in Kind:
        payload = encode_notices(kind, [strange] * AT_ONCE)
        run = PublishRun(mad.router.topic(NOTICES), payload, 1)
        for queue in site_of(mad).session_moves.queues.values():
            deliver(mad, queue, run, 2, b"", 0, 1, mad.promise())
    sites["c"].turn(0)
    sites.pass_time(2)
    assert before
    assert not open_moves(sites), "what it had to say came, too"


def test_few_of_many_waiting_moves_ask_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notices, "_AT_ONCE", 2)
    sites = Sites(*NAMES)
    clients = [reader(sites, "a", "t", client=f"c{number}") for number in range(5)]
    sites.pass_time(2)
    sites["c"].slow_disk = True
    for number, client in enumerate(clients):
        move(sites, client, "b", f"c{number}")
    sites["b"].slow_disk = True
    core, turns = sites["b"].broker, list[set[Stage]]()
    monkeypatch.setattr(notices, "say", lambda *said: turns[-1].update(said[3]))
    monkeypatch.setattr(notices, "AGAIN_S", 0.0)
    for _ in range(12):
        turns.append(set())
        notices.advance(core)
    assert max(map(len, turns)) == 2
    assert set[Stage]().union(*turns) == {move.stage for _, move in site_of(core).session_moves}


def test_only_a_mad_member_asks_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A correct member may ask about all its sessions after a start, and twice a minute if its
    clock is fast.
    """
    monkeypatch.setattr(notices, "_FEWEST_ASKS", 0)
    sites = Sites(*NAMES, sessions=AT_ONCE)
    sites.pass_time(notices.AGAIN_S + 1)  # each link began with a query
    world = sites["a"]
    payload = encode_notices(Kind.ASK, [Stage(number, 1) for number in range(1, AT_ONCE + 1)])
    for _ in range(4):
        notices.heard(world.broker, "b", [payload])
    with pytest.raises(ProtocolError):
        notices.heard(world.broker, "b", [payload])
    notices.heard(world.broker, "c", [payload])
    sites.pass_time(notices.AGAIN_S + 1)
    notices.heard(world.broker, "b", [payload])


def test_the_longest_message_that_a_client_may_publish_is_sent_on() -> None:
    sites = Sites(*NAMES, packet_bytes=2000)
    client = reader(sites, "a", "t", client="c")
    source = publisher(sites, "a")
    client.client.break_line()
    client.client = sites["b"].open(answers=True)
    moved = Connect("c", Version.V5, False, properties=FOREVER)
    client.client.bring(encode(moved, Version.V5))
    while "c" in sites["a"].broker.sessions:
        if not sites.step():
            sites.tick()
    longest = "x" * (2000 - len(encode(Publish("t", b"", 1, 1), Version.V5)) - 1)
    source.publish("t", longest, 1, wait=2)
    assert client.payloads == [longest.encode()]


def test_properties_and_the_time_that_is_left_go_along() -> None:
    sites = Sites(*NAMES)
    wanted = Subscription("t", 2, retain_as_published=True)
    client = reader(sites, "a", wanted, client="c")
    source = publisher(sites, "a")
    client.client.break_line()
    sites["b"].slow_disk = True
    client.client = sites["b"].open(answers=True)
    client.client.bring(encode(Connect("c", Version.V5, False, properties=FOREVER), Version.V5))
    while "c" in sites["a"].broker.sessions:
        if not sites.step():
            sites.tick()
    for expiry, payload in ((2, "short"), (60, "long")):
        more = {
            PropertyId.USER_PROPERTY: [("k", "v")],
            PropertyId.MESSAGE_EXPIRY_INTERVAL: expiry,
        }
        source.publish("t", payload, 1, retain=True, properties=more)
    sites.pass_time(3)
    sites["b"].slow_disk = False
    sites.pass_time(2)
    (found,) = client.client.take_all(Publish)
    assert found.payload == b"long"
    assert found.retain
    assert found.properties is not None
    assert found.properties[PropertyId.USER_PROPERTY] == [("k", "v")]
    assert 50 < found.properties[PropertyId.MESSAGE_EXPIRY_INTERVAL] < 58


def test_forwarder_is_not_a_client() -> None:
    sites = Sites(*NAMES)
    client = reader(sites, "a", "t", client="c")
    before = {name: len(sites[name].broker.sessions) for name in NAMES}
    sites["c"].slow_disk = True
    move(sites, client, "b")
    (found, _) = next(iter(site_of(sites["a"].broker).session_moves))
    assert found.client not in sites["a"].broker.sessions
    assert len(sites["a"].broker.sessions) == before["a"] - 1
    assert sites.members["a"].site.holder.record("c") is None
