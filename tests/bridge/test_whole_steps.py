"""Some steps are done completely or not at all: a bridge sets messages aside, puts them back or
discards them; an administrator ends a session. For each call within a step, the test raises an
exception at that call, in a run of its own. Afterwards, the store has the state before the step or
the state after the step; if the engine has stopped, the store has the state before the step.
"""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from gateway.bridge import aside as bridge_aside
from gateway.bridge.aside import BridgeAside
from gateway.bridge.setting_aside import set_aside
from gateway.errors import OncewayError
from gateway.mqtt.message_ids import packet_id, unpack_ids
from gateway.runtime import administration
from tests.bridge.test_setting_aside import MOST, flying
from tests.broker.harness import World

BAD = b"bad"
ROW = SimpleNamespace(
    number=1, topic="t", payload=BAD, qos=1, retain=0, properties=b"", expires=None
)


class Injected(Exception):
    """An exception that the gateway does not expect."""


def at_call(wanted: int, work: Callable[[], object]) -> bool:
    """Call `work`, and raise an exception at its call number `wanted` of any function of the
    gateway. The first call is number 1. Return False if `work` makes fewer calls.
    """
    count = 0

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        if event == "call" and "/gateway/" in frame.f_code.co_filename:
            count += 1
            if count == wanted:
                raise Injected

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        with suppress(Injected, OncewayError):  # OncewayError: the engine has stopped
            work()
    finally:
        sys.setprofile(before)
    return count >= wanted


def of_bridge(world: World) -> BridgeAside:
    section = SimpleNamespace(name="cloud", qos=1, aside_messages=10, aside_bytes=10_000)
    return BridgeAside(world.engine, section)  # type: ignore[arg-type]


def move(world: World) -> Callable[[], object]:
    _, (packet, *_) = flying(world, 2, BAD)
    session = world.broker.sessions["bridge"]
    world.commit()

    def work() -> None:
        world.engine.begin()
        set_aside(world.broker, session, packet.packet_id, "cloud", "x", MOST, received=True)

    return work


def put_back(world: World) -> Callable[[], object]:
    work = move(world)
    work()
    world.commit()
    session, aside = world.broker.sessions["bridge"], of_bridge(world)
    return lambda: run(aside.again(session, []))


def discard(world: World) -> Callable[[], object]:
    move(world)()
    world.commit()
    aside = of_bridge(world)
    return lambda: aside.discard([])


def end_session(world: World) -> Callable[[], object]:
    flying(world, 1, BAD)
    world.commit()
    return lambda: run(administration.end_session(world.engine, "bridge"))


def run(awaited: Any) -> None:
    """Run a coroutine until it waits for something, and close it there."""
    try:
        awaited.send(None)
    except StopIteration:
        return
    awaited.close()


def places(world: World) -> tuple[int, int, int]:
    """Return three numbers: copies of the message in the queue, copies set aside, and sessions. If
    PUBREL was sent for a message, its copy in the queue does not count.
    """
    released = {
        one for (ids,) in world.rows("SELECT released FROM flow") for one in unpack_ids(ids)
    }
    firsts = [first for (first,) in world.rows("SELECT first FROM queue")]
    queued = sum(packet_id(first) not in released for first in firsts)
    ((aside,),) = world.rows("SELECT count(*) FROM aside")
    ((sessions,),) = world.rows("SELECT count(*) FROM session WHERE client = 'bridge'")
    return queued, aside, sessions


WORK = {
    "set aside": (move, {(1, 0, 1), (0, 1, 1)}),
    "put back": (put_back, {(0, 1, 1), (1, 0, 1)}),
    "discard": (discard, {(0, 1, 1), (0, 0, 1)}),
    "end the session": (end_session, {(1, 0, 1), (0, 0, 0)}),
}


@pytest.mark.parametrize("name", WORK)
def test_an_exception_at_any_call_leaves_a_whole(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def here(function: Callable[..., object], *arguments: object) -> object:
        return function(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", here)
    monkeypatch.setattr(bridge_aside, "views", SimpleNamespace(aside=lambda *_: [ROW]))
    prepare, whole = WORK[name]
    stopped = number = 0
    while True:
        number += 1
        world = World()
        work = prepare(world)
        before = places(world)
        assert before in whole
        reached = at_call(number, work)
        stopped += bool(world.broker.step.unfinished)
        world.commit()
        assert places(world) in ({before} if world.engine.broken else whole)
        if not reached:
            break
    assert number > 5, "calls at which it fails"
    assert stopped > 3
    assert places(world) != before, "without an exception it is done"
