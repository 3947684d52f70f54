"""The list of all sessions of a site: transfer in pages from member to member, bounds, and members
that are silent or faulty.
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.errors import OncewayError
from gateway.site.errors import SiteError
from gateway.site.framing import FRAME_BYTES
from gateway.site.rules.session_list import Told, Want, What, decode, encode
from gateway.site.wiring import session_list as site_listing
from gateway.site.wiring.session_list import MOST_WANTED, PAGE_BYTES, PAGE_ROWS, Counts, Listing
from gateway.store.session_views import moved_view
from tests.links.board import until

COUNTS = Counts(3, 2, 1, 0)
Row = dict[str, Any]


def row(client: str, **more: object) -> Row:
    return moved_view(client, "b") | more


class Pair:
    """Members a and b. A frame between them arrives in the next turn of the event loop. held: b's
    rows.
    """

    def __init__(self, *held: Row) -> None:
        self.held = list(held)
        self.up = {"b"}
        self.frames = 0
        self.a = Listing(["b"], self._to_b, self.up, lambda: COUNTS, lambda: iter(()))
        self.b = Listing(["a"], self._to_a, {"a"}, lambda: COUNTS, self._rows)

    def _rows(self) -> Iterator[Row]:
        return iter(self.held)

    def _to_b(self, member: str, frame: bytes) -> None:
        assert member == "b"
        asyncio.get_running_loop().call_soon(self.b.received, "a", frame)

    def _to_a(self, member: str, frame: bytes) -> None:
        assert member == "a"
        assert len(frame) <= FRAME_BYTES
        self.frames += 1
        asyncio.get_running_loop().call_soon(self.a.received, "b", frame)

    async def listed(self) -> list[Row]:
        return [found async for found in self.a.sessions()]


async def test_all_rows_come_once_and_in_order_over_several_pages() -> None:
    pair = Pair(*(row(f"c{number}") for number in range(2 * PAGE_ROWS + 1)))
    found = await pair.listed()
    assert found == [{"member": "b"} | one for one in pair.held]
    assert pair.frames == 3


async def test_the_longest_identifiers_fit_into_frames() -> None:
    longest = row("\x01" * 65_535, user="\x01" * 65_535)
    small = [row("x" * 1000) for _ in range(PAGE_BYTES // 1000)]
    pair = Pair(*small, longest, longest)
    assert [one["client"] for one in await pair.listed()] == [one["client"] for one in pair.held]


async def test_counts_come_of_each_member_and_none_of_a_silent_one() -> None:
    pair = Pair()
    assert await pair.a.counts() == {"b": COUNTS}
    pair.up.clear()
    assert await pair.a.counts() == {"b": None}


async def test_silent_member_is_listed_with_its_known_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(site_listing, "PATIENCE_S", 0.5)
    pair = Pair(*(row(f"c{number}") for number in range(PAGE_ROWS + 1)))
    told = pair.b.received
    pages = 0

    def hangs(member: str, frame: bytes) -> None:
        nonlocal pages
        pages += 1
        if pages == 1:
            told(member, frame)

    pair.b.received = hangs  # type: ignore[method-assign]
    found = await pair.listed()
    assert found[-1] == {"member": "b", "silent": True}
    assert len(found) == PAGE_ROWS + 1
    pair.b.received = told  # type: ignore[method-assign]
    assert len(await pair.listed()) == PAGE_ROWS + 1, "it begins again from the first page"


async def test_a_link_that_breaks_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_listing, "PATIENCE_S", 60)
    pair, asked = Pair(), asyncio.Event()
    pair.b.received = lambda *_: asked.set()  # type: ignore[method-assign]
    counting = asyncio.ensure_future(pair.a.counts())
    await asked.wait()
    pair.a.link_ended("b")
    async with asyncio.timeout(30):
        assert await counting == {"b": None}


async def test_one_lists_at_a_time() -> None:
    pair = Pair(row("c1"), row("c2"))
    first = pair.a.sessions()
    await anext(first)
    with pytest.raises(OncewayError, match="another command is listing"):
        await pair.listed()
    await first.aclose()
    assert len(await pair.listed()) == 2


async def test_the_gateway_looks_for_boards_while_a_person_lists() -> None:
    pair = Pair(row("c1"), row("c2"))
    person = pair.a.sessions()
    await anext(person)
    holders = asyncio.create_task(pair.a.holders())
    assert [found["client"] async for found in person] == ["c2"]
    assert await holders == {"b": {"c1", "c2"}}
    pair.up.clear()
    assert await pair.a.holders() == {"b": None}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[1]",
        b"[{}]",
        json.dumps([row("c") | {"queued": "1"}]).encode(),
        json.dumps([row("c")] * (PAGE_ROWS + 1)).encode(),
    ],
)
async def test_invalid_page_is_not_shown(data: bytes) -> None:
    pair = Pair()

    def mad(member: str, frame: bytes) -> None:
        want = decode(frame)
        assert isinstance(want, Want)
        told = encode(Told(*want, False, data))
        asyncio.get_running_loop().call_soon(pair.a.received, "b", told)

    pair.b.received = mad  # type: ignore[method-assign]
    assert await pair.listed() == [{"member": "b", "silent": True}]
    assert await pair.a.counts() == {"b": None}


async def test_member_with_too_many_requests_gets_the_newest_answers() -> None:
    pair = Pair(row("c"))
    answered: list[int] = []

    def hears(_: str, frame: bytes) -> None:
        answered.append(decode(frame).number)

    pair.a.received = hears  # type: ignore[method-assign]
    for number in range(MOST_WANTED + 3):
        pair.b.received("a", encode(Want(number, What.PAGE)))
    await until(lambda: len(answered) == MOST_WANTED)
    assert answered == list(range(3, MOST_WANTED + 3))
    pair.b.received("a", encode(Want(0, What.PAGE)))
    pair.b.link_ended("a")
    await asyncio.sleep(0.01)
    assert len(answered) == MOST_WANTED


async def test_concurrent_lists_share_one_request() -> None:
    pair = Pair()
    found = await asyncio.gather(*(pair.a.counts() for _ in range(50)))
    assert (found, pair.frames) == ([{"b": COUNTS}] * 50, 1)


@pytest.mark.parametrize("message", [Want(7, What.COUNTS), Told(1 << 31, What.PAGE, True, b"[]")])
def test_frames_are_read_as_they_were_written_and_no_other_way(message: Want | Told) -> None:
    frame = encode(message)
    assert decode(frame) == message
    for wrong in (frame[:5], b"\x3f" + frame[1:], frame[:5] + b"\x09" + frame[6:], bytes(2 << 20)):
        with pytest.raises(SiteError):
            decode(wrong)
    with pytest.raises(SiteError):
        decode(encode(Want(7, What.PAGE)) + b"x")
