"""Clients that connect again while the members still look up their sessions, on virtual time. Only
some replies count for the newer CONNECT.
"""

import pytest

from gateway.site.rules.contacts import START_S
from gateway.site.rules.lookup import FRESH_S
from gateway.site.rules.messages import Ask, Query
from tests.site.rules.three import Site


@pytest.fixture
def site() -> Site:
    """Return a site whose member c has stopped. A CONNECT waits for c as long as the client can
    wait.
    """
    site = Site()
    site.eager = 0.0
    site.run(START_S)  # no member is starting any more
    site.crash("c", stopped=True)
    site.run(0.1)
    return site


def questions(site: Site, to: str) -> int:
    """Return the number of queries about the client that a member was sent."""
    asks = [message for _, receiver, message in site.said if receiver == to]
    query = Query(site.client.name)
    return sum(message.questions.count(query) for message in asks if isinstance(message, Ask))


@pytest.mark.parametrize(("searching", "visited"), [("a", "b"), ("b", "a")])
def test_reply_counts_no_more_if_its_member_may_have_decided_since(
    site: Site, searching: str, visited: str
) -> None:
    site.come(searching, 0.1)
    site.cut(searching, visited, notice=60)
    site.patience = 0.0
    site.come(visited, 1.2)
    assert site.client.accepted, f"{visited} has decided alone"
    site.client.publish()
    site.run(0.2)
    site.patience = START_S
    site.come(searching, 4.0)
    assert site.client.accepted
    assert site.place_at(searching).older >= {visited}
    site.client.publish()
    site.run(0.2)
    site.start("c")
    site.hear()
    site.come(searching)  # world.py judges the identifiers
    site.client.publish()
    site.settle()
    assert site.place()[0] == searching


def test_reply_to_a_question_before_the_connect_counts_no_more(site: Site) -> None:
    """Before b's reply reaches a, the client connects to b and comes back to a. So a must query b
    again.
    """
    site.line_s = 0.6
    site.come("a", 0.3)
    site.come("b", 0.4)
    site.said.clear()
    site.come("a", 0.1)
    assert questions(site, "b") == 1
    site.run(0.6)
    member = site.gateways["a"].member
    assert member is not None
    assert "b" not in member._lookup._searches[site.client.name].answered


def test_fresh_replies_count_for_newer_connects(site: Site) -> None:
    """A client that connects many times a second causes only a few queries."""
    site.come("a", 0.2)
    for _ in range(40):
        site.come("a", 0.05)
    assert not site.client.accepted, "c is waited for"
    assert questions(site, "b") <= 2 + 2 / FRESH_S


def test_member_that_has_given_way_decides_alone_only_after_its_reply_is_outdated(
    site: Site,
) -> None:
    site.come("b", START_S - 0.2)
    site.client.leave(notice=False)  # b believes that the client still waits
    site.come("a", 0.1)
    assert questions(site, "b") == 1
    site.cut("a", "b", notice=60)
    site.run(FRESH_S)
    assert not site.gateways["b"].holder.records
    site.run(0.3)
    assert site.place_at("b").older == {"a", "c"}
