"""A site causes no additional call for a message that has no subscriber at another gateway."""

import gc
import sys
from collections import Counter
from dataclasses import replace
from types import FrameType

import pytest

from gateway.mqtt.packets import Connect, Version
from tests.broker.harness import FOREVER, Client, World
from tests.site.wiring.test_local_member import Sites

RUNS = 3
"""Number of messages that are sent before the measured one, so that caches are filled."""


def join(world: World, client_id: str, clean: bool) -> Client:
    """Connect a client whose session no other member has, so no lookup is needed."""
    client = world.open(answers=True, policy=replace(world.policy, never_moves=True))
    client.send(Connect(client_id, Version.V5, clean, properties={} if clean else FOREVER))
    return client


def calls(world: World, topic: str, qos: int, clean: bool) -> Counter[str]:
    """Return the number of calls of each function for one message, from its PUBLISH to the
    subscriber's last answer.
    """
    reader, writer = join(world, "reader", clean), join(world, "writer", clean)
    reader.subscribe(topic)
    for _ in range(RUNS):
        writer.publish(topic, "m", qos)
    made: Counter[str] = Counter()

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            path, name = frame.f_code.co_filename, frame.f_code.co_qualname
            if path.endswith("neighbours.py"):  # a site has a subclass of its own
                path, name = "neighbours.py", frame.f_code.co_name
            made[f"{path}: {name}"] += 1

    before = sys.getprofile()
    gc.disable()  # a collection would call other code
    sys.setprofile(look)
    try:
        writer.publish(topic, "m", qos)
    finally:
        sys.setprofile(before)
        gc.enable()
    assert reader.payloads == [b"m"] * (RUNS + 1)
    return made


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("topic", ["t", "spool/t"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_message_costs_a_member_as_much_as_a_single_gateway(
    qos: int, topic: str, clean: bool
) -> None:
    alone = calls(World(), topic, qos, clean)
    assert sum(alone.values()) > 20
    assert calls(Sites("a", "b")["a"], topic, qos, clean) == alone
