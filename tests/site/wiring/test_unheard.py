"""The connection may break before the client of a new session receives CONNACK with Session Present
0. Then the next CONNACK has Session Present 0 again.
"""

from typing import Any

import pytest

import gateway.site.wiring.places
import gateway.site.wiring.unheard
from gateway.mqtt.packets import Connack, Connect, Publish, Pubrec, Subscribe, Subscription, Version
from tests.broker.harness import FOREVER
from tests.site.wiring.test_local_member import Sites


@pytest.fixture
def sites() -> Sites:
    """Return a site in which a and b get no answer from c."""
    sites = Sites("a", "b", "c")
    sites.part_silently("a", "c")
    sites.part_silently("b", "c")
    return sites


def cut_power(sites: Sites, name: str = "a") -> None:
    sites.members[name].power_cut()
    sites.join("a", "b")
    sites.pass_time(4)


@pytest.mark.parametrize("power", [True, False])
@pytest.mark.parametrize("other", ["a", "b"])
def test_unheard_session_begins_again(sites: Sites, power: bool, other: str) -> None:
    for name in ("a", other):
        client = sites.connect(name, wait=4)
        assert not client.take(Connack).session_present, f"at {name}"
        client.break_line()  # the connection breaks before the CONNACK
        sites.settle()
        if power:
            cut_power(sites, name)
    client = sites.connect("a", wait=4)
    assert not client.take(Connack).session_present
    sites.say(client, Publish("x", b"again", 2, 7))
    client.take(Pubrec)


@pytest.mark.parametrize("power", [True, False])
@pytest.mark.parametrize("other", ["a", "b"])
def test_client_that_sends_something_has_heard_it(sites: Sites, power: bool, other: str) -> None:
    client = sites.connect("a", wait=4)
    assert not client.take(Connack).session_present
    sites.say(client, Subscribe(1, [Subscription("x", 1)]), wait=0.3 if power else 0)
    client.break_line()
    sites.settle()
    if power:
        cut_power(sites)
    client = sites.connect(other, wait=4)
    assert client.take(Connack).session_present
    assert sites.members[other].site.figures()["in_doubt"] == 0
    sites.say(client, Publish("y", b"m", 2, 0xFFFF))
    client.take(Pubrec)
    assert sites[other].broker.statistics.repeated == 0


@pytest.mark.parametrize("power", [True, False])
@pytest.mark.parametrize("other", ["a", "b", "c"])
@pytest.mark.parametrize("later", [0.0, 4.0])
def test_missed_end_of_a_session_is_repeated(power: bool, other: str, later: float) -> None:
    """c decides that the session at b is over, but its CONNACK does not reach the client, because
    the connection breaks. power: c also has a power cut. later: seconds between the return of c's
    links and the client's next CONNECT, which goes to `other`. This CONNACK must report the end of
    the session again.
    """
    sites = Sites("a", "b", "c")
    client = sites.connect("b")
    client.take(Connack)
    sites.say(client, Publish("x", b"once", 2, 7))
    client.take(Pubrec)
    client.break_line()
    for name in ("a", "b"):
        sites.part(name, "c")
    site = sites.members["c"].site
    placed = site._placed

    def leave(*arguments: Any) -> None:
        """Break the connection when the decision is on disk."""
        client.break_line()
        if not power:
            placed(*arguments)

    site._placed = leave  # type: ignore[method-assign]
    client = sites["c"].open()
    sites.say(client, Connect("c", Version.V5, False, properties=FOREVER), wait=4)
    assert not client.received
    if power:
        sites.members["c"].power_cut()
    for name in ("a", "b"):
        sites.join(name, "c")
    sites.pass_time(later)
    assert not later or "c" not in sites["b"].broker.sessions
    for name in (other, "a"):
        client = sites.connect(name, wait=4)
        assert not client.take(Connack).session_present, f"at {name}"
        client.break_line()
        sites.settle()
    sites.say(sites.connect("b", wait=4), Subscribe(1, [Subscription("x", 1)]))
    assert sites.connect("a", wait=4).take(Connack).session_present, "it has heard of the new one"
    sites.pass_time(10)
    assert all(member.site.figures()["in_doubt"] == 0 for member in sites.members.values())
    assert sum("c" in member.site.holder.places for member in sites.members.values()) <= 1


def test_oldest_unheard_ends_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = Sites("a", "b")
    monkeypatch.setattr(gateway.site.wiring.places, "MOST_UNHEARD", 3)
    holder = sites.members["a"].site.holder
    sites["a"].engine.begin()
    for number in range(5):
        holder.mark_suspect(f"c{number}", lambda: None)
        holder.stand(f"c{number}", 1, frozenset(), lambda: None)
    sites.pass_time(1)
    holder.places.forget_idle()
    assert holder.places.keys() == {"c2", "c3", "c4"}
    assert holder.places.in_doubt == 0


def test_another_doubt_is_not_cleared_by_a_packet(sites: Sites) -> None:
    client = sites.connect("a", wait=4)
    client.take(Connack)
    holder = sites.members["a"].site.holder
    holder.mark_all_suspect(lambda: None)
    sites.say(client, Subscribe(1, [Subscription("x", 1)]), wait=1)
    assert sites.members["a"].site.figures()["in_doubt"] == 1


def test_closed_connection_is_forgotten_and_its_session_stays_unheard(sites: Sites) -> None:
    client = sites.connect("a", wait=4)
    client.take(Connack)
    holder = sites.members["a"].site.holder
    assert holder.unheard
    client.break_line()
    sites.pass_time(1)
    assert not holder.unheard
    assert not sites.connect("a", wait=4).take(Connack).session_present


def test_many_silent_clients_are_looked_at_seldom(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CONNECT or a frame does not start a check of all clients that have sent nothing yet."""
    client = sites.connect("a", wait=4)
    client.take(Connack)
    holder = sites.members["a"].site.holder
    connection, _ = holder.unheard["c"]
    holder.unheard |= {f"c{n}": (connection, float("inf")) for n in range(1000)}
    monkeypatch.setattr(gateway.site.wiring.unheard, "LOOKS_PER_S", 500)
    looks = 0
    look_at = holder.unheard.look_at

    def count(key: str) -> None:
        nonlocal looks
        looks += 1
        look_at(key)

    monkeypatch.setattr(gateway.site.wiring.unheard.Unheard, "look_at", lambda _, key: count(key))
    for number in range(10):
        sites.connect("a", f"d{number}")
    assert looks < 3000, "in 2 s"
    sites.say(client, Subscribe(1, [Subscription("x", 1)]))
    record = holder.record("c")
    assert record is not None
    assert not record.suspect, "the one that is asked for is looked at"
