"""The times at which a bridge compares retained messages. The test's clock jumps ahead instead of
waiting.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.bridge.collisions import FIRST_S, ON_THE_WAY_S, Collisions
from gateway.bridge.converge import AGAIN_S, BUSY_S, RETRY_S, Convergence
from gateway.bridge.translate import crosses
from gateway.config import DEVICES_TOPIC, BridgeSection
from gateway.errors import OncewayError


class _Selector(selectors.DefaultSelector):
    """A selector that moves the clock ahead by the timeout instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


def at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in an event loop whose clock jumps to the next timer."""
    selector = _Selector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work)


class Kept:
    """A stand-in for a `Convergence` (gateway/bridge/converge.py) between two comparisons."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self.marks: list[float] = []
        self.lost = 0
        loop = asyncio.get_running_loop()
        self.collisions = Collisions(loop.time, self._changed.set)
        self.silent = True
        self.compared: list[tuple[float, list[str]]] = []
        """Each comparison of topics in doubt: its time in seconds, and the topics."""
        crossings = SimpleNamespace(collisions=self.collisions)
        self.link: Any = SimpleNamespace(lost=lambda: self.lost, crossings=crossings)

    async def _keep_mark(self, link: object) -> None:
        self._changed.clear()
        self.marks.append(asyncio.get_running_loop().time())

    async def _compare_doubted(self, link: object) -> None:
        self.compared.append((asyncio.get_running_loop().time(), self.collisions.take()))

    async def _is_silent(self, link: object) -> bool:
        return self.silent

    async def ends_after(self, seconds: float) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await Convergence._keep_marks(self, self.link, seconds)  # type: ignore[arg-type]
        return loop.time() - began


def test_long_connection_is_compared_again_after_ten_minutes() -> None:
    async def quiet() -> None:
        kept = Kept()
        assert AGAIN_S == 600.0
        assert AGAIN_S <= await kept.ends_after(AGAIN_S) <= AGAIN_S + RETRY_S
        assert not kept.marks

    at_once(quiet())


def test_long_connection_is_compared_again_soon_after_a_loss() -> None:
    async def lossy() -> None:
        kept = Kept()
        asyncio.get_running_loop().call_later(100, lambda: setattr(kept, "lost", 1))
        assert 100 <= await kept.ends_after(AGAIN_S) <= 100 + RETRY_S

    at_once(lossy())


def test_changes_get_their_marks_and_put_no_comparison_off() -> None:
    async def changing() -> None:
        kept, loop = Kept(), asyncio.get_running_loop()
        for at in range(0, 590, 10):
            loop.call_later(at, kept._changed.set)
        assert AGAIN_S <= await kept.ends_after(AGAIN_S) <= AGAIN_S + RETRY_S
        assert len(kept.marks) == 59

    at_once(changing())


@pytest.mark.parametrize("changed", [True, False], ids=["crossed", "came back"])
def test_topic_in_doubt_is_compared_seconds_later(changed: bool) -> None:
    """The doubt comes at 100 s. Its topics are compared whether or not a message has crossed; no
    message crosses if it has come back in a loop.
    """

    async def doubtful() -> None:
        kept, loop = Kept(), asyncio.get_running_loop()
        if changed:
            loop.call_later(100, kept._changed.set)
        loop.call_later(100, lambda: kept.collisions.doubt(["a", "b"]))
        await kept.ends_after(AGAIN_S)
        ((at, topics),) = kept.compared
        assert topics == ["a", "b"]
        assert 100 + FIRST_S <= at <= 100 + 2 * FIRST_S + 1

    at_once(doubtful())


def test_topic_in_doubt_is_not_called_equal() -> None:
    part: Any = object.__new__(Convergence)
    part.error, part._differ, part._crossing = "", 0, False
    part._section = BridgeSection(name="cloud", server="mqtt://far", up=["#"])
    part._collisions = Collisions(lambda: 0.0)
    assert (part.state, part.differ) == ("equal", 0)
    part._collisions.doubt(["a"])
    assert (part.state, part.differ) == ("comparing", None)


@pytest.mark.parametrize(("silent", "reads"), [(True, 0), (False, 1)], ids=["silent", "busy"])
def test_messages_of_both_ends_minutes_apart_are_no_collision(silent: bool, reads: int) -> None:
    async def apart() -> None:
        kept, loop = Kept(), asyncio.get_running_loop()
        kept.silent = silent
        for at, sent in ((100.0, True), (100 + 2 * RETRY_S + ON_THE_WAY_S, False)):
            state = b"%d" % sent
            loop.call_later(at, kept.collisions.crosses, "a", (sent, 1), state)
        await kept.ends_after(AGAIN_S)
        assert len(kept.compared) == reads

    at_once(apart())


