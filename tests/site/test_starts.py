"""Members that start and stop while clients connect, on virtual time: which members a start waits
for, and how long.
"""

from random import Random

import pytest

from gateway.site.rules.contacts import ANSWER_S, MOST_ANSWER_S, RESTART_S, START_S, Contacts
from gateway.site.rules.holder import Outcome
from tests.site.rules.three import Site
from tests.site.sim_client import Client
from tests.site.sim_holder import Record, Session
from tests.site.world import World

STAYS_S = 1.0
"""Shortest time that a client stays at a running gateway, in seconds."""
AWAY_S = (0.5, 1.5, 2.5, 8.0, 13.0)
"""Seconds for which a member is away, all below RESTART_S."""


@pytest.fixture
def site() -> Site:
    return Site()


def start_without_links(site: Site, name: str) -> None:
    """Crash a member and start it again, without links to other members."""
    for other in set(site.names) - {name}:
        site.cut(name, other, notice=0.001)
    site.run(0.1)
    site.crash(name)
    site.run(10.0)
    site.start(name)


def reach(site: Site, name: str) -> None:
    for other in set(site.names) - {name}:
        site.heal(name, other)


@pytest.mark.parametrize("reached_after", [0.1, 0.9, 2.0, START_S - 0.3])
@pytest.mark.parametrize("holder", ["a", "b"])
def test_a_client_of_a_member_that_starts_keeps_its_session(
    site: Site, holder: str, reached_after: float
) -> None:
    """holder: the member with the session, either the starting one or another one."""
    site.come(holder)
    site.client.leave()
    start_without_links(site, "b")
    site.client.connect("b")
    site.run(reached_after)
    assert not site.client.accepted
    reach(site, "b")
    site.run(0.5 + ANSWER_S)
    assert site.client.accepted, "world.py has looked at its session"
    assert not site.client.marked
    assert site.reached["none"] == 1, "its first session"


@pytest.mark.parametrize("comes_after", [0.0, 1.0, START_S - 0.1])
def test_unreachable_member_waits_for_its_bound(site: Site, comes_after: float) -> None:
    """The bound counts from the member's start. comes_after: seconds between start and CONNECT."""
    site.come("a")
    site.client.leave()
    start_without_links(site, "b")
    site.run(comes_after)
    site.client.connect("b")
    site.run(START_S - comes_after - 0.05)
    assert not site.client.accepted
    site.run(0.2)
    assert site.client.accepted
    assert site.client.marked
    assert site.place_at("b").older == {"a", "c"}


def test_the_bound_counts_from_the_end_of_a_start(site: Site) -> None:
    """The start of a gateway may take longer than the bound on waiting for links. So the bound
    counts from the call of `started`.
    """
    start_without_links(site, "b")
    site.run(START_S + 1.0)
    member = site.gateways["b"].member
    assert member is not None
    member.started(site.gateways["b"].now)
    site.come("b", START_S - 0.1)
    assert not site.client.accepted
    site.run(0.2)
    assert site.client.accepted


def test_start_does_not_report_present_members(site: Site) -> None:
    site.silence("b")
    member = site.gateways["b"].member
    assert member is not None
    member.started(site.gateways["b"].now)
    site.come("b", 0.2)
    assert site.client.accepted


def test_after_the_bound_a_member_without_a_link_is_silent_at_once(site: Site) -> None:
    start_without_links(site, "b")
    site.run(START_S + 0.1)
    site.come("b", 0.2)
    assert site.client.accepted
    assert site.client.marked


def test_a_clean_start_does_not_wait_for_members_that_start(site: Site) -> None:
    start_without_links(site, "b")
    site.come("b", ANSWER_S + 0.1, clean=True)
    assert site.client.accepted


@pytest.mark.parametrize("patience", [0.1, 1.5, 2.5, 60.0])
def test_wait_for_a_start_ends_before_the_client_gives_up(site: Site, patience: float) -> None:
    start_without_links(site, "b")
    outcomes = wants(site, "b", patience)
    waits = min(START_S, max(patience, 0.8))  # a lease from before the start may last for 0.8 s
    site.run(waits - 0.05)
    assert not outcomes
    site.run(0.2)
    assert outcomes
    assert set(outcomes[0].silent) == {"a", "c"}


def test_the_last_connection_of_a_client_says_how_long_it_can_wait(site: Site) -> None:
    start_without_links(site, "b")
    first = wants(site, "b", 60.0)
    second = wants(site, "b", 1.2)
    site.run(1.3)
    assert first
    assert second


