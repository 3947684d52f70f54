"""A member that is authenticated, but faulty, loses its link. The memory that it can use is
bounded.
"""

from collections.abc import Callable, Sequence

import pytest

from gateway.site.errors import SiteError
from gateway.site.rules import ending, lookup, trust
from gateway.site.rules import inbound_moves as arriving
from gateway.site.rules import outbound_moves as leaving
from gateway.site.rules import replies as answering
from gateway.site.rules.holder import ALL_CLIENTS, NOBODY, Done, Held, Outcome
from gateway.site.rules.member import Member
from gateway.site.rules.messages import (
    CREDIT,
    MAX_EPOCH,
    PART_BYTES,
    Answer,
    Ask,
    End,
    Ended,
    Endings,
    Give,
    Got,
    Kind,
    Message,
    Names,
    Over,
    Part,
    Query,
    Reply,
    State,
    Take,
    Wanted,
    decode,
    encode,
)

CLAIM = Reply(Kind.CLAIM, 1, session=True)


class Disk:
    """A `Holder` whose commits wait for `write`."""

    def __init__(self) -> None:
        self.records: dict[str, Held] = {}
        self.waiting: list[Done] = []
        self.taken: list[str] = []
        self.marked_suspect = 0

    def write(self) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done()

    def record(self, client: str) -> Held | None:
        return self.records.get(client)

    def on_disk(self, done: Done) -> None:
        self.waiting.append(done)

    def give(self, client: str, to: str, done: Callable[[Sequence[bytes] | None], None]) -> None:
        self.records[client] = self.records[client]._replace(given_to=to)
        self.waiting.append(lambda: done([b"part"]))

    def take(
        self,
        client: str,
        epoch: int,
        older: frozenset[str],
        suspect: bool,
        parts: Sequence[bytes],
        done: Callable[[str | None], None],
    ) -> None:
        self.records[client] = Held(epoch, True, None, older, suspect)
        self.taken.append(client)
        self.waiting.append(lambda: done(None))

    def stand(self, client: str, epoch: int, older: frozenset[str], done: Done) -> None:
        self.records[client] = Held(epoch, False, None, older)
        self.waiting.append(done)

    def end(self, client: str, below: int, done: Done) -> None:
        self.records.pop(client, None)
        self.waiting.append(done)

    def mark_suspect(self, client: str, done: Done) -> None:
        self.waiting.append(done)

    def mark_twofold(self, client: str) -> None: ...

    def mark_all_suspect(self, done: Done) -> None:
        self.marked_suspect += 1
        self.waiting.append(done)

    def confirmed(self, client: str, member: str) -> None:
        held = self.records[client]
        self.records[client] = held._replace(older=held.older - {member})

    def release(self, client: str, identifier: int, done: Callable[[bool], None]) -> None:
        self.waiting.append(lambda: done(False))

    def older_at(self, member: str) -> list[str]:
        return [client for client, held in self.records.items() if member in held.older]

    def unsettled(self) -> list[str]:
        return []


class Site:
    """A member whose only other member is `mad`, which the test plays."""

    def __init__(self, name: str = "good") -> None:
        self.name = name
        self.disk = Disk()
        self.said: list[Message] = []
        self.outcomes: dict[str, Outcome] = {}
        self.now = 100.0
        self.member = Member(name, ["mad"], self.disk, self._sent, lambda _: None, self.now)
        self.join()

    def _sent(self, member: str, frame: bytes) -> None:
        self.said.append(decode(frame))

    def join(self) -> None:
        self.member.joined("mad", self.now)
        self.hear(Names((self.name, "mad")))
        self.said.clear()

    def hear(self, message: Message) -> None:
        self.member.received("mad", encode(message), self.now)

    def flood(self, *messages: Message) -> None:
        for message in messages:
            self.hear(message)

    def wait(self, seconds: float = 0.05) -> None:
        self.now += seconds
        self.member.advance(self.now)

    def of(self, kind: type) -> list[Message]:
        return [message for message in self.said if isinstance(message, kind)]

    def claimed(self, *clients: str) -> None:
        """Let these clients connect at the gateway under test. `mad` replies that it has their
        sessions.
        """
        for client in clients:
            done = self._found(client)
            self.member.want_session(client, self.now, done)
        self.wait()
        (ask,) = self.of(Ask)
        assert isinstance(ask, Ask)
        self.said.clear()
        self.hear(Answer(ask.number, 0, (CLAIM,) * len(clients)))

    def _found(self, client: str) -> Callable[[Outcome], None]:
        return lambda outcome: self.outcomes.update({client: outcome})


@pytest.fixture
def site() -> Site:
    return Site()


