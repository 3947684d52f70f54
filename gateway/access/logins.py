"""Checks of logins off the event loop: one password after the other, fairly.

In: orders of the broker, each a CONNECT whose login is to be checked. Out: the result of each,
handed to `answered` on the event loop. Questions for a hook (`hook.py`) have queues of their own,
each with up to MOST_AT_ONCE at a time, so a hook that hangs does not block users of the file.

A comparison takes a fifth of a second on a small machine, and 32 MiB of memory. So one comparison
runs at a time, and:

- addresses take turns, and the number of waiting checks of one address is bounded, so a flood from
  one address blocks no other address;
- after a few wrong passwords, an address must wait before it may try the same user again. After
  further wrong passwords, it must wait before it may try any user. Each wait is twice as long as
  the previous one, at most a minute, and until its end the answer is 0x9F;
- while an address must wait before it may try any user, passwords of users in the file are still
  compared: the address may belong to a proxy with other clients. For the same reason the hook is
  still asked, but only once in half a second for each address. A wrong password then gets the same
  answer at the same time as an unknown name, so the answer reveals nothing;
- after a correct login from an address, wrong passwords of other users at that address do not make
  this user wait, and this user's checks have a separate queue. Pairs of address and user outlive a
  restart (`trusted.py`);
- a password that was correct a moment ago is not checked here (`authentication.py`).
"""

import logging
from asyncio import AbstractEventLoop
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from threading import Thread
from typing import Any, NamedTuple

from gateway.access.rules import Ask, Refusal
from gateway.access.trusted import Trusted
from gateway.mqtt.reason import ReasonCode
from gateway.system.fair_queue import FairQueue
from gateway.system.jobs import Job
from gateway.system.log_throttle import LogThrottle
from gateway.system.logs import about
from gateway.system.usage import origin

log = logging.getLogger(__name__)

MOST_WAITING = 200
MOST_OF_ONE = 32
MOST_AT_ONCE = 8
"""Largest number of simultaneous calls of a hook, for trusted users and for all others each."""

ALIKE_S = 0.5
"""Delay of a refusal to an address that must wait, in seconds. A comparison takes less, so the
delay does not reveal whether a comparison was made.
"""

_BUSY = ReasonCode.SERVER_BUSY, "too many passwords are being compared"
_GONE = ReasonCode.NOT_AUTHORIZED, "the user was removed, or the password was changed"


class BackOff:
    """Waiting times after failures, by key. After more than `free` failures, each further failure
    doubles the wait, up to LONGEST_S.
    """

    LONGEST_S = 60.0
    FORGET_S = 600.0
    KEYS = 4096

    def __init__(self, free: int) -> None:
        self._free = free
        self._failed: dict[object, tuple[int, float]] = {}

    def wait_s(self, key: object, now: float) -> float:
        """Return the seconds that this key still has to wait, 0 for none."""
        return max(0.0, self._failed.get(key, (0, now))[1] - now)

    def fail(self, key: object, now: float) -> int:
        """Note a failure. Return the number of failures so far. The count begins again if no
        failure came for FORGET_S after the last wait.
        """
        count, until = self._failed.pop(key, (0, now))
        count = 1 if now > until + self.FORGET_S else count + 1
        wait = min(self.LONGEST_S, 2.0 ** min(count - self._free, 16)) if count > self._free else 0
        if len(self._failed) >= self.KEYS:
            del self._failed[next(iter(self._failed))]
        self._failed[key] = count, now + wait
        return count

    def succeed(self, key: object) -> None:
        self._failed.pop(key, None)


class Pace:
    """The limit of hook calls for addresses that must wait after wrong passwords: one call in
    ALIKE_S seconds for each address (`key`).
    """

    def __init__(self) -> None:
        self._next: dict[str, float] = {}

    def allows(self, key: str, now: float) -> bool:
        if now < self._next.get(key, now):
            return False
        if len(self._next) >= BackOff.KEYS:
            self._next.clear()
        self._next[key] = now + ALIKE_S
        return True


class _Alike(NamedTuple):
    """The refusal of a client whose address must wait: the same for a wrong name and a wrong
    password.
    """

    refusal: Refusal
    at: float
    """Time of the answer, by the event loop's clock."""


class _Threads(Executor):
    """An executor with one thread per call. The threads do not keep the process alive, because a
    hook may take a minute.
    """

    def submit(self, call: Callable[..., Any], /, *args: Any, **more: Any) -> Any:
        Thread(target=call, args=args, kwargs=more, name="password", daemon=True).start()


