"""Event streams of the page: when a user may open another stream, and which user's stream is closed
to make room for it.
"""

import pytest

from gateway.web.streams import Stream, Streams


class Page:
    """Streams of the page, at most eight. ended: users of the streams that were closed."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self._streams = Streams(8)

    def open(self, user: str) -> bool:
        return self._streams.add(
            Stream(user, user.startswith("otto"), lambda: self.ended.append(user))
        )

    def fill(self, *users: str) -> None:
        for user in users:
            while self.open(user):
                pass
        self.ended.clear()


def test_user_has_half_of_the_streams_at_most() -> None:
    page = Page()
    assert [page.open("lena") for _ in range(6)] == [True] * 4 + [False] * 2
    assert page.open("lars")
    assert not page.ended


@pytest.mark.parametrize("viewers", [["lena", "lars"], ["lena", "lars", "lotta"]])
def test_operator_gets_a_stream_when_viewers_have_all_of_them(viewers: list[str]) -> None:
    page = Page()
    page.fill(*viewers)
    assert [page.open("otto") for _ in range(4)] == [True] * 4
    assert len(page.ended) == 4
    assert set(page.ended) <= set(viewers)


def test_a_viewer_gets_a_stream_of_the_viewer_with_the_most_and_none_of_an_operator() -> None:
    page = Page()
    page.fill("otto", "lena")
    assert page.open("lars")
    assert set(page.ended) == {"lena"}


def test_operators_share_the_streams_when_no_viewer_has_one() -> None:
    page = Page()
    page.fill("otto", "otto-2")
    assert page.open("otto-3")
    assert len(page.ended) == 1
    page.fill("otto-3")
    assert not page.open("lena"), "a viewer takes none of an operator"


def test_a_stream_that_ended_makes_room() -> None:
    page, streams = Page(), Streams(2)
    one = Stream("lena", False, lambda: page.ended.append("lena"))
    assert streams.add(one)
    assert not streams.add(Stream("lena", False, lambda: None))
    streams.discard(one)
    streams.discard(one)
    assert streams.add(Stream("lena", False, lambda: None))
    assert not page.ended
