"""Sessions that move, and the queries before a move (rules 1 to 4), on virtual time."""

import pytest

from gateway.site.errors import SiteError
from gateway.site.rules.messages import (
    Answer,
    Beat,
    Names,
    encode,
)
from tests.site.rules.three import Site, begin_with, move_slowly, slow_commit
from tests.site.sim_holder import Record, Session


def test_staying_client_causes_no_messages(site: Site) -> None:
    site.come("a")
    site.said.clear()
    for _ in range(5):
        site.client.publish()
        site.run(0.2)
        site.come("a", 0.5)
    assert site.client.accepted
    assert site.said == []


def test_refusal_by_all_members_means_a_new_session_without_doubt(site: Site) -> None:
    site.come("a", 0.2)
    assert site.client.accepted
    assert not site.client.marked
    assert site.place() == ("a", Record(0, Session(site.client.session or 0)))


def test_a_session_moves_with_its_identifiers_and_is_in_one_place(site: Site) -> None:
    site.eager = 0.0
    site.come("a")
    site.client.publish()
    site.run(0.2)
    assert site.client.flight == {1: (site.numbers, "PUBREL")}
    session = site.client.session
    site.come("b", 0.3)
    assert site.client.accepted
    site.run(1.0)
    assert site.place() == ("b", Record(1, Session(session or 0)))
    assert (site.reached["PUBCOMP"], site.reached["0x92"]) == (1, 0)
    assert not any("Query" in str(said) and "identifier=1" in str(said) for said in site.said)
    assert not site.client.marked


def test_the_session_goes_whole_when_its_parts_go_one_by_one(site: Site) -> None:
    site.eager = 1.0
    for gateway in site.gateways.values():
        gateway.holder.part_bytes = 3
    site.come("a")
    site.client.publish()
    site.run(0.5)
    site.come("c")
    assert site.place()[0] == "c"
    assert site.kinds("c").count("Take") == 3


def test_questions_of_one_window_go_in_one_call(site: Site) -> None:
    member = site.gateways["a"].member
    assert member is not None
    for number in range(500):
        member.want_session(f"other-{number}", site.gateways["a"].now, lambda outcome: None)
    site.run(0.5)
    assert site.kinds("a").count("Ask") == 2


def test_clean_start_ends_the_session_elsewhere(site: Site) -> None:
    site.come("a")
    session = site.client.session
    site.come("b", clean=True)
    assert site.client.session != session
    assert site.place()[0] == "b"


def test_negative_reply_waits_for_the_disk(site: Site) -> None:
    site.come("a")
    site.client.leave()
    site.client.session = None
    site.run(0.1)
    site.commit_s = lambda: 0.5  # type: ignore[method-assign]
    site.gateways["a"].expire(site.client.name)
    site.come("b", 0.4)
    assert "Answer" not in site.kinds("a")
    site.run(0.2)
    assert "Answer" in site.kinds("a")


def test_reply_to_an_earlier_run_answers_no_new_query(site: Site) -> None:
    """b sends a query to a, and restarts before a replies. The new queries of b have the same
    numbers. Meanwhile, the client begins its session at a. If b took a's first `no` for the reply
    to a new query, b would create a second session.
    """
    slow_commit(site, "a", 2.0)
    site.come("b", 0.1)
    site.crash("b")
    site.start("b")
    site.run(1.2)
    site.come("a", 0.1)
    site.client.connect("b")
    site.run(0.9)
    assert site.client.accepted
    assert not site.client.marked
    site.run(2.0)
    name, record = site.place()
    assert (name, record.epoch) == ("b", 1), "it has moved"


def test_no_from_a_link_that_is_gone_does_not_count(site: Site) -> None:
    """a asks b and c about the client. b replies `no`, then its link to a ends. While a still waits
    for c, the client begins a session at b, and then comes back to a.
    """
    site.eager = 0.0
    site.cut("a", "c", notice=60)
    member = site.gateways["a"].member
    assert member is not None
    assert member._beat_at is not None
    while not 0 < member._beat_at - site.gateways["a"].now < 0.01:
        site.run(0.001)  # so that b has an old lease of a, and soon decides without a
    site.come("a", 0.075)
    assert [type(said) for one, _, said in site.said if one == "b"] == [Answer]
    site.cut("a", "b", notice=0.001)
    site.run(0.01)
    site.client.leave()
    site.run(0.01)
    site.client.connect("b")
    while not site.client.accepted:
        site.run(0.005)
    site.client.publish()
    site.run(0.03)
    assert site.client.flight
    site.come("a", 1.5)
    assert site.client.accepted
    site.hear()
    site.run(3.0)
    site.come("a")
    assert site.client.accepted, "world.py has looked at what it goes on with"


def test_replies_before_a_slow_commit_are_requested_again(site: Site) -> None:
    """The client connects to b while a commits the end of its own record."""
    begin_with(
        site,
        a=Record(1, Session(1)),
        c=Record(2, None, older=frozenset("a")),
    )
    slow_commit(site, "a", 6.0)
    for link in site.links.values():
        site.heal(*link.ends)
    site.run(0.6)
    site.come("a", 0.3)
    site.client.leave()
    site.run(0.02)
    site.come("b", 3.5)  # members that have just joined are busy for a while
    site.client.publish()
    site.run(0.1)
    assert site.client.flight
    site.come("a", 8.0)
    assert site.client.accepted, "world.py has looked at what it goes on with"


def test_client_during_a_session_move_starts_its_own_search(site: Site) -> None:
    """While c slowly gives the session to a, the client connects to b, to which a has no link any
    more. Then the client comes back to a.
    """
    move_slowly(site, "c", to="a")
    site.cut("a", "b", notice=0.1)
    site.client.leave()
    site.run(0.02)
    site.come("b", 2.0)
    site.client.publish()
    site.run(0.1)
    assert site.client.flight
    site.come("a", 6.0)
    assert site.client.accepted, "world.py has looked at what it goes on with"
    site.hear()
    site.come("a")
    assert site.client.accepted


def test_messages_of_a_member_are_checked(site: Site) -> None:
    member = site.gateways["a"].member
    now = site.gateways["a"].now
    assert member is not None
    with pytest.raises(SiteError, match="cannot read a frame"):
        member.received("b", b"\x02", now)
    with pytest.raises(SiteError, match="and no other, must name the members"):
        member.received("b", encode(Names(("a", "b"))), now)
    member.joined("b", now)
    with pytest.raises(SiteError, match="must name the members"):
        member.received("b", encode(Beat(1, 1)), now)
