"""TCP connections to a name, by Happy Eyeballs (RFC 8305).

In: host, port and a deadline. Out: a connected socket. A name may have several addresses, and some
addresses may be silent. So the next address is tried after DELAY_S while the earlier attempts
continue, and the first connection wins. IPv6 and IPv4 addresses alternate. If the name has several
addresses, an address that refuses is logged with its reason, and a silent one only if no address
connects.

The system's name lookup has no timeout. So each name is looked up in a thread of its own: a silent
name server blocks neither the event loop nor the thread pool.
"""

import asyncio
import errno
import logging
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from gateway.system.log_throttle import LogThrottle

log = logging.getLogger(__name__)

DELAY_S = 0.25
"""Seconds until the next address is tried in parallel (RFC 8305, Connection Attempt Delay)."""
_LAST_S = 3.0
"""Seconds until the next address is tried, if only addresses in `last` are untried (`connect`)."""
_throttle = LogThrottle(time.monotonic)
_lookups: dict[tuple[str, int], Future[list[Any]]] = {}
_lock = threading.Lock()
"""Guards `_lookups` and `_throttle`: several threads dial at once."""


def connect(host: str, port: int, until: float, last: Sequence[str] = ()) -> socket.socket:
    """Return a connected, non-blocking socket. Blocks the calling thread, which may be any thread.
    until: deadline on the clock of `time.monotonic`. last: addresses to try after all other
    addresses, in this order. Raises OSError if no address connects, and TimeoutError if the name
    server or every address is silent.
    """
    return _Race(host, _addresses(host, port, until), last).run(until)


async def connected(
    host: str, port: int, within_s: float, last: Sequence[str] = ()
) -> socket.socket:
    """Call `connect` in a thread, so that the event loop continues, and return its socket. host,
    port, last: as for `connect`. within_s: timeout in seconds.
    """
    loop, until = asyncio.get_running_loop(), time.monotonic() + within_s
    wanted: asyncio.Future[socket.socket] = loop.create_future()

    def settle(found: socket.socket | Exception) -> None:
        if isinstance(found, Exception):
            if not wanted.done():
                wanted.set_exception(found)
        elif wanted.done():
            found.close()
        else:
            wanted.set_result(found)

    def work() -> None:
        found: socket.socket | Exception
        try:
            found = connect(host, port, until, last)
        except Exception as error:
            found = error
        try:
            loop.call_soon_threadsafe(settle, found)
        except RuntimeError:  # the loop is closed
            if isinstance(found, socket.socket):
                found.close()

    _start(threading.Thread(target=work, name="dial", daemon=True))
    return await wanted


def _addresses(host: str, port: int, until: float) -> list[Any]:
    """Return the results of `socket.getaddrinfo`, at least one. Concurrent callers share one
    lookup. until: monotonic time, in seconds, at which TimeoutError is raised.
    """
    key = host, port
    with _lock:
        lookup = _lookups.get(key)
        if lookup is None:
            lookup = Future()
            thread = threading.Thread(
                target=_look_up, args=(key, lookup), name="lookup", daemon=True
            )
            _start(thread)
            _lookups[key] = lookup
    try:
        return lookup.result(max(0.0, until - time.monotonic()))
    except TimeoutError:
        raise TimeoutError(f"the name server does not answer for {host}") from None


def _start(thread: threading.Thread) -> None:
    """Start a thread. Raises OSError if the system has none left."""
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from error


def _look_up(key: tuple[str, int], lookup: Future[list[Any]]) -> None:
    found: list[Any] | Exception
    try:
        found = socket.getaddrinfo(*key, type=socket.SOCK_STREAM)
    except Exception as error:
        found = error
    with _lock:
        del _lookups[key]  # before the result is known: a later caller asks again
    if isinstance(found, Exception):
        lookup.set_exception(found)
    else:
        lookup.set_result(found)