class Reconnected(Kept):
    """A stand-in for a `Convergence` on a new connection. knows: whether the other broker has the
    bridge's mark. left_s: seconds until the next full comparison is allowed.
    """

    def __init__(self, knows: bool, left_s: float) -> None:
        super().__init__()
        self._knows, self.compared_at = knows, 0.0
        self.agreement = SimpleNamespace(topics=lambda: ["a"])
        self._pauses = SimpleNamespace(left_s=lambda now: left_s)

    async def _knows_us(self, link: object) -> bool:
        return self._knows

    async def _keep_marks(self, link: Any, seconds: float) -> None:
        await Convergence._keep_marks(self, link, seconds)  # type: ignore[arg-type]

    async def _compare(self, link: object) -> int:
        self.compared_at = asyncio.get_running_loop().time()
        raise asyncio.CancelledError

    async def begins_after(self) -> float:
        with suppress(asyncio.CancelledError):
            await Convergence._run(self, self.link)  # type: ignore[arg-type]
        return self.compared_at


@pytest.mark.parametrize(
    ("knows", "left_s", "least", "most"),
    [(True, 0, 1, 3), (True, 300, 301, 303 + RETRY_S), (False, 300, 1, 3)],
    ids=["no pause", "a pause", "lost store"],
)
def test_pause_after_a_reconnect_is_for_a_broker_that_has_lost_nothing(
    knows: bool, left_s: float, least: float, most: float
) -> None:
    async def reconnected() -> None:
        part = Reconnected(knows, left_s)
        asyncio.get_running_loop().call_later(10, part._changed.set)
        assert least <= await part.begins_after() <= most
        assert bool(part.marks) is (most > 10), "a change in the pause gets its mark"

    at_once(reconnected())


class Busy:
    """A stand-in for a `Convergence` while many messages cross. speed: messages per second that
    enter the queue, and that leave it at the same time. waiting: constant number of messages in the
    queue.
    """

    def __init__(self, speed: float, waiting: int) -> None:
        self._speed, self._waiting_now = speed, waiting
        self._section = SimpleNamespace(server="mqtt://far")

    async def _is_silent(self, link: object) -> bool:
        return False

    def _snapshot(self, link: object) -> dict[str, object]:
        self.snapshot_at = asyncio.get_running_loop().time()
        return {"a": 1}

    def _queue(self) -> tuple[int, int]:
        first = int(asyncio.get_running_loop().time() * self._speed)
        return first, first + self._waiting_now

    async def quiet(self) -> Any:
        async def settled() -> None:
            pass

        far = SimpleNamespace(settled=settled)
        link = SimpleNamespace(far=far, tries_suspects=lambda: False)
        return await Convergence._quiet(self, link)  # type: ignore[arg-type]


def test_busy_connection_is_compared_when_the_first_messages_have_left() -> None:
    async def busy() -> None:
        line = Busy(speed=100, waiting=500)
        assert await line.quiet() == {"a": 1}
        assert BUSY_S <= line.snapshot_at <= BUSY_S + 1
        assert asyncio.get_running_loop().time() <= BUSY_S + 7

    at_once(busy())


def test_connection_on_which_nothing_leaves_is_an_error() -> None:
    async def stuck() -> None:
        with pytest.raises(OncewayError, match="of the bridge were not sent in time"):
            await Busy(speed=0, waiting=1).quiet()
        assert asyncio.get_running_loop().time() <= BUSY_S + RETRY_S + 1

    at_once(stuck())


@pytest.mark.parametrize(
    ("more", "cross"),
    [
        ({"up": ["#"]}, False),
        ({"up": ["#"], "prefix": "site-1/"}, True),
        ({"up": ["#", DEVICES_TOPIC]}, True),
        ({"down": [DEVICES_TOPIC]}, True),
        ({"down": ["onceway/#"]}, False),
    ],
)
def test_list_of_devices_crosses_with_a_prefix_or_by_its_name(more: Any, cross: bool) -> None:
    section = BridgeSection(name="cloud", server="mqtt://far", **more)
    assert crosses(section, DEVICES_TOPIC) is cross
    assert crosses(section, "onceway/other")
