"""Device registries of members that lose contact and meet again, without sockets and files."""

import random
from collections import deque

import pytest

from gateway.site.errors import SiteError
from gateway.site.shared_state.board_entry import Board, Entry, merged
from gateway.site.shared_state.boards import FIRST, MOST, BoardSharing
from gateway.site.shared_state.sharing import FRAME, Link


def board(key: int = 0) -> Board:
    return Board(
        board="uno",
        key=f"{key:032x}",
        status="ready",
        firmware=None,
        created="2026-01-01",
        flashed=None,
        radio=None,
    )


def entry(name: str, version: int = 1, revoked: int = -1, key: int = 0) -> Entry:
    return Entry(
        name=name,
        lifted=0,
        revoked=revoked,
        version=version,
        at="2026-01-01",
        changed="2026-01-01",
        board=board(key),
    )


class One:
    """A member with its registry. Entries from other members wait for the disk until the test calls
    `work`.
    """

    def __init__(self, name: str, net: "Net") -> None:
        self.name = name
        self.registry: dict[str, Entry] = {}
        self.waiting: dict[str, tuple[Link[Entry], list[Entry]]] = {}
        self.sharing = BoardSharing(lambda to, frame: net.send(name, to, frame), self.enter)
        self.told: list[str] = []

    def enter(self, link: Link[Entry], entries) -> None:
        self.waiting[link.member] = link, list(entries)

    def put(self, *entries: Entry) -> None:
        for item in entries:
            known = self.registry.get(item.name)
            self.registry[item.name] = merged(known, item) if known else item

    def work(self) -> None:
        waiting, self.waiting = self.waiting, {}
        for _, entries in waiting.values():
            self.put(*entries)
        done = [link for link, _ in waiting.values()]
        self.told += self.sharing.entered(self.registry.values(), done)


class Net:
    def __init__(self, *names: str) -> None:
        self.up: set[frozenset[str]] = set()
        self.frames: deque[tuple[str, str, bytes]] = deque()
        self.members = {name: One(name, self) for name in names}
        self.bytes = 0

    def send(self, sender: str, to: str, frame: bytes) -> None:
        if frozenset((sender, to)) in self.up:
            self.frames.append((sender, to, frame))
            self.bytes += len(frame)

    def join(self, one: str, other: str) -> None:
        self.up.add(frozenset((one, other)))
        self.members[one].sharing.joined(other)
        self.members[other].sharing.joined(one)

    def cut(self, one: str, other: str) -> None:
        pair = frozenset((one, other))
        self.up.discard(pair)
        self.frames = deque(item for item in self.frames if frozenset(item[:2]) != pair)
        self.members[one].sharing.link_ended(other)
        self.members[other].sharing.link_ended(one)

    def bring(self) -> None:
        sender, to, frame = self.frames.popleft()
        self.members[to].sharing.received(sender, frame)

    def settle(self) -> None:
        """Deliver all frames, and write all entries."""
        for _ in range(1000):
            while self.frames:
                self.bring()
            for member in self.members.values():
                member.work()
            if not self.frames and not any(m.waiting for m in self.members.values()):
                return
        raise AssertionError("they never come to an end")


def agree(net: Net) -> bool:
    first, *others = (member.registry for member in net.members.values())
    return all(first == other for other in others)


def test_a_change_goes_to_all_and_no_byte_follows() -> None:
    net = Net("a", "b", "c")
    net.members["a"].put(*(entry(f"board-{n}") for n in range(50)))
    for pair in ("ab", "ac", "bc"):
        net.join(*pair)
    net.settle()
    assert agree(net)
    assert len(net.members["c"].registry) == 50
    net.members["b"].put(entry("board-7", revoked=0))
    before = net.bytes
    net.settle()
    assert net.members["c"].registry["board-7"].is_revoked
    assert agree(net)
    assert net.bytes - before < 2000
    before = net.bytes
    net.settle()
    assert net.bytes == before
    assert net.members["a"].sharing.owed == {"b": 0, "c": 0}


def test_a_link_that_begins_between_members_that_agree_costs_a_digest_each() -> None:
    net = Net("a", "b")
    net.members["a"].put(*(entry(f"board-{n}") for n in range(1000)))
    net.join("a", "b")
    net.settle()
    net.cut("a", "b")
    net.members["b"].put(entry("board-5", version=2, key=9))
    net.members["b"].work()
    before = net.bytes
    net.join("a", "b")
    net.settle()
    assert agree(net)
    assert net.bytes - before < 2 * 2049 + 2 * 12 * len(entry("board-5").text)
    net.cut("a", "b")
    before = net.bytes
    net.join("a", "b")
    net.settle()
    assert net.bytes - before == 2 * 2049


