"""The rules of gateway/site/docs/session-moves.md, one by one, with three members on
virtual time.
"""

from random import Random
from typing import Any

import pytest

from gateway.site.errors import SiteError
from gateway.site.rules.holder import Outcome
from gateway.site.rules.messages import (
    Answer,
    Ask,
    Beat,
    End,
    Endings,
    Give,
    Message,
    Names,
    Query,
    State,
    decode,
    encode,
)
from tests.site.world import Client, Record, Session, World


class Site(World):
    """Three members with a link to each other, and one client."""

    def __init__(self) -> None:
        super().__init__(Random(0), members=3, clients=1)
        self.said: list[tuple[str, str, Message]] = []
        self.spy = self._note
        self.run(1.0)
        self.said.clear()

    def _note(self, sender: str, receiver: str, frame: bytes) -> None:
        message = decode(frame)
        if not isinstance(message, Beat):
            self.said.append((sender, receiver, message))

    @property
    def client(self) -> Client:
        return self.clients[0]

    def kinds(self, sender: str) -> list[str]:
        return [type(message).__name__ for one, _, message in self.said if one == sender]

    def come(self, gateway: str, seconds: float = 2.0, clean: bool = False) -> None:
        self.client.connect(gateway, clean)
        self.run(seconds)

    def silence(self, *members: str) -> None:
        """Cut these members off in both directions, and let all members notice."""
        for member in members:
            for name in set(self.names) - {member}:
                self.cut(member, name, notice=0.1)
        self.run(2.0)

    def hear(self) -> None:
        for link in self.links.values():
            self.heal(*link.ends)
        self.run(3.0)

    def place_at(self, name: str) -> Record:
        return self.gateways[name].holder.records[self.client.name]

    def place(self) -> tuple[str, Record]:
        places = self.places(self.client.name)
        assert len(places) == 1, places
        return places[0]


@pytest.fixture
def site() -> Site:
    return Site()


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
    """Let a member beat and ask on, and answer no query. Return a function that ends that."""
    handlers: Any = site.gateways[member].member._handlers  # type: ignore[union-attr]
    answers, handlers[Ask] = handlers[Ask], lambda *_: None
    return lambda: handlers.update({Ask: answers})


def waits(site: Site, count: int, clean: bool = False) -> list[tuple[float, tuple[str, ...]]]:
    """Look up clients at a, one after another. Return how long each took, and who was silent."""
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
    for number in range(10):  # it asks as much as it likes
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
    site.crash("a")  # it forgets what it has confirmed
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
    """The client was elsewhere meanwhile, and its publications are new to all members."""
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
    """c decides that the session at b is over, and crashes before it can tell its client."""
    site.come("b")
    site.client.publish()
    site.run(1.0)
    message, _ = site.client.flight[1]
    site.client.leave()
    site.client.flight[1] = message, "PUBLISH"  # as if it has not heard PUBREC
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


def test_clean_start_ends_the_session_elsewhere(site: Site) -> None:
    site.come("a")
    session = site.client.session
    site.come("b", clean=True)
    assert site.client.session != session
    assert site.place()[0] == "b"


def test_release_is_answered_by_the_holder_only(site: Site) -> None:
    site.eager = 0.0
    site.come("a")
    site.client.publish()
    site.run(0.2)
    told: list[tuple[bool, tuple[str, ...]]] = []
    member = site.gateways["b"].member
    assert member is not None
    for identifier in (2, 1, 1):
        member.want_release(
            site.client.name,
            identifier,
            site.gateways["b"].now,
            lambda known, silent: told.append((known, silent)),
        )
        site.run(0.5)
    site.silence("a")
    member.want_release(
        site.client.name,
        1,
        site.gateways["b"].now,
        lambda known, silent: told.append((known, silent)),
    )
    site.run(0.5)
    assert told == [(False, ()), (True, ()), (False, ()), (False, ("a",))]


