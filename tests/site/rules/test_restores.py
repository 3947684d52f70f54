"""Restored stores and copies of stores (rule 8), on virtual time."""

import pytest

from gateway.site.rules.messages import (
    End,
    Endings,
    State,
    decode,
    encode,
)
from tests.site.rules.three import (
    Site,
    assert_nothing_is_swallowed,
    begin_with,
    forget,
    move_slowly,
)
from tests.site.sim_holder import Record, Session


def test_a_restored_store_holds_nothing_that_others_hold_newer(site: Site) -> None:
    site.move_and_restore()
    site.run(6.0)
    assert site.place()[0] == "b"


@pytest.mark.parametrize("gateway", ["a", "b", "c"])
def test_a_restored_store_holds_nothing_newer_even_with_a_higher_epoch(
    site: Site, gateway: str
) -> None:
    """The session in the backup has a higher epoch than the client's present session: the old
    session ended after the backup, and the epochs of a new one begin at 0.
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


def gone_behind_the_back_of(site: Site, member: str, to: str) -> None:
    """Let the client begin a session at `member` and publish a message, so that the session has a
    packet identifier. Then cut `member` off, and begin another session at `to`. Only `to` knows
    that the first session is over.
    """
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
    """gateway: the gateway to which the client connects. Gateway a has the stale session, b was
    restored, and c is the third member.
    """
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
    """The restored gateway b sends its query as soon as the link is up, before its report about the
    restore.
    """
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


def test_stays_reply_to_a_restore_report_does_not_end_it(site: Site) -> None:
    """a is faulty: it answers b's report of a restore with STAYS. b must keep the report, because c
    has not received it.
    """
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


def test_decision_by_forgotten_state_is_suspect(site: Site) -> None:
    """While the session moves slowly from c to b, the client gets a second session at a, which had
    replied that it has none. After a restore, a no longer knows the second session.
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
