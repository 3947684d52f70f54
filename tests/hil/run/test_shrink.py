"""Shrinking a plan: the remaining faults make the run fail, and none of them can be left out."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from hil.bench.files import load
from hil.bench.plan import plan
from hil.run.shrink import part, shrink


@given(count=st.integers(0, 40), data=st.data())
def test_shrinking_leaves_exactly_the_needed_items(count: int, data: st.DataObject) -> None:
    needed = data.draw(st.sets(st.integers(0, count - 1))) if count else set()
    assert shrink(range(count), lambda left: needed <= set(left)) == sorted(needed)


@given(count=st.integers(1, 30), data=st.data())
def test_any_one_of_some_is_enough(count: int, data: st.DataObject) -> None:
    enough = data.draw(st.sets(st.integers(0, count - 1), min_size=1))
    [left] = shrink(range(count), lambda left: bool(enough & set(left)))
    assert left in enough


def test_few_tries_for_one_fault_among_many() -> None:
    tries = []

    def fails(left: Sequence[int]) -> bool:
        tries.append(left)
        return 77 in left

    assert shrink(range(100), fails) == [77]
    assert len(tries) < 30


def test_commands_go_when_none_of_them_matters() -> None:
    bench = load("commands")
    made = plan(bench)
    assert (made.breaks, made.commands("uno-1")) == (len(made.faults) - 12, 6)
    one = next(fault for fault in made.faults if fault.id == "uno-1/command-3")
    kill = next(fault for fault in made.faults if fault.kind == "gateway-kill")
    smaller, left = part(bench, made, [kill])
    assert (smaller.commands, left.commands("uno-1"), left.breaks) == (None, 0, 1)
    smaller, left = part(bench, made, [kill, one])
    assert smaller.commands == bench.commands
    assert (left.commands("uno-1"), left.commands("uno-2"), left.breaks) == (1, 0, 1)


def test_a_part_of_a_run_has_only_the_weather_that_is_asked_for() -> None:
    bench = load("demo")
    made = plan(bench)
    kills = [fault for fault in made.faults if fault.kind == "gateway-kill"]
    smaller, left = part(bench, made, kills[:1])
    assert [kind.kind for kind in smaller.fault] == ["gateway-kill"]
    assert left.faults == (kills[0],)
    assert left.readings == made.readings
