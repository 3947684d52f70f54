"""Blocking calls that may never return.

In: calls, each with the longest time to wait for it. Each call runs in a daemon thread of its own.
So a call that hangs occupies no thread of the pool, and does not keep the process alive.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress


class Patience:
    """Makes blocking calls in threads, one call at a time."""

    def __init__(self) -> None:
        self._last: asyncio.Future[None] | None = None

    async def wait(self, call: Callable[[], object], limit_s: float) -> None:
        """Make a call, and wait until it returns. Raises the error of the call, and TimeoutError
        after `limit_s` seconds. After a TimeoutError the call continues in its thread. The next
        call begins only after this call has returned, so that two calls never send a message at the
        same time.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + limit_s
        while (last := self._last) is not None and not last.done():
            await self._bounded(last, until, "the previous attempt has not ended")
        self._last = ended = loop.create_future()
        ended.add_done_callback(lambda future: future.exception())  # nobody may wait for it by then

        def settle(error: Exception | None) -> None:
            if error is None:
                ended.set_result(None)
            else:
                ended.set_exception(error)

        def work() -> None:
            error = None
            try:
                call()
            except Exception as found:
                error = found
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle, error)

        try:
            threading.Thread(target=work, name="patience", daemon=True).start()
        except RuntimeError as error:  # the system has no thread left
            settle(error)
        await self._bounded(ended, until, f"no answer in {limit_s:g} s")
        ended.result()

    @staticmethod
    async def _bounded(future: asyncio.Future[None], until: float, why: str) -> None:
        """Wait until a future is done. Its result and its error are ignored. Raises TimeoutError
        with the text `why` if the future is not done at `until`."""
        await asyncio.wait({future}, timeout=max(0.0, until - asyncio.get_running_loop().time()))
        if not future.done():
            raise TimeoutError(why)
