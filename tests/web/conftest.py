"""One Chromium for all tests of the page, Debian's: to start it takes as long as a test. Each test
has a window of its own, without state of the others.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        yield started
        await started.close()


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.soak)])
def every(request: pytest.FixtureRequest) -> bool:
    """Whether each width is tested in light and in dark; `make test` takes one of the two for each
    width.
    """
    return bool(request.param)