def wants(site: Site, name: str, patience: float) -> list[Outcome]:
    outcomes: list[Outcome] = []
    gateway = site.gateways[name]
    assert gateway.member is not None
    gateway.member.want_session(
        "client-0", gateway.now, outcomes.append, False, lambda: True, patience
    )
    gateway.run(lambda: None)
    return outcomes


def test_a_member_that_answers_late_after_a_start_is_busy_and_not_silent(site: Site) -> None:
    """The member has a slow disk and many clients, but sends keep-alives all the time."""
    site.come("a")
    site.client.leave()
    start_without_links(site, "b")
    holder = site.gateways["a"].holder
    reach(site, "b")
    site.run(0.5)
    site.commit_s = lambda: 1.6  # type: ignore[method-assign]
    holder.commit(lambda: None, lambda: None)
    site.client.connect("b")
    site.run(ANSWER_S + 0.1)
    assert not site.client.accepted
    site.run(8.0)
    assert site.client.accepted
    assert not site.client.marked


def releases(site: Site, name: str) -> list[tuple[bool, tuple[str, ...]]]:
    """Let a member look up a packet identifier that it does not know, as for a PUBREL. Return a
    list to which the answer is added: whether the identifier is known, and the silent members.
    """
    answers: list[tuple[bool, tuple[str, ...]]] = []
    gateway = site.gateways[name]
    gateway.holder.records.setdefault("client-0", Record(session=Session(0), suspect=True))
    assert gateway.member is not None
    gateway.member.want_release(
        "client-0", 1, gateway.now, lambda known, silent: answers.append((known, silent))
    )
    gateway.run(lambda: None)
    return answers


@pytest.mark.parametrize("reached_after", [0.1, 0.9, START_S - 0.3])
@pytest.mark.parametrize("known", [True, False])
def test_a_pubrel_at_a_member_that_starts_is_answered_truly(
    site: Site, reached_after: float, known: bool
) -> None:
    site.eager = 0.0
    site.come("a")
    if known:
        site.client.publish()
        site.run(0.2)
    start_without_links(site, "b")
    answers = releases(site, "b")
    site.run(reached_after)
    assert not answers
    reach(site, "b")
    site.run(0.5 + ANSWER_S)
    assert answers == [(known, ())]


def test_a_pubrel_waits_no_longer_than_a_connect(site: Site) -> None:
    start_without_links(site, "b")
    answers = releases(site, "b")
    site.run(START_S - 0.1)
    later = releases(site, "b")
    site.run(0.2)
    assert answers == later == [(False, ("a", "c"))]
    site.run(1.0)
    answers = releases(site, "b")
    site.run(0.1)
    assert answers == [(False, ("a", "c"))], "the start is over, and nobody has a link"


def test_a_pubrel_over_a_link_that_breaks_is_asked_again(site: Site) -> None:
    site.eager = 0.0
    site.come("a")
    site.client.publish()
    site.run(0.2)
    answers = releases(site, "b")
    site.break_link(site.link("a", "b"))
    site.run(1.0)
    assert answers == [(True, ())]


@pytest.mark.parametrize("away_s", AWAY_S)
@pytest.mark.parametrize("to", ["a", "b", "c"])
def test_client_during_a_member_restart_keeps_its_session(
    site: Site, to: str, away_s: float
) -> None:
    """The client's session is at the restarting gateway b. The client connects to b or another
    gateway.
    """
    site.patience = 45.0
    site.come("b")
    site.client.leave()
    site.run(0.1)
    site.crash("b", stopped=True)
    site.after(away_s, lambda: site.start("b"))
    if to == "b":
        site.run(away_s + 0.001)
    else:
        site.run(0.1)
    site.client.connect(to)
    site.run(away_s + 1.0)
    assert site.client.accepted
    assert not site.client.marked


def test_member_that_stops_for_good_is_silent_after_the_bound(site: Site) -> None:
    site.come("b")
    site.client.leave()
    site.run(0.1)
    site.crash("b", stopped=True)
    site.run(0.1)
    site.patience = 60.0
    site.come("a", RESTART_S - 0.3)
    assert not site.client.accepted
    site.run(0.5)
    assert site.client.accepted
    assert site.client.marked
    site.client.marked = False
    site.client.leave()
    site.client.session = None
    site.come("c", 1.0)
    assert site.client.accepted, "later ones wait no longer than for any silent member"