def test_undelivered_export_is_recalled(site: Site) -> None:
    site.come("a")
    session = site.client.session
    site.client.connect("b")
    while "Give" not in site.kinds("a"):
        site.run(0.001)
    site.commit_s = lambda: 0.2  # type: ignore[method-assign]
    site.run(0.1)
    assert site.gateways["b"].holder._coming, "on its way to the disk"
    site.crash("b")
    site.start("b")
    site.run(8.0)
    name, record = site.place()
    assert (name, record.given_to) == ("a", None)
    assert record.session is not None
    assert record.session.number == session


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


def slow_commit(site: Site, gateway: str, seconds: float) -> None:
    """Let one commit take this long; later changes go with the next commit."""
    site.commit_s = lambda: seconds  # type: ignore[method-assign]
    site.gateways[gateway].holder.commit(lambda: None, lambda: None)
    site.commit_s = lambda: 0.0  # type: ignore[method-assign]


def test_reply_to_an_earlier_run_answers_no_new_query(site: Site) -> None:
    """b asks a and restarts, and its new queries have the same numbers. Meanwhile, a gets the
    session. If b accepted a's first `no` now, b would make a second session.
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


def test_an_identifier_that_is_being_released_is_unknown_when_that_is_on_disk(site: Site) -> None:
    site.eager = 0.0
    site.come("a")
    site.client.publish()
    site.run(0.2)
    site.commit_s = lambda: 0.5  # type: ignore[method-assign]
    for _ in range(2):
        site.client._say(1)
    site.run(0.4)
    assert site.reached["0x92"] == 0
    site.run(0.3)
    assert site.reached["PUBCOMP"] == 1


def test_a_late_query_of_the_old_place_releases_no_identifier_of_the_new_one(site: Site) -> None:
    """The identifier stands for another message by then, which would be taken twice."""
    site.eager = 0.0
    site.come("b")
    site.client.publish()
    site.run(0.2)
    site.client.connect("a")
    new = site.gateways["a"]
    while "b" not in new.holder.records.get(site.client.name, Record()).older:
        site.run(0.001)
    site.client.leave()
    assert new.member is not None
    new.member.received("b", encode(Ask(99, (Query(site.client.name, 1),))), new.now)
    site.run(2.0)
    session = new.holder.records[site.client.name].session
    assert session is not None
    assert [identifier for identifier, _ in session.received] == [1]


def test_a_restored_store_holds_nothing_that_others_hold_newer(site: Site) -> None:
    site.come("a")
    copy = dict(site.gateways["a"].disk)
    site.come("b")
    site.crash("a")
    site.gateways["a"].restore(copy, set())
    site.start("a")
    site.run(6.0)
    assert site.place()[0] == "b"


@pytest.mark.parametrize("gateway", ["a", "b", "c"])
def test_a_restored_store_holds_nothing_newer_even_with_a_higher_epoch(
    site: Site, gateway: str
) -> None:
    """The member's session has ended since the backup, and the epochs of the next session begin at
    0.
    """
    for name in ("b", "a", "b", "a"):
        site.come(name)
    copy = dict(site.gateways["a"].disk)
    site.come("a", clean=True)
    site.client.leave()
    site.run(0.1)
    site.gateways["a"].expire(site.client.name)
    site.run(1.0)
    site.client.session = None
    site.come("b")
    session = site.client.session
    assert copy[site.client.name].epoch > site.place()[1].epoch
    site.crash("a")
    site.gateways["a"].restore(copy, set())
    site.start("a")
    site.come(gateway)
    assert site.client.session == session
    site.run(8.0)
    assert site.place()[0] == gateway


def test_a_confirmation_that_never_came_to_the_disk_ends_no_newer_session(site: Site) -> None:
    site.come("a")
    site.come("b")
    site.crash("b")
    disk = site.gateways["b"].disk
    disk[site.client.name] = disk[site.client.name]._replace(older=frozenset("a"))
    site.client.session = None
    site.come("a")
    newer = site.client.session
    assert newer is not None
    site.start("b")
    site.run(3.0)
    name, record = site.place()
    assert record.session is not None
    assert (name, record.session.number) == ("a", newer)


def forget(site: Site, gateway: str) -> None:
    """Restore the first state of the gateway's disk."""
    site.crash(gateway)
    site.gateways[gateway].restore({}, set())
    site.client.marked = True
    site.start(gateway)
    site.run(2.0)


