"""100,000 clients move to another gateway at once (crowd.py)."""

import gc
import time
import tracemalloc

import pytest

from gateway.site.rules import ending
from gateway.site.rules.outbound_moves import AT_ONCE
from tests.site.crowd import Crowd, report
from tests.slowness import slowness

CPU_S = 20.0
"""Largest processor time for 100,000 clients, in seconds."""


@pytest.mark.parametrize("clients", [20_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_calls_are_bounded_by_windows_and_members_not_by_clients(clients: int) -> None:
    gc.collect()
    before = gc.get_threshold()
    gc.set_threshold(5000, 10, 1_000_000_000)  # as in gateway/runtime/garbage.py
    try:
        begin = time.process_time()
        crowd = Crowd(clients)
        crowd.run()
        seconds = time.process_time() - begin
    finally:
        gc.set_threshold(*before)
    print(report(crowd))
    assert crowd.here == clients
    # for each window and member: an Ask, a Take and an End
    assert crowd.calls <= 3 * crowd.windows * (len(crowd.names) - 1)
    assert crowd.holders["a"].most_giving <= AT_ONCE
    assert seconds < CPU_S * clients / 100_000 * slowness(), f"{seconds:.1f} s of CPU"


def test_memory_of_many_clients_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    # number of clients that are remembered, however many there are
    monkeypatch.setattr(ending, "REMEMBERED", 100)
    crowd = Crowd(3000)
    tracemalloc.start()
    try:
        begin, _ = tracemalloc.get_traced_memory()
        crowd.run()
        crowd.now += 2.0
        for name, member in crowd.members.items():
            crowd.holders[name].records.clear()
            member.advance(crowd.now)
        crowd.clients.clear()
        crowd._events.clear()
        gc.collect()
        end, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # tables that have grown keep their size
    assert end - begin < 200 * 3000, f"{end - begin:,} bytes are left"
    assert peak - begin < 4000 * 3000, f"{peak - begin:,} bytes at once"
