"""The packets of one address delay only this address, whatever it sends."""

from gateway.system.fair_queue import FairQueue


def drained(queue: FairQueue[str]) -> list[str]:
    found = []
    while (item := queue.pop()) is not None:
        found.append(item)
    return found


def test_turns_go_round_by_address_and_in_order_within_one() -> None:
    queue: FairQueue[str] = FairQueue(100, 100)
    for name in ("a1", "a2", "a3"):
        queue.add("10.0.0.1:1000", name)
    queue.add("10.0.0.2:1000", "b1")
    queue.add("/dev/ttyUSB0", "c1")
    assert drained(queue) == ["a1", "b1", "c1", "a2", "a3"]
    assert len(queue) == 0


def test_surplus_connection_replaces_the_oldest_of_its_address() -> None:
    queue: FairQueue[str] = FairQueue(100, 2)
    assert [queue.add(f"10.0.0.1:{name}", name) for name in "abcd"] == [None, None, "a", "b"]
    assert queue.add("10.0.0.2:1", "other") is None


def test_when_all_places_are_taken_the_greatest_crowd_loses_its_oldest() -> None:
    queue: FairQueue[str] = FairQueue(4, 4)
    for name in "abc":
        queue.add("10.0.0.1:1", name)
    queue.add("10.0.0.2:1", "x")
    assert queue.add("10.0.0.3:1", "y") == "a"
    assert queue.add("10.0.0.3:2", "z") == "b"
    assert len(queue) == 4


def test_a_network_of_ipv6_counts_as_one_address() -> None:
    queue: FairQueue[str] = FairQueue(100, 1)
    assert queue.add("[2001:db8::1]:1", "a") is None
    assert queue.add("[2001:db8::2]:1", "b") == "a"


def test_closed_connection_takes_no_place() -> None:
    queue: FairQueue[str] = FairQueue(100, 1)
    queue.add("10.0.0.1:1", "a")
    queue.discard("10.0.0.1:1", "a")
    queue.discard("10.0.0.1:1", "a")
    assert queue.add("10.0.0.1:1", "b") is None
    assert drained(queue) == ["b"]