def test_entry_reaches_a_member_without_a_link_to_its_author() -> None:
    net = Net("a", "b", "c")
    net.join("a", "b")
    net.join("b", "c")
    net.members["a"].put(entry("roof-1"))
    net.settle()
    assert agree(net)
    assert "roof-1" in net.members["c"].registry


def test_many_boards_go_in_frames_one_after_the_other() -> None:
    net = Net("a", "b")
    net.members["a"].put(*(entry(f"board-{n}") for n in range(MOST)))
    net.join("a", "b")
    most = 0
    for member in net.members.values():
        member.work()
    while net.frames or net.members["b"].waiting:
        most = max(most, sum(len(frame) for sender, _, frame in net.frames if sender == "a"))
        if net.frames:
            net.bring()
        else:
            net.members["b"].work()
    assert agree(net)
    assert most <= FRAME + 5000


def test_members_agree_after_links_that_come_and_go_at_any_moment() -> None:
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    for seed in range(100):
        rng = random.Random(seed)
        net = Net("a", "b", "c")
        revoked: set[str] = set()
        for step in range(120):
            member = rng.choice(list(net.members.values()))
            do, pair = rng.randrange(6), rng.choice(pairs)
            if do == 0:
                name = rng.choice("xyz")
                known = member.registry.get(name)
                if rng.random() < 0.2:
                    revoked.add(name)
                    member.put(known.but(revoked=known.lifted) if known else entry(name, 1, 0))
                elif known:
                    member.put(known.but(version=known.version + 1, board=board(step)))
                else:
                    member.put(entry(name, key=step))
            elif do == 1 and frozenset(pair) not in net.up:
                net.join(*pair)
            elif do == 2 and frozenset(pair) in net.up:
                net.cut(*pair)
            elif do == 3:
                member.work()
            elif net.frames:
                net.bring()
        for pair in pairs:
            if frozenset(pair) not in net.up:
                net.join(*pair)
        net.settle()
        assert agree(net), seed
        held = net.members["a"].registry
        assert {name for name, item in held.items() if item.is_revoked} == revoked, seed


def frame(kind: int, body: bytes = b"") -> bytes:
    return bytes((FIRST + kind,)) + body


LONG = entry("x").text.replace("2026-01-01", "2" * 65, 1).encode()


@pytest.mark.parametrize(
    "frames",
    [
        [frame(3)],
        [frame(31)],
        [frame(0)],
        [frame(0, bytes(2047))],
        [frame(0, bytes(2048)), frame(0, bytes(2048))],
        [frame(2)],
        [frame(1)],
        [frame(1, b"[]")],
        [frame(1, b'{"entries":[{}]}')],
        [frame(1, b'{"entries":[' + LONG + b"]}")],
        [frame(1, b'{"entries":[' + entry("x").text.encode().replace(b'"x"', b'"../x"') + b"]}")],
        [frame(1, b" " * 300_000)],
        [frame(1, b'{"entries":[' + entry("x").text.encode() + b"]}")] * 2,
    ],
)
def test_a_mad_member_is_refused(frames: list[bytes]) -> None:
    one = Net("a").members["a"]
    one.work()
    one.sharing.joined("mad")
    *before, last = frames
    for item in before:
        one.sharing.received("mad", item)
    with pytest.raises(SiteError) as error:
        one.sharing.received("mad", last)
    assert "0000000000" not in error.value.what, "a key"


def test_a_member_that_invents_boards_is_stopped_at_the_bound() -> None:
    one = Net("a").members["a"]
    one.put(*(entry(f"board-{n}") for n in range(MOST - 1)))
    one.work()
    one.sharing.joined("mad")
    one.sharing.received("mad", frame(1, b'{"entries":[%b]}' % entry("m-1").text.encode()))
    one.work()
    assert len(one.registry) == MOST
    with pytest.raises(SiteError, match="more than"):
        one.sharing.received("mad", frame(1, b'{"entries":[%b]}' % entry("m-2").text.encode()))


def test_a_radio_that_a_gateway_could_not_read_is_no_entry() -> None:
    for radio in ("[]", "{", '{"network": 1}', '{"network": "1", "device": 2}', "1" * 300):
        with pytest.raises(ValueError, match="radio"):
            Board(**{**board().model_dump(), "radio": radio})
