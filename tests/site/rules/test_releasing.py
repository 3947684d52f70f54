"""PUBREL with a packet identifier that the client's gateway does not know, on virtual time: the
gateway asks the other members. No such query outlasts the session at this gateway.
"""

import pytest

from gateway.site.rules.contacts import START_S
from gateway.site.rules.messages import (
    Ask,
    Query,
    encode,
)
from tests.site.rules.three import Site, slow_commit
from tests.site.sim_holder import Record


@pytest.fixture
def empty() -> Site:
    return Site()


@pytest.fixture
def site(empty: Site) -> Site:
    """Return a site with a client whose session is at b."""
    site = empty
    site.eager = 0.0
    site.run(START_S)
    site.come("b")
    return site


def want_release(site: Site) -> list[bool]:
    """Let b look up packet identifier 1, as for a PUBREL. Return a list, which gets the answer when
    it arrives.
    """
    answers: list[bool] = []
    gateway = site.gateways["b"]
    assert gateway.member is not None
    gateway.member.want_release(
        site.client.name, 1, gateway.now, lambda known, silent: answers.append(known)
    )
    return answers


def questions(site: Site, to: str) -> int:
    asks = [message for _, receiver, message in site.said if receiver == to]
    query = Query(site.client.name, 1)
    return sum(message.questions.count(query) for message in asks if isinstance(message, Ask))


def test_member_that_joins_later_is_not_asked_if_the_session_has_moved(site: Site) -> None:
    """Meanwhile, the session may have moved to that member, where the packet identifier may belong
    to another message.
    """
    site.crash("c", stopped=True)
    site.run(0.1)
    answers = want_release(site)
    site.patience = 0.0
    site.come("a", 1.4)
    site.client.publish()
    while not site.place_at("a").session.received:  # type: ignore[union-attr]
        site.run(0.0001)
    site.client.leave()  # the client will send this PUBLISH again
    received = ((1, site.client.flight[1][0]),)
    site.run(0.1)
    assert site.place()[0] == "a"
    site.patience = START_S
    site.start("c")
    site.come("c", 3.0)
    assert site.place_at("c").session.received == received  # type: ignore[union-attr]
    assert answers == [False]
    assert questions(site, "c") == 0


def test_busy_member_is_not_asked_again_if_the_session_has_moved(site: Site) -> None:
    slow_commit(site, "c", 0.5)
    site.client.connect("c")
    while "Take" not in site.kinds("c"):
        site.run(0.001)
    answers = want_release(site)
    site.run(1.0)
    assert site.place_at("c").session is not None
    assert answers == [False]
    assert questions(site, "c") == 1


@pytest.mark.parametrize("reason", ["joins", "busy"])
def test_member_is_asked_again_while_the_session_stays(site: Site, reason: str) -> None:
    name = site.client.name
    member = site.gateways["c"].member
    if reason == "joins":
        site.crash("c", stopped=True)
        site.run(0.1)
        answers = want_release(site)
        site.start("c")
    else:
        assert member is not None
        member._lookup._working.begin(name)
        answers = want_release(site)
        site.run(0.1)
        member._lookup._working.finish(name)
    site.run(0.2)
    assert answers == [False]
    assert questions(site, "c") >= 1 + (reason == "busy")


def test_release_is_answered_by_the_holder_only(empty: Site) -> None:
    empty.eager = 0.0
    empty.come("a")
    empty.client.publish()
    empty.run(0.2)
    told: list[tuple[bool, tuple[str, ...]]] = []
    member = empty.gateways["b"].member
    assert member is not None
    for identifier in (2, 1, 1):
        member.want_release(
            empty.client.name,
            identifier,
            empty.gateways["b"].now,
            lambda known, silent: told.append((known, silent)),
        )
        empty.run(0.5)
    empty.silence("a")
    member.want_release(
        empty.client.name,
        1,
        empty.gateways["b"].now,
        lambda known, silent: told.append((known, silent)),
    )
    empty.run(0.5)
    assert told == [(False, ()), (True, ()), (False, ()), (False, ("a",))]


def test_an_identifier_that_is_being_released_is_unknown_when_that_is_on_disk(empty: Site) -> None:
    empty.eager = 0.0
    empty.come("a")
    empty.client.publish()
    empty.run(0.2)
    empty.commit_s = lambda: 0.5  # type: ignore[method-assign]
    for _ in range(2):
        empty.client._say(1)
    empty.run(0.4)
    assert empty.reached["0x92"] == 0
    empty.run(0.3)
    assert empty.reached["PUBCOMP"] == 1


def test_a_late_query_of_the_old_place_releases_no_identifier_of_the_new_one(empty: Site) -> None:
    """At the new gateway, the packet identifier belongs to another message. If the late query of b
    released this identifier, the new gateway would accept that message twice.
    """
    empty.eager = 0.0
    empty.come("b")
    empty.client.publish()
    empty.run(0.2)
    empty.client.connect("a")
    new = empty.gateways["a"]
    while "b" not in new.holder.records.get(empty.client.name, Record()).older:
        empty.run(0.001)
    empty.client.leave()
    assert new.member is not None
    new.member.received("b", encode(Ask(99, (Query(empty.client.name, 1),))), new.now)
    empty.run(2.0)
    session = new.holder.records[empty.client.name].session
    assert session is not None
    assert [identifier for identifier, _ in session.received] == [1]
