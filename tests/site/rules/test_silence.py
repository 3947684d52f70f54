"""Members that are silent, mute, or have no link, on virtual time."""

from typing import Any

import pytest

from gateway.site.rules.holder import Outcome
from gateway.site.rules.messages import (
    Ask,
)
from tests.site.rules.three import Site
from tests.site.sim_holder import Record, Session


def test_a_silent_member_is_waited_for_at_most_a_second_and_the_answer_is_marked(
    site: Site,
) -> None:
    site.cut("a", "b", notice=60)
    site.come("a", 0.9)
    assert not site.client.accepted
    site.run(0.25)
    assert site.client.accepted
    assert site.client.marked
    assert site.place()[1].older == {"b"}


def make_mute(site: Site, member: str) -> Any:
    """Let a member send beats and queries, but answer no query. Return a function that lets it
    answer again.
    """
    handlers: Any = site.gateways[member].member._handlers  # type: ignore[union-attr]
    answers, handlers[Ask] = handlers[Ask], lambda *_: None
    return lambda: handlers.update({Ask: answers})


def waits(site: Site, count: int, clean: bool = False) -> list[tuple[float, tuple[str, ...]]]:
    """Look up `count` clients at a, one after another. Return the seconds and the silent members of
    each lookup.
    """
    found: list[tuple[float, tuple[str, ...]]] = []
    gateway = site.gateways["a"]
    site.mark = lambda client: None  # type: ignore[method-assign]
    for number in range(count):
        begin = gateway.now

        def done(outcome: Outcome, begin: float = begin) -> None:
            found.append((gateway.now - begin, outcome.silent))

        assert gateway.member is not None
        gateway.member.want_session(f"other-{len(site.said)}-{number}", begin, done, clean)
        while len(found) == number:
            site.run(0.01)
    return found


@pytest.mark.parametrize("clean", [False, True])
def test_mute_member_is_waited_for_once(site: Site, clean: bool) -> None:
    make_mute(site, "b")
    site.run(5.0)
    asker = site.gateways["b"].member
    assert asker is not None
    first, *others = waits(site, 20, clean)
    assert 0.9 < first[0] < 1.2
    assert sum(time > 0.5 for time, _ in others) <= 1, "its lease has to end"
    assert [silent for _, silent in others] == [("b",)] * 19
    assert site.gateways["a"].member.contacts["b"].mute  # type: ignore[union-attr]
    site.run(2.0)
    for number in range(10):  # queries of the mute member change nothing
        asker.want_session(f"asked-{number}", site.gateways["b"].now, lambda outcome: None)
        assert max(time for time, _ in waits(site, 1, clean)) < 0.5
    assert asker.contacts["a"].lease < site.gateways["b"].now, "it gets no lease meanwhile"


def test_mute_member_that_answers_again_counts_at_once(site: Site) -> None:
    speak = make_mute(site, "b")
    waits(site, 3)
    speak()
    site.run(1.0)
    assert waits(site, 1)[0][0] < 0.5
    assert [silent for _, silent in waits(site, 3)] == [()] * 3
    asker = site.gateways["b"].member
    assert asker is not None
    site.run(1.0)
    assert asker.contacts["a"].lease > site.gateways["b"].now


def test_mute_member_with_a_new_link_is_waited_for_again(site: Site) -> None:
    make_mute(site, "b")
    waits(site, 3)
    site.cut("a", "b", notice=0.1)
    site.run(1.0)
    site.heal("a", "b")
    site.run(1.0)
    assert 0.9 < waits(site, 1)[0][0] < 1.2


def test_a_member_without_a_link_is_silent_at_once(site: Site) -> None:
    site.silence("b")
    site.come("a", 0.2)
    assert site.client.accepted
    assert site.client.marked


def test_silent_member_ends_its_older_session_after_its_return(site: Site) -> None:
    site.come("b")
    site.client.publish()
    site.silence("b")
    site.come("a", 0.3)
    assert site.client.accepted
    assert len(site.places(site.client.name)) == 2
    site.hear()
    name, record = site.place()
    assert (name, record.older) == ("a", frozenset())


