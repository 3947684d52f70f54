"""Retained messages between members, without a broker. A member may be faulty."""

import random
from collections import deque

import pytest

from gateway.site.errors import SiteError
from gateway.site.framing import FRAME_BYTES
from gateway.site.shared_state.retained import FIRST, RetainedSharing
from gateway.site.shared_state.retained_entry import MOST_VERSION, NEVER, Entry, decode, encode
from gateway.site.shared_state.sharing import FRAME, MOST_ITEMS, Link


class One:
    """A member that stores each received entry at once, if the entry is newer than its own."""

    def __init__(self) -> None:
        self.held: dict[str, Entry] = {}
        self.frames: deque[bytes] = deque()
        self.sharing = RetainedSharing(
            lambda member, frame: self.frames.append(frame), self.held.get, self.enter
        )
        self.sharing.changed({})

    def enter(self, link: Link[Entry]) -> None:
        for entry in link.entering or ():
            known = self.held.get(entry.name)
            if known is None or known.mark < entry.mark:
                self.held[entry.name] = entry
        self.say(*(entry.name for entry in link.entering or ()), done=link)

    def put(self, *entries: Entry) -> None:
        self.held |= {entry.name: entry for entry in entries}
        self.say(*(entry.name for entry in entries))

    def say(self, *names: str, done: Link[Entry] | None = None) -> None:
        marks = {name: self.held[name].mark for name in names}
        self.sharing.changed(marks, () if done is None else [done])


def meet(one: One, other: One) -> list[bytes]:
    """Link two members, and deliver all frames. Return the frames."""
    went = []
    one.sharing.joined("other")
    other.sharing.joined("one")
    while one.frames or other.frames:
        for sender, taker, name in ((one, other, "one"), (other, one, "other")):
            while sender.frames:
                went.append(sender.frames.popleft())
                taker.sharing.received(name, went[-1])
    return went


def entry(topic: str, version: int = 5, payload: bytes = b"x", expires_in: int = NEVER) -> Entry:
    return Entry(topic, version, expires_in, 1, "client", b"", payload)


def test_many_go_in_frames_with_a_bound_and_those_that_agree_cost_a_digest() -> None:
    one, other = One(), One()
    one.put(*(entry(f"t/{number}", payload=bytes(900)) for number in range(3000)))
    other.put(*(entry(f"u/{number}", payload=b"", expires_in=60) for number in range(2500)))
    frames = meet(one, other)
    assert one.held == other.held
    assert max(map(len, frames)) <= FRAME + 1000
    assert all(
        len(list(decode(frame[1:], MOST_ITEMS))) for frame in frames if frame[0] == FIRST + 1
    )
    one.sharing.link_ended("other")
    other.sharing.link_ended("one")
    assert [len(frame) for frame in meet(one, other)] == [8193, 8193]


def test_entry_above_a_frame_goes_alone_and_entry_above_the_bound_of_a_link_stays() -> None:
    one, other = One(), One()
    one.put(entry("large", payload=bytes(FRAME * 2)), entry("small"))
    one.put(entry("too large", payload=bytes(FRAME_BYTES)))
    frames = meet(one, other)
    assert set(other.held) == {"large", "small"}
    assert max(map(len, frames)) <= FRAME_BYTES


def test_message_about_to_expire_is_not_sent() -> None:
    one, other = One(), One()
    one.put(entry("t", expires_in=0), entry("u", expires_in=1))
    meet(one, other)
    assert set(other.held) == {"u"}


def test_same_entry_of_equal_versions_wins_in_either_order() -> None:
    for payloads in ((b"1", b"2"), (b"2", b"1")):
        one, other = One(), One()
        one.put(entry("t", payload=payloads[0]))
        other.put(entry("t", payload=payloads[1]))
        meet(one, other)
        assert one.held == other.held
        assert one.held["t"].payload == max(b"1", b"2", key=lambda p: entry("t", 5, p).mark)


def test_the_time_that_is_left_is_no_difference() -> None:
    assert entry("t", expires_in=9).mark == entry("t", expires_in=3).mark
    assert entry("t", 6).mark > entry("t", 5).mark
    assert len({entry("t", payload=b"1").mark, entry("t", payload=b"2").mark}) == 2


def frame(kind: int, body: bytes = b"") -> bytes:
    return bytes((FIRST + kind,)) + body


GOOD = entry("t")


def bad(**changes: object) -> bytes:
    return frame(1, encode(GOOD._replace(**changes)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "frames",
    [
        [frame(3)],
        [frame(31)],
        [frame(0)],
        [frame(0, bytes(8191))],
        [frame(0, bytes(8192)), frame(0, bytes(8192))],
        [frame(2)],
        [frame(1)],
        [frame(1, encode(GOOD)[:-1])],
        [frame(1, encode(GOOD) + b"\0")],
        [frame(1, encode(GOOD) * (MOST_ITEMS + 1))],
        [bad(name="")],
        [bad(name="a/+")],
        [bad(name="a/#")],
        [bad(name="a\0b")],
        [frame(1, encode(GOOD).replace(b"tclient", b"\xffclient"))],
        [frame(1, encode(GOOD).replace(b"tclient", b"tclien\xff"))],
        [bad(version=0)],
        [bad(version=MOST_VERSION + 1)],
        [bad(qos=3)],
        [bad(expires_in=0)],
        [bad(payload=b"")],
        [bad(properties=b"\x7f\0")],
        [bad(properties=b"\x23\0\1")],
        [bad(properties=b"\x02\0\0\0\1")],
        [bad(properties=b"\x08\0\1#")],
        [frame(1, encode(GOOD)), frame(1, encode(GOOD))],
    ],
)
def test_a_mad_member_is_refused(frames: list[bytes]) -> None:
    taken: list[Link[Entry]] = []
    sharing = RetainedSharing(lambda member, frame: None, {}.get, taken.append)
    sharing.changed({})
    sharing.joined("mad")
    *before, last = frames
    for item in before:
        sharing.received("mad", item)
    taken.clear()
    with pytest.raises(SiteError):
        sharing.received("mad", last)
    assert not taken, "nothing of such a frame is taken"


def test_arbitrary_bytes_are_read_as_entries_or_refused() -> None:
    rng = random.Random(7)
    for _ in range(3000):
        body = bytearray(encode(GOOD) + encode(entry("u/v", 9, b"", 60)))
        for _ in range(rng.randrange(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        try:
            found = list(decode(bytes(body), 10))
        except SiteError:
            continue
        assert b"".join(map(encode, found)) == body
