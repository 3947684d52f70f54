"""A queue that drops the oldest messages: at its bound, the newest messages remain, and the log
names the bound.
"""

import random

import pytest

from gateway.config import BridgeSection, QueueSection
from gateway.config.bound_names import queue_key
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import Puback, Publish
from tests.broker.harness import FOREVER, World

MOST = 100


@pytest.mark.parametrize("qos", [[0], [1], [2], [0, 1], [0, 2], [0, 1, 2]], ids=str)
@pytest.mark.parametrize("run", [False, True], ids=["one by one", "in runs"])
def test_newest_messages_wait_and_the_log_reports_the_drop(
    qos: list[int], run: bool, caplog: pytest.LogCaptureFixture
) -> None:
    section = QueueSection(full="drop the oldest", qos_0=True, messages=MOST)
    world = World(queue=[section])
    world.absent("slow")
    publisher = world.accepted(answers=True)
    packets = [
        Publish("t", b"%03d" % number, level, number + 1 if level else 0)
        for number in range(500)
        for level in [qos[number // 50 % len(qos)]]
    ]
    data = [encode(packet, publisher.version) for packet in packets]
    for part in [b"".join(data)] if run else data:
        publisher.send_bytes(part)
    assert world.broker.sessions["slow"].send_flow.messages == MOST
    assert world.broker.statistics.overflowed == 500 - MOST
    assert world.broker.statistics.dropped == 0
    assert f"the queue is full ([[queue]] messages = {MOST}), its oldest" in caplog.text
    slow = world.durable("slow", answers=True)
    assert slow.payloads == [b"%03d" % number for number in range(500 - MOST, 500)]


def test_a_run_that_is_dropped_in_part_is_not_sent_whole() -> None:
    section = QueueSection(full="drop the oldest", qos_0=True, messages=4)
    world = World(queue=[section])
    world.absent("slow")
    publisher = world.accepted(answers=True)
    for part in (["0"], ["1", "2", "3", "4"], ["5"], ["6"]):
        packets = [Publish("t", text.encode(), 0, 0) for text in part]
        publisher.send_bytes(b"".join(encode(it, publisher.version) for it in packets))
    assert world.broker.statistics.overflowed == 3
    assert world.durable("slow", answers=True).payloads == [b"3", b"4", b"5", b"6"]


@pytest.mark.parametrize("full", ["end the session", "refuse the publisher"])
def test_qos_0_forces_nothing_where_the_oldest_are_not_dropped(full: str) -> None:
    world = World(queue=[QueueSection(full=full, qos_0=True, messages=4)])
    world.absent("slow")
    publisher = world.accepted(answers=True)
    for number in range(6):
        publisher.publish("t", str(number), qos=0)
    assert world.durable("slow", answers=True).payloads == [b"0", b"1", b"2", b"3"]
    assert world.broker.statistics.dropped == 2


@pytest.mark.parametrize("seed", range(40))
def test_a_queue_comes_back_to_its_bound(seed: int) -> None:
    """New messages arrive even while the broker reads the oldest messages of the queue from the
    store.
    """
    draw = random.Random(seed)
    section = QueueSection(full="drop the oldest", qos_0=draw.random() < 0.7, messages=MOST)
    world = World(queue=[section], inflight=draw.choice([1, 10, 100]))
    world.absent("slow")
    publisher, slow, number = world.accepted(answers=True), None, 0
    for _ in range(30):
        match draw.choice(["publish", "publish", "run", "connect", "drop", "slow", "fast"]):
            case "publish":
                for _ in range(draw.choice([1, 30, 150])):
                    publisher.publish("t", str(number), qos=draw.randrange(3))
                    number += 1
            case "run":
                count, qos = draw.choice([5, 60, 200]), draw.randrange(2)
                packets = [Publish("t", b"x", qos, index * qos) for index in range(1, count + 1)]
                publisher.send_bytes(b"".join(encode(it, publisher.version) for it in packets))
            case "connect" if slow is None:
                answers = draw.random() < 0.5
                slow = world.connect("slow", clean=False, properties=FOREVER, answers=answers)
            case "drop" if slow is not None:
                slow.drop()
                slow = None
            case "slow":
                world.slow_disk = True
        if not world.slow_disk or draw.random() < 0.3:
            world.slow_disk = False
            world.commit()
            world.turn()
            assert world.broker.sessions["slow"].send_flow.messages <= MOST


BOUNDS = {
    "limits.queue_messages = 4": (QueueSection(), {"queue_messages": 4}),
    "limits.queue_bytes = 300": (QueueSection(), {"queue_bytes": 300}),
    "[[queue]] messages = 4": (QueueSection(messages=4), {}),
    "[[queue]] bytes = 300": (QueueSection(bytes=300), {}),
    "[[queue]] messages = 3": (QueueSection(messages=3), {"queue_messages": 100}),
}


@pytest.mark.parametrize("key", BOUNDS)
@pytest.mark.parametrize("full", ["drop the oldest", "end the session", "refuse the publisher"])
def test_the_bound_that_was_reached_is_named(
    key: str, full: str, caplog: pytest.LogCaptureFixture
) -> None:
    section, limits = BOUNDS[key]
    world = World(queue=[section.model_copy(update={"full": full})], **limits)
    world.absent("slow")
    publisher = world.accepted(answers=True)
    for _ in range(10):
        publisher.publish("t", "x", qos=1)
    last = publisher.take_all(Puback)[-1]
    said = f"{caplog.text} {last.properties}"
    assert key in said
    others = {name.partition(" =")[0] for name in BOUNDS} - {key.partition(" =")[0]}
    assert not [name for name in others if name in said]


def test_the_bound_of_all_queues_is_named(caplog: pytest.LogCaptureFixture) -> None:
    world = World(queue=[QueueSection(full="drop the oldest")], memory_bytes=2_000)
    world.absent("slow")
    publisher = world.accepted(answers=True)
    for _ in range(10):
        publisher.publish("t", bytes(300), qos=1)
    assert "slow: the queue is full (limits.memory_bytes), its oldest" in caplog.text


@pytest.mark.parametrize("unit", ["messages", "bytes"])
def test_a_bridge_has_bounds_of_its_own(unit: str) -> None:
    bridge = BridgeSection(name="cloud", server="mqtts://broker.example", up=["#"])
    key = queue_key(bridge.client, QueueSection(messages=1, bytes=2), unit, 7)
    assert key == f"[[bridge]] max_{unit} = 7"