def test_sessions_that_the_disk_does_not_take_are_bounded_together(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arriving, "MEMORY_BYTES", 3 * PART_BYTES)
    clients = [f"c{number}" for number in range(20)]
    site.claimed(*clients)
    gives = [Give((Part(client, 1, 0, 1, bytes(PART_BYTES)),)) for client in clients]
    with pytest.raises(SiteError, match="faster than allowed"):
        site.flood(*gives)
    assert len(site.disk.taken) <= 3 + CREDIT
    assert len(site.of(Got)) == 2, "the third one fills the memory"


def test_member_within_its_credit_continues_with_the_disk(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arriving, "MEMORY_BYTES", 3 * PART_BYTES)
    clients = [f"c{number}" for number in range(40)]
    site.claimed(*clients)
    credit, waiting = CREDIT, list(clients)
    while waiting or site.disk.waiting:
        while credit and waiting:
            site.hear(Give((Part(waiting.pop(0), 1, 0, 1, bytes(PART_BYTES)),)))
            credit -= 1
        site.wait(arriving.PROGRESS_S + 1)  # the own disk is slow; the giver is not at fault
        site.disk.write()
        credit += len(site.of(Got))
        site.said.clear()
    assert {outcome.kind for outcome in site.outcomes.values()} == {"here"}
    assert len(site.outcomes) == 40


def test_sessions_of_several_parts_arrive_within_the_room_and_all_at_last(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arriving, "MEMORY_BYTES", 3 * PART_BYTES)
    clients = [f"c{number}" for number in range(10)]
    site.claimed(*clients)
    most, waiting = 0, [Wanted(client, 1, 0) for client in clients]
    while waiting or site.disk.waiting:
        site.said.clear()
        for client, epoch, part in waiting:
            for _ in range(3):  # each part arrives several times
                site.hear(Give((Part(client, epoch, part, 3, bytes(PART_BYTES)),)))
            claims = site.member._inbound._claims.values()
            most = max(most, sum(len(claim.parts) for claim in claims))
        site.disk.write()
        site.wait()
        waiting = [one for take in site.of(Take) if isinstance(take, Take) for one in take.wanted]
    assert {outcome.kind for outcome in site.outcomes.values()} == {"here"}
    assert len(site.outcomes) == 10
    assert most <= 6


def test_a_session_that_says_it_is_huge_is_refused_at_its_first_part(site: Site) -> None:
    site.claimed("c")
    site.hear(Give((Part("c", 1, 0, 0xFFFF, b""),)))
    assert site.outcomes["c"].kind == "failed"
    assert "larger than" in site.outcomes["c"].reason


def test_repeated_restore_reports_make_work_once(site: Site) -> None:
    site.flood(*(End((Over(ALL_CLIENTS, 0),) * 10),) * 11)
    assert site.disk.marked_suspect == 1
    for _ in range(2):
        site.disk.write()
    ended = [item for endings in site.of(Endings) for item in endings.ended]  # type: ignore[attr-defined]
    assert ended == [Ended(ALL_CLIENTS, 0, State.DONE)] * 110
    site.member.link_ended("mad", site.now)
    site.join()
    site.hear(End((Over(ALL_CLIENTS, 0),)))
    assert site.disk.marked_suspect == 2, "it may have been restored once more"


def test_a_reply_counts_once(site: Site) -> None:
    site.member.want_session("c", site.now, lambda outcome: None)
    site.member.want_session("d", site.now, lambda outcome: None)
    site.wait()
    (ask,) = site.of(Ask)
    assert isinstance(ask, Ask)
    site.hear(Answer(ask.number, 0, (Reply(Kind.BUSY),)))
    with pytest.raises(SiteError, match="an answer without a query"):
        site.hear(Answer(ask.number, 0, (Reply(Kind.BUSY),)))
    with pytest.raises(SiteError, match="an answer without a query"):
        site.hear(Answer(ask.number, 1, (Reply(Kind.BUSY), Reply(Kind.BUSY))))
    site.hear(Answer(ask.number + 1, 0, (Reply(Kind.BUSY),)))  # perhaps from an earlier link


def test_confirmation_counts_once_and_only_for_sent_messages(site: Site) -> None:
    site.disk.records = {f"c{number}": Held(5, older=frozenset({"mad"})) for number in range(3)}
    site.member.link_ended("mad", site.now)
    site.join()
    busy = Endings(tuple(Ended(client, 5, State.BUSY) for client in site.disk.records))
    for _ in range(100):
        site.hear(busy)
    site.said.clear()
    site.wait(ending.AGAIN_S)
    site.wait()
    (again,) = site.of(End)
    assert isinstance(again, End)
    assert len(again.overs) == 3
    site.hear(Endings((Ended("c0", 4, State.DONE), Ended("never", 5, State.DONE))))
    assert site.disk.records["c0"].older == {"mad"}
    site.hear(Endings((Ended("c0", 5, State.DONE),)))
    assert site.disk.records["c0"].older == NOBODY


