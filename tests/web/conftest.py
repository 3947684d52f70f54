"""One Chromium (Debian's) for all tests of the page, because its start takes as long as a test.
Each test has its own window, without cookies or storage of other tests.
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
    """Return whether to test each width in both light and dark colours. `make test` tests each
    width in only one of them.
    """
    return bool(request.param)
