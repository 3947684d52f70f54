"""Settings for all tests.

Hypothesis tries the same examples each time, and has no time limit. So a test fails because of a
change, and not by chance or on a busy machine. `pytest --hypothesis-profile=default` tries new
examples. The limit of open files is raised, because some tests open a thousand connections. Tests
with the mark `soak` run only in `make soak`, which also runs the cases that the mark `few` leaves
out. Tests with the mark `sim` need a firmware that is built from the present sources. The end of a
run names the tests that took most processor time.
"""

import gc
import os
import resource
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from gateway.errors import OncewayError
from hil.boards.built import check_built

settings.load_profile("ci")

_, _most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (_most, _most))


_SOAK_S = 3600
"""Time limit in seconds of a test with the mark `soak`, if it has no mark `timeout`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for rest in left_out(items):
        rest.add_marker(pytest.mark.soak)
    for item in items:
        if item.get_closest_marker("soak") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SOAK_S))


def left_out(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the cases that the mark `few(kept)` leaves out. It keeps the first one, the last one,
    and others at equal distances.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("few") and not item.get_closest_marker("soak"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for case in cases.values():
        (kept,) = case[0].get_closest_marker("few").args
        distance = (len(case) - 1) / max(kept - 1, 1)
        places = {round(number * distance) for number in range(kept)}
        yield from (item for place, item in enumerate(case) if place not in places)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test of a simulated board if the firmware is older than its sources. pytest itself
    does not build the firmware.
    """
    stale = ""
    if item.get_closest_marker("sim"):
        try:
            check_built()
        except OncewayError as error:
            stale = str(error)
    if stale:
        pytest.fail(stale, pytrace=False)


def pytest_collection_finish() -> None:
    """Exclude the test code from garbage collection. The test code stays in memory until the end in
    any case.
    """
    gc.freeze()


_MOST = 15
"""Number of tests that the end of a run names, because they took most processor time."""
_taken: dict[str, float] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Count the processor time of each test, with that of its children that have ended."""
    before = sum(os.times()[:4])
    result = yield
    _taken[item.nodeid] = sum(os.times()[:4]) - before
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    most = sorted(_taken, key=lambda name: _taken[name])[: -_MOST - 1 : -1]
    lines = [f"{_taken[name]:6.1f} s {name}" for name in most if _taken[name] >= 1.0]
    if lines:
        terminalreporter.write_line("\n".join(["most processor time:", *lines]))


@pytest.fixture(params=[5, pytest.param(1, marks=pytest.mark.soak)])
def step(request: pytest.FixtureRequest) -> int:
    """Return the distance between the places that a test tries: `make test` tries every fifth
    place, and `make soak` tries all.
    """
    return int(request.param)