def test_questions_that_wait_for_the_disk_are_bounded_and_then_it_is_not_trusted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "MOST_PENDING", 100)
    site.disk.records["c"] = Held(1)
    for number in range(50):
        site.hear(Ask(number, tuple(Query("x") for _ in range(10))))
    assert len(site.disk.waiting) == 10
    assert not site.member._trust.has_asked("c", "mad")
    site.hear(Ask(99, (Query("c"),)))
    assert len(site.disk.waiting) == 10
    assert site.member._trust.has_asked("c", "mad"), "it decides without us"
    site.disk.write()
    site.hear(Ask(100, (Query("x"),)))
    assert len(site.of(Answer)) == 10
    assert len(site.disk.waiting) == 1


def test_over_messages_faster_than_the_disk_end_the_link(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "MOST_PENDING", 100)
    with pytest.raises(SiteError, match="than the disk accepts"):
        site.flood(*(End((Over("x", 5),) * 10),) * 11)
    assert len(site.disk.waiting) == 10


def test_calls_for_sessions_that_are_not_worked_off_end_the_link(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "WANTED_BYTES", 1_000_000)
    with pytest.raises(SiteError, match="requests sessions faster than"):
        site.flood(*(Take((Wanted("x", 1, 0),) * 1000),) * 100)
    assert len(site.of(Give)) == CREDIT


def test_a_session_that_ends_while_its_parts_wait_for_their_turn_is_gone(site: Site) -> None:
    class Gone(list[bytes]):
        """Stored parts of a session whose rows are gone."""

        def __getitem__(self, index: object) -> bytes:
            raise IndexError(index)

    site.disk.records["c"] = Held(1)
    site.hear(Ask(1, (Query("c"),)))
    site.hear(Take((Wanted("c", 1, 0),)))
    site.member._outbound._leavers["mad"].ready.append((Wanted("d", 1, 0), Gone([b"x"])))
    site.member._outbound.on_got("mad")
    site.wait()
    (give,) = site.of(Give)
    assert give == Give((Part("d", 1, 0, 0, b""),))


@pytest.mark.parametrize("epoch", [MAX_EPOCH - 1, MAX_EPOCH - 2])
def test_an_epoch_near_the_end_makes_no_record_that_others_must_refuse(
    site: Site, epoch: int
) -> None:
    site.member.want_session("c", site.now, site._found("c"), clean=True)
    for _ in range(2):
        site.wait()
        (ask,) = site.of(Ask)
        assert isinstance(ask, Ask)
        site.said.clear()
        site.hear(Answer(ask.number, 0, (CLAIM._replace(epoch=epoch),)))
        if not site.of(Take):
            break  # no decision is possible, or the session's move has failed
        site.hear(Give((Part("c", epoch, 0, 0, b""),)))
    for _ in range(5):
        site.disk.write()
        site.wait()
    for message in site.of(End):
        assert isinstance(message, End)
        for over in message.overs:
            site.hear(Endings((Ended("c", over.below, State.HELD, MAX_EPOCH - 1),)))
    site.disk.write()
    site.wait(1)
    assert (site.outcomes["c"].kind == "failed") == (epoch == MAX_EPOCH - 1)
    assert all(held.epoch < MAX_EPOCH for held in site.disk.records.values())


def test_queries_for_absent_clients_are_forgotten(site: Site) -> None:
    """The member keeps a query of `mad` for longer only if its client's session is here or about to
    arrive.
    """
    marks, contacts = site.member._trust._marks, site.member.contacts
    for number in range(5000):
        contacts.now += 1
        site.member._trust.asked(f"c{number}", ("mad",))
    assert len(marks) <= 2 * (trust.KEPT_S + trust._FEW)
    site.disk.records["mine"] = Held(1)
    site.member._trust.asked("mine", ("mad",))
    for number in range(5000):
        contacts.now += 1
        site.member._trust.asked(f"d{number}", ("mad",))
    assert site.member._trust.has_asked("mine", "mad")


def test_one_search_gives_way_a_bounded_number_of_times() -> None:
    site = Site("of a higher name, which gives way")
    site.member.want_session("c", site.now, lambda outcome: None)
    site.hear(Ask(1, (Query("c"),) * 5000))
    site.wait()
    assert len([ask for ask in site.of(Ask) if isinstance(ask, Ask) and ask.questions]) == 1
    assert site.member.statistics.asked <= lookup.MOST_TURNS + 1