@pytest.mark.parametrize("patience", [2.0, START_S])
def test_a_stop_keeps_no_client_waiting_longer_than_it_can(site: Site, patience: float) -> None:
    site.crash("b", stopped=True)
    site.run(0.1)
    outcomes = wants(site, "a", patience)
    site.run(patience - 0.1)
    assert not outcomes
    site.run(0.2)
    assert outcomes[0].silent == ("b",)


@pytest.mark.parametrize("line_s", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("to", ["a", "c"])
def test_a_session_moves_over_a_slow_line(site: Site, to: str, line_s: float) -> None:
    """line_s: delay of each frame in seconds. An LTE line may have 0.5 s."""
    site.line_s = line_s
    site.run(3.0)
    site.come("b", 6.0)
    assert site.client.accepted
    site.client.publish()
    site.run(1.0)
    session = site.client.session
    for place in (to, "b", to):
        site.come(place, 6 * line_s + 1.0)
        assert site.client.accepted
        assert site.client.session == session
    assert not site.client.marked
    assert not any(contact.mute for contact in contacts(site, to).values())


def test_a_wait_over_a_slow_line_has_a_bound(site: Site) -> None:
    """The line is so slow that no answer can arrive within the bound. When the line is fast again,
    the client waits only for a short time again.
    """
    site.line_s = 4.0
    site.run(12.0)
    outcomes = wants(site, "b", 60.0)
    site.run(MOST_ANSWER_S + 0.1)
    assert set(outcomes[0].silent) == {"a", "c"}
    site.line_s = 0.0
    site.run(20.0)
    assert {contact.answer_s for contact in contacts(site, "b").values()} == {ANSWER_S}


def contacts(site: Site, name: str) -> Contacts:
    member = site.gateways[name].member
    assert member is not None
    return member.contacts


def test_crashed_member_is_silent_once_its_lease_is_over(site: Site) -> None:
    """Onceway 0.2.0 sends no BYE when it stops, so other members treat its stop as a crash."""
    site.crash("b")
    site.run(0.05)
    site.come("a", ANSWER_S)
    assert site.client.accepted
    assert site.client.marked


def hop(world: World, client: Client, random: Random) -> None:
    """Cut the client's connection, and connect it at once to a running gateway."""
    running = [name for name, gateway in world.gateways.items() if gateway.member is not None]
    client.connect(random.choice(running))


@pytest.mark.parametrize("away_s", AWAY_S)
def test_a_rolling_restart_with_clients_that_hop_loses_no_session(away_s: float) -> None:
    """Each of 30 clients connects to another gateway when its gateway stops, and sometimes at other
    times.
    """
    random = Random(f"rolling {away_s}")
    world = World(random, members=3, clients=30)
    world.patience = 45.0
    for client in world.clients:
        client.connect(random.choice(world.names))
    came = dict.fromkeys(world.clients, 0.0)
    world.run(3.0)
    begun = world.reached["none"]
    assert begun == len(world.clients)
    for name in world.names:
        world.crash(name, stopped=True)
        world.after(away_s, lambda name=name: world.start(name))  # type: ignore[misc]
        for _ in range(int(10 * away_s) + 45):
            world.run(0.1)
            for client in world.clients:
                never_moves = world.now < came[client] + STAYS_S or random.random() > 0.04
                if client.connection is None or not never_moves:
                    hop(world, client, random)
                    came[client] = world.now
                client.publish()
        assert world.gateways[name].member is not None
    world.run(5.0)
    assert all(client.accepted for client in world.clients)
    assert not any(client.marked for client in world.clients)
    assert world.reached["none"] == begun, "no session began anew"
    assert world.reached["doubt"] == 0
    world.settle(5.0)


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("away_s", [0.5, 2.5, START_S + 0.5, 10.0, 60.0])
@pytest.mark.parametrize("to", ["a", "c"])
def test_a_member_that_is_back_is_busy_and_not_silent(
    site: Site, to: str, away_s: float, stopped: bool
) -> None:
    """The session is at b, whose disk is slow after its restart. b sends keep-alives all the time,
    so it does not count as silent. It makes no difference how long b was off, or whether it sent a
    BYE.
    """
    site.come("b")
    site.client.leave()
    site.run(0.1)
    site.crash("b", stopped=stopped)
    site.run(away_s)
    site.start("b")
    site.run(0.5)
    site.commit_s = lambda: 1.6  # type: ignore[method-assign]
    site.gateways["b"].holder.commit(lambda: None, lambda: None)
    site.client.connect(to)
    site.run(ANSWER_S + 0.1)
    assert not site.client.accepted
    site.run(8.0)
    assert site.client.accepted
    assert not site.client.marked