def test_a_stale_session_does_not_win_by_its_epoch(site: Site) -> None:
    for gateway in ("a", "b", "a", "b"):
        site.come(gateway)
    assert site.place()[1].epoch == 3
    site.crash("a")  # a forgets its confirmation
    site.start("a")
    site.run(1.0)
    site.silence("b")
    site.come("a", 0.3)
    site.client.publish()
    session = site.client.session
    site.cut("a", "b")
    site.heal("b", "c")
    site.run(1.0)
    site.come("a", 0.3)
    site.come("c", 0.3)
    site.heal("a", "b")
    site.run(3.0)
    assert (site.place()[0], site.client.session) == ("c", session)


def test_member_after_a_partition_asks_before_it_continues_a_session(site: Site) -> None:
    """The client was at another gateway during the partition. Afterwards it gets a new session, so
    its next publication is new to all members.
    """
    site.eager = 0.0
    site.come("b")
    site.client.publish()
    site.run(0.2)
    site.silence("b")
    site.come("a", 0.3)
    site.client.publish()
    site.run(0.2)
    assert site.client.accepted
    session = site.client.session
    site.come("b", 0.3)
    assert site.client.accepted
    assert site.client.flight == {}, "Session Present 0"
    assert (site.client.session or 0) > (session or 0), "a new one"
    site.client.publish()
    site.run(0.3)
    assert site.client.flight[1][1] == "PUBREL"


def test_client_hears_of_an_end_that_was_decided_without_it(site: Site) -> None:
    """c decides without b that the session at b is over, and crashes before it sends CONNACK to its
    client.
    """
    site.come("b")
    site.client.publish()
    site.run(1.0)
    message, _ = site.client.flight[1]
    site.client.leave()
    site.client.flight[1] = message, "PUBLISH"  # as if the client had not received PUBREC
    site.silence("c")
    disk = site.gateways["c"].disk
    site.client.connect("c")
    while not disk:
        site.run(0.001)
    assert [record.session for record in disk.values()] == [None]
    site.crash("c")
    site.start("c")
    site.client.leave()
    site.hear()
    assert site.place()[0] == "c", "the one at b is over"
    for name in ("b", "a", "c"):
        site.client.connect(name)
        while not any(place.session for _, place in site.places(site.client.name)):
            site.run(0.001)
        site.client.leave()
        site.run(1.0)
    site.come("a")
    assert site.client.accepted
    assert not site.client.flight, "it was told Session Present 0"


def test_session_without_identifiers_continues_while_a_member_is_silent(site: Site) -> None:
    site.come("b")
    session = site.client.session
    site.silence("c")
    site.come("b", 0.3)
    assert site.client.session == session
    site.come("a", 0.5)
    assert site.client.session == session


def test_lease_begins_only_after_the_list_of_ended_sessions(site: Site) -> None:
    """b's session is newer than those of a and c. b is still writing the end of these sessions when
    a reaches b again. a must not trust its own session because of a lease from before b's list.
    """
    name, b = site.client.name, site.gateways["b"]
    site.silence("a", "b", "c")
    disks = {
        "a": Record(2, Session(1), older=frozenset("c")),
        "b": Record(1, Session(2), older=frozenset("ac")),
        "c": Record(1, Session(1), given_to="a"),
    }
    for gateway, record in disks.items():
        site.crash(gateway)
        site.gateways[gateway].disk[name] = record
        site.start(gateway)
    stand = b.holder.stand

    def slow_stand(*arguments: Any) -> None:
        site.commit_s = lambda: 2.5  # type: ignore[method-assign]
        stand(*arguments)
        site.commit_s = lambda: 0.0  # type: ignore[method-assign]
        for link in site.links.values():
            site.heal(*link.ends)

    b.holder.stand = slow_stand  # type: ignore[method-assign]
    site.heal("b", "c")
    site.run(2.0)
    assert b.holder.records[name].epoch == 2
    assert b.disk[name].epoch == 1
    assert not site.gateways["a"].is_newest(name)
    site.settle()
    assert site.place()[0] == "b"
