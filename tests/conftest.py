"""Settings of all tests. Hypothesis tries the same examples each time, without a time limit: a
failure shall come from a change, not from chance or a busy machine. `pytest
--hypothesis-profile=default` looks for new ones. Some open a thousand connections: a shell allows
fewer files than the system does. Tests marked `soak` run in `make soak` alone. Those marked `sim`
need a firmware that was built from the present sources.
"""

import gc
import resource

import pytest
from hypothesis import settings

from gateway.errors import OncewayError
from hil.boards.built import check_built

settings.load_profile("ci")

_, _most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (_most, _most))


_SOAK_S = 3600
"""Seconds that a test of `make soak` may take, unless it says so itself."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("soak") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SOAK_S))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test of a simulated board if the firmware is older than its sources: pytest does not
    build, and the test would try a program of older sources.
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
    """Keep the tests themselves out of garbage collection, because they stay until the end."""
    gc.freeze()


@pytest.fixture(params=[5, pytest.param(1, marks=pytest.mark.soak)])
def step(request: pytest.FixtureRequest) -> int:
    """Return the step of a sweep over places: `make test` tries every fifth, `make soak` all."""
    return int(request.param)