def gone_behind_the_back_of(site: Site, member: str, to: str) -> None:
    """The client has a session at `member` with an identifier, and now one at `to`, which alone
    knows that the other one is over."""
    site.eager = 0.0
    site.come(member)
    site.client.publish()
    site.run(0.1)
    site.silence(member)
    site.client.session = None
    site.come(to)
    site.client.leave()
    site.run(0.1)


@pytest.mark.parametrize("gateway", ["a", "b", "c"])
def test_state_forgotten_by_a_restore_swallows_no_publish(site: Site, gateway: str) -> None:
    """The client comes to the member with the stale session, the restored one, or the third."""
    gone_behind_the_back_of(site, "a", to="b")
    forget(site, "b")
    site.hear()
    site.come(gateway)
    assert site.reached["doubt"] == 1
    site.client.publish()
    site.run(0.1)
    assert site.client.flight[1][1] == "PUBREL", "world.py has looked whether it was swallowed"
    assert site.places("") == [], "all have heard of it"


def test_until_a_member_has_heard_of_a_restore_its_session_is_in_doubt(site: Site) -> None:
    gone_behind_the_back_of(site, "a", to="b")
    forget(site, "b")
    site.heal("a", "c")
    site.run(3.0)
    site.come("c")
    assert site.client.accepted
    assert site.reached["doubt"] == 1


def test_replies_before_a_restore_report_are_suspect(site: Site) -> None:
    """The query leaves as soon as the link is up, before the report of the restore."""
    gone_behind_the_back_of(site, "a", to="b")
    site.crash("b")
    site.hear()
    site.gateways["b"].restore({}, set())
    site.client.marked = True
    site.start("b")
    site.come("b")
    assert site.reached["doubt"] == 1
    assert site.client.accepted


def test_a_restored_store_is_reported_once_and_clients_that_stay_go_on(site: Site) -> None:
    site.come("a")
    forget(site, "b")
    assert site.client.accepted
    assert "End" in site.kinds("b")
    site.said.clear()
    site.crash("b")
    site.start("b")
    site.run(2.0)
    assert "End" not in site.kinds("b")


def test_a_doubtful_session_is_looked_for_until_all_have_answered(site: Site) -> None:
    site.come("a")
    copy = dict(site.gateways["a"].disk)
    site.come("b")
    site.crash("a")
    site.gateways["a"].restore(copy, set())
    site.start("a")
    site.run(3.0)
    site.gateways["b"].paused = True
    site.run(2.0)
    site.gateways["b"].resume()
    assert len(site.places(site.client.name)) == 2
    site.run(8.0)
    assert site.place()[0] == "b"


def test_a_doubtful_session_that_the_taker_never_got_is_called_back(site: Site) -> None:
    site.come("a")
    forget(site, "c")
    site.client.connect("b")
    while "Give" not in site.kinds("a"):
        site.run(0.001)
    site.crash("b")
    site.start("b")
    site.run(8.0)
    name, record = site.place()
    assert (name, record.given_to, record.suspect) == ("a", None, True)


def there_and_back_in_silence(site: Site) -> None:
    """Sessions at two members that name one another, each with an identifier of its own."""
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
    """Break the link of a and b at the Over message of this number, from 0."""
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


def begin_with(site: Site, **records: Record) -> None:
    """Give the members these records of the client, and cut all links."""
    site.eager = 0.0
    site.silence("a", "b", "c")
    for name, record in records.items():
        site.crash(name)
        site.gateways[name].disk[site.client.name] = record
        site.start(name)
    site.client.marked = True


