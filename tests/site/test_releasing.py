"""PUBRELs whose identifier is unknown at the client's member, on virtual time: no question about
one outlasts its session there.
"""

import pytest

from gateway.site.rules.contact import START_S
from gateway.site.rules.messages import Ask, Query
from tests.site.test_rules import Site, slow_commit


@pytest.fixture
def site() -> Site:
    """A client whose session is at b."""
    site = Site()
    site.eager = 0.0
    site.run(START_S)
    site.come("b")
    return site


def want_release(site: Site) -> list[bool]:
    """Look up an identifier from b, as for a PUBREL. Return the list of the coming answer."""
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
    """The session may move there, and its identifier stands for another message by then."""
    site.crash("c", stopped=True)
    site.run(0.1)
    answers = want_release(site)
    site.patience = 0.0
    site.come("a", 1.4)
    site.client.publish()
    while not site.place_at("a").session.received:  # type: ignore[union-attr]
        site.run(0.0001)
    site.client.leave()  # it will publish this message again
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
