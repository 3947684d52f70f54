"""`SyncPublisher`: a `Publisher` for programs without asyncio.

In: calls from any thread. Out: the same calls of a `Publisher`, in an event loop that runs in a
separate thread.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from onceway_publisher.publisher import Publisher

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _blocking(
    method: Callable[Concatenate[Publisher, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate["SyncPublisher", _P], _T]:
    def call(self: "SyncPublisher", /, *args: _P.args, **options: _P.kwargs) -> _T:
        return self._run(method(self._publisher, *args, **options))

    call.__doc__ = method.__doc__
    return call


def _like(
    method: Callable[Concatenate[Publisher, _P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate["SyncPublisher", _P], None]]:
    return lambda own: own


class SyncPublisher:
    """A publisher for programs without asyncio: a context manager. Options, methods and errors are
    those of `Publisher`.
    """

    @_like(Publisher.__init__)
    def __init__(self, *args: Any, **options: Any) -> None:
        self._publisher = Publisher(*args, **options)

    publish = _blocking(Publisher.publish)
    flush = _blocking(Publisher.flush)

    @property
    def waiting(self) -> int:
        """Number of messages that the gateway does not have yet."""
        return self._publisher.waiting

    @property
    def problem(self) -> str | None:
        """Present reason why messages wait, or None."""
        return self._publisher.problem

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="onceway-publisher", daemon=True
        )
        self._thread.start()
        try:
            self._run(self._publisher.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._run(self._publisher.__aexit__(kind, error, trace))
        finally:
            self._stop()

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