class _Line:
    """A queue of checks of one kind. at_once: largest number of checks in progress."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self.waiting: FairQueue[Ask] = FairQueue(MOST_WAITING, MOST_OF_ONE)
        self.under_way = 0
        """Number of checks in progress, or about to start."""


class Logins:
    """The checks of logins. answered: called for each login that was asked for, with None or the
    refusal. thread: executor for the checks. trusted: users who have logged in before.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        answered: Callable[[Ask, Refusal | None], None],
        thread: Executor | None = None,
        trusted: Trusted | None = None,
    ) -> None:
        self._loop = loop
        self._answered = answered
        self._thread = thread or _Threads()
        self._lines = {
            (asks_others, trusted): _Line(MOST_AT_ONCE if asks_others else 1)
            for asks_others in (False, True)
            for trusted in (False, True)
        }
        self._trusted = trusted or Trusted()
        self._users = BackOff(free=3)
        self._addresses = BackOff(free=20)
        self._pace = Pace()
        self._throttle = LogThrottle(loop.time)

    def ask(self, order: Ask) -> None:
        line = self._line(order)
        displaced = line.waiting.add(order.connection.peer.address, order)
        if displaced is not None:
            self._loop.call_soon(self._answered, displaced, _BUSY)
        if line.under_way < line.at_once:
            line.under_way += 1
            self._loop.call_soon(self._next, line)

    def _line(self, order: Ask) -> _Line:
        return self._lines[order.question.asks_others, _pair(order) in self._trusted]

    @property
    def jobs(self) -> list[Job]:
        """The job that saves correct logins for a restart."""
        return self._trusted.jobs

    def stop(self) -> None:
        """Save the correct logins, and stop all checks."""
        self._trusted.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _next(self, line: _Line) -> None:
        line.under_way -= 1
        while (order := line.waiting.pop()) is not None:
            refusal: Refusal | None
            alike = None
            try:
                alike = self._alike(order)
                refusal = self._refuses(order, alike)
                if refusal is None and order.connection.closing is None:
                    self._thread.submit(self._compare, order, line, alike)
                    line.under_way += 1
                    return
            except Exception:
                refusal = _failed(order)
            self._answer(order, refusal, alike)

    def _answer(self, order: Ask, refusal: Refusal | None, alike: _Alike | None) -> None:
        if alike is None or refusal is None:
            self._answered(order, refusal)
        else:
            delay = max(0.0, alike.at - self._loop.time())
            self._loop.call_later(delay, self._answered, order, refusal)

    def _alike(self, order: Ask) -> _Alike | None:
        """If the address must wait, return the refusal that a wrong name and a wrong password both
        get. Else return None.
        """
        pair, now = _pair(order), self._loop.time()
        wait = 0.0 if pair in self._trusted else self._addresses.wait_s(pair[0], now)
        return _Alike(_wait(pair[0], wait), now + ALIKE_S) if wait else None

    def _refuses(self, order: Ask, alike: _Alike | None) -> Refusal | None:
        pair, now, question = _pair(order), self._loop.time(), order.question
        wait = self._users.wait_s(pair, now)
        if alike is None:
            return _wait(pair[0], wait) if wait else None
        may_be_right = not wait and (
            question.listed or (question.asks_others and self._pace.allows(pair[0], now))
        )
        return None if may_be_right else alike.refusal

    def _compare(self, order: Ask, line: _Line, alike: _Alike | None) -> None:
        refusal: Refusal | None
        try:
            refusal = order.question.answer()
        except Exception:
            refusal = _failed(order)
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._compared, order, line, refusal, alike)

    def _compared(
        self, order: Ask, line: _Line, refusal: Refusal | None, alike: _Alike | None
    ) -> None:
        try:
            refusal = self._judge(order, refusal, alike)
        except Exception:
            refusal = _failed(order)
        self._answer(order, refusal, alike)
        self._next(line)

    def _judge(self, order: Ask, refusal: Refusal | None, alike: _Alike | None) -> Refusal | None:
        """Count the attempt as a success or a failure of its user and address. Return the reason
        why the client is refused, or None.
        """
        address, user = _pair(order)
        if refusal is None:
            self._users.succeed((address, user))
            self._trusted.add(address, user)
            if not order.question.holds():
                refusal = _GONE
        elif refusal[0] == ReasonCode.BAD_USER_NAME_OR_PASSWORD:
            now = self._loop.time()
            self._users.fail((address, user), now)
            if alike is not None:
                return alike.refusal
            failures = self._addresses.fail(address, now)
            logged = failures >= 4 and not failures & failures - 1  # 4, 8, 16 …
            if logged and self._throttle.has_room():
                log.warning(
                    "%s: %d wrong passwords: each further attempt waits longer",
                    address,
                    failures,
                    extra=about(address=address, reason="bad_user_name_or_password"),
                )
        return refusal


def _pair(order: Ask) -> tuple[str, str]:
    return origin(order.connection.peer.address), order.question.user


def _wait(address: str, wait: float) -> Refusal:
    text = f"too many wrong passwords from {address}, wait {wait:.0f} s"
    return ReasonCode.CONNECTION_RATE_EXCEEDED, text


def _failed(order: Ask) -> Refusal:
    """Log the exception in progress, and return the refusal for this client. The checks of other
    clients continue.
    """
    log.exception(
        "%s: refused after an internal error",
        order.connection.name,
        extra=about(**order.connection.about),
    )
    return ReasonCode.UNSPECIFIED_ERROR, "internal error"