class _Race:
    """Attempts to connect to the addresses of one name. found: results of `socket.getaddrinfo`.
    last: addresses to try after all other addresses.
    """

    def __init__(self, host: str, found: list[Any], last: Sequence[str]) -> None:
        self._host = host
        self._last = {address: number for number, address in enumerate(last, 1)}
        rank = self._last.get
        self._waiting = deque(sorted(_alternating(found), key=lambda item: rank(item[4][0], 0)))
        self._several = len(found) > 1
        self._open = selectors.DefaultSelector()
        """Attempts in progress: each socket with its address."""
        self._failed: list[tuple[str, int]] = []
        """Failed addresses with their error numbers."""

    def run(self, until: float) -> socket.socket:
        """Try the addresses, and return the first socket that connects. Raises OSError if all fail,
        or if none has connected by `until`."""
        next_at = now = time.monotonic()
        try:
            while (self._waiting or self._open.get_map()) and now < until:
                if self._waiting and (now >= next_at or not self._open.get_map()):
                    if (won := self._begin()) is not None:
                        return won
                    next_at = now + (_LAST_S if self._only_last() else DELAY_S)
                    continue
                wait = min(next_at, until) if self._waiting else until
                for key, _ in self._open.select(max(0.0, wait - now)):
                    if (won := self._ended(key)) is not None:
                        return won
                    next_at = now  # RFC 8305: after a failure the next one is tried at once
                now = time.monotonic()
            raise self._error()
        finally:
            self._close()

    def _only_last(self) -> bool:
        """Whether all untried addresses are in `last`."""
        return bool(self._waiting) and self._waiting[0][4][0] in self._last

    def _begin(self) -> socket.socket | None:
        """Begin to connect to the next address. Return the socket if it is connected at once, else
        None.
        """
        family, kind, protocol, _, address = self._waiting.popleft()
        try:
            found = socket.socket(family, kind, protocol)
        except OSError as error:  # no IPv6, for example
            self._fail(address[0], error.errno or errno.EAFNOSUPPORT)
            return None
        try:
            found.setblocking(False)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            number = found.connect_ex(address)
        except Exception:
            found.close()
            raise
        if number == errno.EINPROGRESS:
            self._open.register(found, selectors.EVENT_WRITE, address[0])
        elif number:
            found.close()
            self._fail(address[0], number)
        return None if number else found

    def _ended(self, key: selectors.SelectorKey) -> socket.socket | None:
        """Handle the end of an attempt. Return its socket if it is connected, else None."""
        found = key.fileobj
        assert isinstance(found, socket.socket)  # noqa: S101 - registered above
        self._open.unregister(found)
        number = found.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not number:
            return found
        found.close()
        self._fail(key.data, number)
        return None

    def _fail(self, address: str, number: int) -> None:
        """Record that an address has failed. If the name has several addresses, log the failure;
        otherwise the caller logs it.
        """
        self._failed.append((address, number))
        self._tell(address, os.strerror(number))

    def _tell(self, address: str, why: str) -> None:
        if not self._several:
            return
        with _lock:
            allowed = _throttle.allows(f"{self._host} {address} {why}")
        if allowed:
            log.warning("no connection to %s at %s: %s", self._host, address, why)

    def _error(self) -> OSError:
        """Return the error to raise because no address of the name has accepted a connection."""
        silent = [key.data for key in self._open.get_map().values()]
        for address in silent:
            self._tell(address, "no answer")
        if not self._failed:
            return TimeoutError("no answer")
        if not self._several:
            number = self._failed[0][1]
            return OSError(number, os.strerror(number))
        text = [f"{address}: {os.strerror(number)}" for address, number in self._failed]
        text += [f"{address}: no answer" for address in silent]
        return OSError(self._failed[0][1], "; ".join(text))

    def _close(self) -> None:
        for key in list(self._open.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)  # noqa: S101 - registered above
            key.fileobj.close()
        self._open.close()


def _alternating(found: list[Any]) -> list[Any]:
    """Return results of `socket.getaddrinfo` in an order in which IPv6 and IPv4 alternate. Within
    each family, the order stays.
    """
    first = [item for item in found if item[0] == found[0][0]]
    others = [item for item in found if item[0] != found[0][0]]
    most = max(len(first), len(others))
    turns = [group[at] for at in range(most) for group in (first, others) if at < len(group)]
    return turns
