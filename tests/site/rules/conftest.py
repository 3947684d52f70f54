"""A site of three members on virtual time, for the tests of each rule."""

import pytest

from tests.site.rules.three import Site


@pytest.fixture
def site() -> Site:
    return Site()
