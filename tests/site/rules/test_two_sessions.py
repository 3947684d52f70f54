"""Two sessions of one client that began without knowledge of each other (rule 5), on virtual
time.
"""

import pytest

from gateway.site.rules.messages import (
    End,
    Endings,
    Give,
    State,
    decode,
)
from tests.site.rules.three import Site, assert_nothing_is_swallowed, begin_with, slow_commit
from tests.site.sim_holder import Record, Session


def there_and_back_in_silence(site: Site) -> None:
    """Create a session at a and another one at b. The record of each names the other as older."""
    site.eager = 0.0
    site.silence("a", "b", "c")
    for gateway in ("a", "b", "a"):
        site.come(gateway)
        site.client.publish()
        site.run(0.1)
    site.client.leave(notice=False)
    places = dict(site.places(site.client.name))
    assert {name: record.older for name, record in places.items()} == {
        "a": frozenset("bc"),
        "b": frozenset("ac"),
    }
    assert all(record.session and record.session.received for record in places.values())


def break_at(site: Site, word: int) -> None:
    """Count from 0 the messages between a and b that end sessions, or that answer such messages.
    Break the link at number `word`.
    """
    words = iter(range(100))

    def spy(sender: str, receiver: str, frame: bytes) -> None:
        over = isinstance(decode(frame), End | Endings)
        if over and {sender, receiver} == {"a", "b"} and next(words) == word:
            site.break_link(site.link("a", "b"))

    site.spy = spy


@pytest.mark.parametrize("word", range(8))
@pytest.mark.parametrize("gateway", ["a", "b", "c"])
def test_remaining_one_of_two_sessions_that_name_each_other_is_suspect(
    site: Site, gateway: str, word: int
) -> None:
    there_and_back_in_silence(site)
    break_at(site, word)
    site.hear()
    site.run(3.0)
    _, record = site.place()
    assert record.suspect
    site.come(gateway)
    assert site.reached["doubt"] > 0
    site.client.publish()
    site.run(0.1)
    assert site.client.flight[1][1] == "PUBREL", "world.py has looked whether it was swallowed"
    assert site.place()[0] == gateway
    assert not site.place()[1].older


def test_remaining_session_takes_over_the_older_members_of_the_other(site: Site) -> None:
    """The client was at b, then at a, then at c, and has a session at each. Only c knows that the
    session at a is older than its own. c's session ends in favour of b's, and b must then have the
    knowledge about a.
    """
    begin_with(
        site,
        b=Record(2, Session(1, ((1, 91),)), older=frozenset("c")),
        a=Record(1, Session(2, ((1, 92),)), older=frozenset("b")),
        c=Record(1, Session(3, ((1, 93),)), older=frozenset("ab")),
    )
    site.heal("b", "c")
    site.run(3.0)
    record = dict(site.places(site.client.name))["b"]
    assert (record.epoch, record.older) == (3, frozenset("a")), "another record than before"
    site.hear()
    assert site.place()[1].suspect
    assert_nothing_is_swallowed(site)


def test_a_session_that_was_given_to_an_older_one_does_not_make_that_one_newer(site: Site) -> None:
    """Gateway b gives its session to a, but the link breaks before the parts arrive. Gateway a has
    an older record that looks the same.
    """
    begin_with(
        site,
        a=Record(1, Session(1, ((1, 91),)), older=frozenset("b")),
        b=Record(1, Session(2, ((1, 92),)), older=frozenset("a")),
    )
    site.client.connect("a")

    def spy(sender: str, receiver: str, frame: bytes) -> None:
        if isinstance(decode(frame), Give):
            site.break_link(site.link("a", "b"))

    site.spy = spy
    site.hear()
    assert site.client.accepted
    assert_nothing_is_swallowed(site)


def test_an_older_record_takes_over_what_the_given_one_knew(site: Site) -> None:
    """The client was at a, c, and b, while these had no links. b gives its session to a, where it
    never arrives. Only b knew that c is older than b, so a must learn this.
    """
    begin_with(
        site,
        a=Record(1, Session(1, ((1, 91),)), older=frozenset("b")),
        c=Record(1, Session(2, ((1, 92),)), older=frozenset("a")),
        b=Record(1, Session(3, ((1, 93),)), older=frozenset("ac")),
    )
    site.client.connect("a")
    site.said.clear()
    site.heal("a", "b")
    while "Give" not in site.kinds("b"):
        site.run(0.001)
    site.crash("a")
    site.start("a")
    site.client.leave()
    site.run(3.0)
    assert dict(site.places(site.client.name))["a"].older == frozenset("c")
    site.hear()
    assert_nothing_is_swallowed(site)


def test_suspicion_stays_if_the_client_leaves_before_the_message(site: Site) -> None:
    site.eager = 0.0
    site.come("b")
    site.client.publish()
    site.run(0.1)
    site.silence("a")
    site.commit_s = lambda: 0.2  # type: ignore[method-assign]
    site.client.connect("b")
    while site.gateways["b"].holder.records[site.client.name].epoch == 0:
        site.run(0.001)
    site.client.leave()
    site.run(1.0)
    assert site.place()[1].suspect


def test_an_answer_about_the_record_of_before_does_not_end_the_one_of_now(site: Site) -> None:
    """a writes to its record that it is suspect, and its disk is slow. Meanwhile, b decides without
    a.
    """
    there_and_back_in_silence(site)
    slow_commit(site, "a", 3.0)
    site.said.clear()
    site.spy = site._note
    site.heal("a", "b")
    while "End" not in site.kinds("b"):
        site.run(0.01)
    site.run(0.1)
    site.come("b", 1.5)
    assert site.client.accepted
    assert "Endings" not in site.kinds("a")
    site.client.publish()
    site.run(0.1)
    assert site.client.flight[1][1] == "PUBREL"
    site.run(3.0)
    assert State.STAYS in {
        item.state
        for sender, _, said in site.said
        if sender == "a" and isinstance(said, Endings)
        for item in said.ended
    }
    assert site.place()[1].session == Session(site.client.session or 0, ((1, site.numbers),))