def assert_nothing_is_swallowed(site: Site) -> None:
    """The client comes, begins again, and its publications are new."""
    for gateway in "abc":
        site.come(gateway)
    site.client.publish()
    site.run(0.1)
    assert site.reached["doubt"] > 0
    assert site.client.flight[1][1] == "PUBREL", "world.py has looked"


def test_remaining_session_takes_over_the_older_members_of_the_other(site: Site) -> None:
    """The client was at b, a, and c. Only c knows that a is older than c, and this knowledge must
    outlive c.
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
    """Parts from b never arrive at a, which has an earlier record that looks the same."""
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
    """The client was at a, c, and b, each without the others. b gives its session to a, and the
    session never arrives. The knowledge that c is older than b must outlive b.
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


def test_stays_reply_to_a_restore_report_does_not_end_it(site: Site) -> None:
    """The replying member is faulty: c has not received the report."""
    site.silence("b")
    forget(site, "b")
    send = site.send

    def wrong(sender: str, receiver: str, frame: bytes) -> None:
        message = decode(frame)
        if sender == "a" and isinstance(message, Endings):
            ended = tuple(item._replace(state=State.STAYS) for item in message.ended)
            frame = encode(Endings(ended))
        send(sender, receiver, frame)

    site.send = wrong  # type: ignore[method-assign]
    for gateway in site.gateways.values():
        site.crash(gateway.name)
        site.start(gateway.name)
    site.heal("a", "b")
    site.run(2.0)
    assert site.gateways["b"].holder.records[""].older >= frozenset("c")


def test_a_session_is_called_back_although_another_one_names_it(site: Site) -> None:
    begin_with(
        site,
        b=Record(1, Session(1, ((1, 91),)), older=frozenset("c")),
        c=Record(1, Session(2, ((1, 92),)), "a", frozenset("b")),
    )
    site.hear()
    while (record := dict(site.places(site.client.name))["c"]).given_to:
        site.run(0.001)
    assert record.suspect, "at once: a client may come"
    site.run(3.0)
    assert site.place()[0] == "c"
    assert_nothing_is_swallowed(site)


def test_concurrent_recalls_end(site: Site) -> None:
    """Two recalls begin together, as after a power failure. The member that is asked gives way."""
    begin_with(
        site,
        a=Record(0, Session(1), suspect=True, copied=True),
        c=Record(3, Session(2), suspect=True),
    )
    site.delay = lambda: 0.001  # type: ignore[method-assign]
    for gateway in site.gateways.values():
        gateway.crash()
    for gateway in site.gateways.values():
        gateway.start()
    site.hear()
    site.run(12.0)
    assert site.place()[0] == "c"


def test_departed_session_is_not_ended(site: Site) -> None:
    """a has the session from c, and was silent when b began, so doubt about the record at c would
    not reach a.
    """
    begin_with(
        site,
        a=Record(4, Session(1, ((1, 91),)), older=frozenset("c")),
        b=Record(1, Session(2), older=frozenset("ac")),
        c=Record(3, Session(1, ((1, 91),)), "a", frozenset("b")),
    )
    site.heal("b", "c")
    site.run(3.0)
    site.hear()
    name, record = site.place()
    assert (name, record.session) == ("b", Session(2))


@pytest.mark.parametrize(
    "record",
    [Record(0, Session(2)), Record(7, Session(2)), Record(1, Session(2), older=frozenset("c"))],
)
def test_a_record_from_a_copy_ends_for_one_that_may_be_newer(site: Site, record: Record) -> None:
    copy = Record(5, Session(1), older=frozenset("b"), suspect=True, copied=True)
    begin_with(site, b=record, c=copy)
    site.hear()
    assert site.place()[0] == "b"
    assert site.place()[1].session == Session(2)


def test_only_one_of_two_session_copies_stays(site: Site) -> None:
    begin_with(
        site,
        b=Record(5, Session(1), older=frozenset("c"), suspect=True, copied=True),
        c=Record(7, Session(2), older=frozenset("b"), suspect=True, copied=True),
    )
    site.hear()
    assert site.place()[1].session == Session(2)


