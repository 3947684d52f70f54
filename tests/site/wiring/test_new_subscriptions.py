"""A new subscription gets messages that other gateways publish after the subscription. It gets no
earlier message.
"""

import pytest

from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connack,
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
)
from gateway.site.moving import new_subscriptions
from gateway.site.moving.new_subscriptions import Behind
from gateway.site.moving.session_moves import moves_of
from gateway.site.rules.ending import Ending
from tests.site.wiring.test_forwarding import SOON_S, Peer, publisher, reader, waiting
from tests.site.wiring.test_local_member import Sites

OLD = [b"old %d" % number for number in range(40)]


@pytest.fixture
def sites() -> Sites:
    return Sites("a", "b", "c")


def part(sites: Sites) -> tuple[Peer, Peer]:
    """Cut b off from a, and publish at a for a client of b. Return this client and the
    publisher.
    """
    known = reader(sites, "b", "t/#", client="known")
    source = publisher(sites, "a")
    sites.part("a", "b")
    for number, text in enumerate(OLD):
        source.publish(f"t/{number % 3}", text.decode(), 1 + number % 2)
    assert waiting(sites, "a") == len(OLD)
    return known, source


def heal(sites: Sites) -> None:
    sites.join("a", "b")
    sites.pass_time(2)
    assert waiting(sites, "a") == 0


def is_settled(sites: Sites) -> bool:
    """Return whether no session of b waits for a cut, neither in memory nor on disk."""
    rows = sites["b"].database.execute("SELECT count(*) FROM journey").fetchone()[0]
    return not rows and not list(moves_of(sites["b"].broker))


@pytest.mark.parametrize("topic_filter", ["t/#", "#", "t/1"])
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_new_client_gets_no_message_from_before(
    sites: Sites, topic_filter: str, clean: bool, qos: int
) -> None:
    known, source = part(sites)
    new = Peer(sites, "b", "new", clean=clean)
    new.say(Subscribe(1, [Subscription(topic_filter, qos)]))
    publisher(sites, "b").publish("t/1", "here", 1)
    heal(sites)
    source.publish("t/1", "later", 1, wait=SOON_S)
    assert new.payloads == [b"here", b"later"]
    assert sorted(known.payloads) == sorted([*OLD, b"here", b"later"])
    assert is_settled(sites)


def test_session_that_outlives_a_power_cut_gets_no_message_from_before(sites: Sites) -> None:
    _, source = part(sites)
    reader(sites, "b", "t/#", client="new")
    sites.members["b"].power_cut()
    sites.join("b", "c")
    sites.pass_time(SOON_S)
    heal(sites)
    source.publish("t/1", "later", 1, wait=SOON_S)
    assert Peer(sites, "b", "new").payloads == [b"later"]
    assert is_settled(sites)


@pytest.mark.parametrize("first", ["t/1", "t/+"])
def test_other_subscriptions_of_the_session_get_all(sites: Sites, first: str) -> None:
    session = reader(sites, "b", first, client="session")
    _, source = part(sites)
    session.say(Subscribe(2, [Subscription("#", 2)]))
    heal(sites)
    source.publish("x", "later", 1, wait=SOON_S)
    wanted = [text for number, text in enumerate(OLD) if first == "t/+" or number % 3 == 1]
    assert sorted(session.payloads) == sorted([*wanted, b"later"])


def test_filter_that_is_left_and_wanted_again_is_new(sites: Sites) -> None:
    session = reader(sites, "b", "t/#", client="session")
    _, source = part(sites)
    session.say(Unsubscribe(2, ["t/#"]))
    session.say(Subscribe(3, [Subscription("t/#", 2)]))
    heal(sites)
    source.publish("t/1", "later", 1, wait=SOON_S)
    assert session.payloads == [b"later"]


def test_filter_that_is_wanted_once_more_is_not_new(sites: Sites) -> None:
    session = reader(sites, "b", "t/#", client="session")
    part(sites)
    session.say(Subscribe(3, [Subscription("t/#", 1)]))
    heal(sites)
    assert sorted(session.payloads) == sorted(OLD)


@pytest.mark.parametrize("back", [False, True])
def test_session_that_moves_on_gets_no_message_from_before(sites: Sites, back: bool) -> None:
    _, source = part(sites)
    reader(sites, "b", "t/#", client="new").client.break_line()
    sites.settle()
    new = Peer(sites, "c", "new")
    assert "new" not in sites["b"].broker.sessions
    publisher(sites, "c").publish("t/1", "meanwhile", 1)
    if back:
        new.client.break_line()
        sites.settle()
        got = new.payloads
        new = Peer(sites, "b", "new")
    else:
        got = []
    heal(sites)
    source.publish("t/1", "later", 1, wait=SOON_S)
    assert [*got, *new.payloads] == [b"meanwhile", b"later"]
    assert is_settled(sites)


def test_message_published_right_after_the_subscription_arrives(sites: Sites) -> None:
    """The two gateways have just met, and the other one is still delivering waiting messages."""
    known, source = part(sites)
    sites.join("a", "b")
    for number in range(10):
        new = reader(sites, "b", "t/#", client=f"new {number}")
        source.publish("t/1", f"later {number}", 1, wait=SOON_S)
        assert new.payloads == [b"later %d" % number]
    assert len(known.payloads) == len(OLD) + 10
    assert is_settled(sites)


