"""A gateway of a site that has just started or stopped: how long its clients wait."""

import pytest

from gateway.mqtt.packets import Connack, Connect, Pubcomp, Publish, Pubrec, Pubrel, Version
from gateway.mqtt.reason import ReasonCode
from gateway.site.rules.contacts import START_S
from tests.broker.harness import FOREVER, Client
from tests.site.wiring.test_local_member import Sites


@pytest.fixture
def sites() -> Sites:
    return Sites("a", "b", "c3")


def restart(sites: Sites, name: str) -> None:
    """Restart a member by a power cut. It then has no link."""
    sites.members[name].power_cut()


def reach(sites: Sites, name: str) -> None:
    for other in sites.names:
        if other != name:
            sites.join(*sorted((name, other)))


def begin(sites: Sites, name: str, version: Version = Version.V5) -> Client:
    """Connect a client, whose session begins at this member."""
    client = come(sites, name, version)
    sites.pass_time(0.2)
    client.take(Connack)
    return client


def come(sites: Sites, name: str, version: Version = Version.V5, keep_alive: int = 0) -> Client:
    client = sites[name].open(version)
    properties = FOREVER if version is Version.V5 else {}
    packet = Connect("c", version, False, keep_alive=keep_alive, properties=properties)
    sites.say(client, packet, wait=0)
    return client


@pytest.mark.parametrize("version", [Version.V3_1_1, Version.V5])
@pytest.mark.parametrize("reached_after", [0.05, 0.9, 2.5])
def test_a_client_that_comes_in_the_first_seconds_finds_its_session(
    sites: Sites, version: Version, reached_after: float
) -> None:
    begin(sites, "a", version).break_line()
    sites.pass_time(1)
    restart(sites, "b")
    client = come(sites, "b", version)
    sites.pass_time(reached_after)
    assert not client.received
    reach(sites, "b")
    sites.pass_time(0.5)
    assert client.take(Connack).session_present
    assert sites.members["b"].site.suspect_answers == 0


def test_a_session_that_is_here_is_not_put_in_doubt_by_a_start(sites: Sites) -> None:
    """The client has a QoS 2 exchange in flight. If its session became suspect, the exchange would
    be lost.
    """
    client = begin(sites, "b")
    sites.say(client, Publish("x", b"m", 2, 9))
    client.take_all(Pubrec)
    restart(sites, "b")
    client = come(sites, "b")
    sites.pass_time(2)
    reach(sites, "b")
    sites.pass_time(0.5)
    assert client.take(Connack).session_present
    sites.say(client, Pubrel(9))
    assert client.take(Pubcomp) == Pubcomp(9)
    assert sites.members["b"].site.suspect_answers == 0


@pytest.mark.parametrize(
    ("keep_alive", "waits_s"), [(0, START_S), (1, 0.8), (2, 1.5), (3, 2.25), (60, START_S)]
)
def test_client_waits_no_longer_than_its_keep_alive_allows(
    sites: Sites, keep_alive: int, waits_s: float
) -> None:
    """After this time, the usual rules for a silent member apply."""
    restart(sites, "b")
    client = come(sites, "b", keep_alive=keep_alive)
    sites.pass_time(waits_s - 0.1)
    assert not client.received
    sites.pass_time(0.3)
    assert not client.take(Connack).session_present
    assert sites.members["b"].site.suspect_answers == 1


@pytest.mark.parametrize("stopped", [True, False])
def test_a_member_that_stops_is_expected_and_one_that_is_lost_is_not(
    sites: Sites, stopped: bool
) -> None:
    begin(sites, "a").break_line()
    sites.pass_time(1)
    for other in ("b", "c3"):
        sites.links.discard(frozenset(("a", other)))
        sites.members[other].forwarding.link_ended("a")
        sites.members[other].retained.sharing.link_ended("a")
        sites.members[other].site.link_ended("a", stopped)
    client = come(sites, "b")
    sites.pass_time(1.2)
    assert bool(client.received) is not stopped
    restart(sites, "a")
    reach(sites, "a")
    sites.pass_time(0.5)
    assert client.take(Connack).session_present is stopped


def test_pubrel_in_the_first_seconds_waits_for_other_members(sites: Sites) -> None:
    """The client's session begins at b. Another member may know the identifier of the client's
    PUBREL, so b does not answer until it has reached the other members.
    """
    restart(sites, "b")
    client = sites["b"].open()
    sites.say(client, Connect("new", Version.V5, True, properties=FOREVER), wait=1.2)
    client.take(Connack)
    marked = sites.members["b"].site.suspect_answers
    sites.say(client, Pubrel(9), wait=1.0)
    assert not client.received
    reach(sites, "b")
    sites.pass_time(0.3)
    assert client.take(Pubcomp) == Pubcomp(9, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
    assert sites.members["b"].site.suspect_answers == marked, "all have answered"