def move_slowly(site: Site, giver: str, to: str) -> None:
    """The session is called for, with an identifier, and its commit takes 4.2 s at the giver."""
    site.eager = 0.0
    site.come(giver)
    site.client.publish()
    site.run(0.1)
    site.client.connect(to)
    while "Take" not in site.kinds(to):
        site.run(0.001)
    slow_commit(site, giver, 4.2)
    site.run(0.2)


def test_decision_by_forgotten_state_is_suspect(site: Site) -> None:
    """The session moves from c to b, so slowly that a, which had said no, gets a second session of
    the client and loses it meanwhile.
    """
    move_slowly(site, "c", to="b")
    for other in "bc":
        site.cut("a", other, notice=0.1)
    site.come("a", 1.6)
    assert site.client.flight == {}, "Session Present 0"
    site.client.leave()
    forget(site, "a")
    site.heal("a", "b")
    site.run(1.0)
    assert dict(site.places(site.client.name))["b"].session is not None
    site.hear()
    assert_nothing_is_swallowed(site)


def test_the_word_of_a_restore_comes_before_all_others(site: Site) -> None:
    begin_with(site, a=Record(1, Session(1), older=frozenset("b")))
    site.crash("a")
    site.gateways["a"].restore(dict(site.gateways["a"].disk), set())
    site.start("a")
    site.said.clear()
    site.hear()
    end = next(said for one, other, said in site.said if isinstance(said, End) and other == "b")
    assert [over.client for over in end.overs] == ["", site.client.name]


def test_an_answer_about_the_record_of_before_does_not_end_the_one_of_now(site: Site) -> None:
    """a doubts its own record, which takes so long that b decides without a meanwhile."""
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


def test_no_from_a_link_that_is_gone_does_not_count(site: Site) -> None:
    """b says no, and is cut off. The client goes to b and comes back while a still waits for c."""
    site.eager = 0.0
    site.cut("a", "c", notice=60)
    member = site.gateways["a"].member
    assert member is not None
    assert member._beat_at is not None
    while not 0 < member._beat_at - site.gateways["a"].now < 0.01:
        site.run(0.001)  # so that b has an old promise of a, and soon decides without it
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
    """The client was elsewhere while the commit that ends its record was in progress."""
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
    site.come("b", 3.5)  # members that have just met are busy for a while
    site.client.publish()
    site.run(0.1)
    assert site.client.flight
    site.come("a", 8.0)
    assert site.client.accepted, "world.py has looked at what it goes on with"


def test_client_during_a_session_move_starts_its_own_search(site: Site) -> None:
    """c gives the session slowly. The client goes to b, which has said no and is cut off, and comes
    back.
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
    with pytest.raises(SiteError, match="cannot be read"):
        member.received("b", b"\x02", now)
    with pytest.raises(SiteError, match="must name the members, and only the first"):
        member.received("b", encode(Names(("a", "b"))), now)
    member.joined("b", now)
    with pytest.raises(SiteError, match="must name the members"):
        member.received("b", encode(Beat(1, 1)), now)


def test_lease_begins_only_after_the_list_of_ended_sessions(site: Site) -> None:
    """b's session is newer than a's and c's, and b commits an end of sessions when a is reachable
    again. a must not trust its own session because of a lease that arrived before b's list.
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


def test_a_doubtful_session_is_looked_for_although_its_client_came_and_went(site: Site) -> None:
    site.come("a")
    copy = dict(site.gateways["a"].disk)
    site.come("b")
    site.client.leave()
    site.eager = 0.0
    site.crash("a")
    site.gateways["a"].restore(copy, set())
    site.start("a")
    site.run(3.0)
    site.said.clear()
    while "Ask" not in site.kinds("a"):
        site.run(0.001)
    a, outcomes = site.gateways["a"], list[Outcome]()
    assert a.member is not None
    a.member.want_session(site.client.name, a.now, outcomes.append, alive=lambda: False)
    site.run(8.0)
    assert [outcome.kind for outcome in outcomes] == ["failed"]
    assert site.place()[0] == "b"