@pytest.mark.parametrize("steps", [*range(0, 24, 3), 40, 60, 80])
def test_subscription_between_any_two_frames_gets_no_message_from_before(
    sites: Sites, steps: int
) -> None:
    known, source = part(sites)
    new = Peer(sites, "b", "new", clean=True)
    sites.links.add(frozenset("ab"))
    sites.members["a"].joined("b")
    sites.members["b"].joined("a")
    for _ in range(steps):
        sites.step()
    new.client.bring(encode(Subscribe(1, [Subscription("t/#", 2)]), Version.V5))
    sites.pass_time(1)
    source.publish("t/1", "later", 1, wait=SOON_S)
    assert new.payloads == [b"later"]
    assert len(known.payloads) == len(OLD) + 1
    assert is_settled(sites)


def test_gateways_in_contact_send_nothing_for_a_subscription(sites: Sites) -> None:
    reader(sites, "b", "t/#", client="known")
    sites.pass_time(1)
    assert all(not behind(sites, name).members for name in sites.names)
    before = sites["a"].broker.statistics.received[1]
    reader(sites, "b", "t/#", client="new")
    sites.pass_time(1)
    assert sites["a"].broker.statistics.received[1] == before
    assert is_settled(sites)


def behind(sites: Sites, name: str) -> Behind:
    return sites.members[name].forwarding._behind


def test_a_lost_question_is_asked_again(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    _, source = part(sites)
    reader(sites, "b", "t/#", client="new").client.break_line()
    monkeypatch.setattr(new_subscriptions, "say", lambda *_: None)
    heal(sites)
    assert not is_settled(sites)
    sites.pass_time(130)
    assert is_settled(sites)
    source.publish("t/1", "later", 1, wait=SOON_S)
    assert Peer(sites, "b", "new").payloads == [b"later"]


def both_go_on(sites: Sites, back: bool) -> tuple[Peer, list[bytes]]:
    """Cut a off. The client of a then connects to b, and to a again. back: the client stays at a;
    otherwise, it connects to b once more. Afterwards, a and b both have a session of this client.
    Return the client and the payloads that it received.
    """
    client = reader(sites, "a", "t/#", client="c")
    reader(sites, "b", "t/#", client="other")
    sites.part("a", "b")
    sites.part("a", "c")
    sites.pass_time(2)
    publisher(sites, "a").publish("t/1", "before", 1)
    got = client.payloads
    for visit, name in enumerate("ba" if back else "bab"):
        client.client.break_line()
        sites.settle()
        client = Peer(sites, name, "c")
        client.say(Subscribe(7, [Subscription("t/#", 2)]))
        publisher(sites, name).publish("t/1", f"at {name}, visit {visit}", 2)
        sites.pass_time(SOON_S)
        got += client.payloads
    assert {"a", "b"} == {name for name in "ab" if "c" in sites[name].broker.sessions}
    return client, got


@pytest.mark.few(8)
@pytest.mark.parametrize("at", ["a", "b", "c"])
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("wait", [0.0, 0.01, 0.05, 2])
def test_client_with_two_sessions_learns_it_before_a_message_arrives_again(
    sites: Sites, at: str, back: bool, wait: float
) -> None:
    last, got = both_go_on(sites, back)
    sites.join("a", "b")
    sites.join("a", "c")
    sites.pass_time(wait)
    found = [sites[name].broker.sessions.get("c") for name in "ab"]
    assert not wait or not any(session and session.connection for session in found)
    got += last.payloads
    assert len(got) == len(set(got))
    client = sites.connect(at, "c", wait=3)
    assert not client.take(Connack).session_present
    assert not client.take_all(Publish)
    sites.pass_time(1)
    assert [name for name in sites.names if "c" in sites[name].broker.sessions] == [at]


@pytest.mark.parametrize("back", [False, True])
def test_client_of_a_session_that_gives_way_gets_nothing_more(
    sites: Sites, back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member learns late that its session has to end."""
    last, got = both_go_on(sites, back)
    monkeypatch.setattr(Ending, "_on_ended", lambda *_: None)
    sites.join("a", "b")
    sites.join("a", "c")
    sites.pass_time(1)
    got += last.payloads
    assert len(got) == len(set(got))


@pytest.mark.parametrize("at", ["a", "b"])
@pytest.mark.parametrize("back", [False, True])
def test_client_with_two_sessions_learns_it_if_it_connects_while_members_meet(
    sites: Sites, at: str, back: bool
) -> None:
    last, _ = both_go_on(sites, back)
    last.client.break_line()
    sites.settle()
    for pair in ("a", "b"), ("b", "a"):
        sites.links.add(frozenset(pair))
        sites.members[pair[0]].joined(pair[1])
    client = sites.connect(at, "c", wait=3)  # before any frame is delivered
    assert not client.take(Connack).session_present
    assert not client.take_all(Publish)
