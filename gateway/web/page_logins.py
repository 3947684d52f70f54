"""Logins of the page: user name and password first, then the token in a cookie.

In: user name, password and address; later tokens. Out: sessions, or reasons of refusal. A session
ends when its user is removed or gets another password, after half a day without a request, and
after a week. Passwords are checked on a thread with a short queue, and an address with wrong
passwords has to wait, as at the listeners (`gateway/access/logins.py`). But if a user has logged in
from an address before, wrong passwords of other users at this address do not make the user wait.
Only hashes of tokens are stored, in memory and in a file, so that users stay logged in across a
restart.
"""

import asyncio
import hashlib
import json
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from gateway.access.authentication import Passwords
from gateway.access.logins import ALIKE_S, BackOff, Pace
from gateway.access.trusted import Trusted
from gateway.config import OWN_NAMES
from gateway.mqtt.errors import quote
from gateway.mqtt.reason import ReasonCode
from gateway.system.jobs import Job, SavedFile
from gateway.system.late_file import LateFile
from gateway.system.log_throttle import LogThrottle
from gateway.system.usage import origin

log = logging.getLogger(__name__)

MOST_SESSIONS = 256
MOST_OF_ONE = 16
"""Largest number of sessions of one user. A further session ends the oldest one."""
MOST_WAITING = 8
IDLE_S = 12 * 3600.0
LONGEST_S = 7 * 24 * 3600.0
KEEP_S = 600.0
"""A request writes the sessions' last use to the file only if the last write is more than this many
seconds ago. Logins and logouts are written at once.
"""
LONGEST_NAME = 256
LONGEST_PASSWORD = 1024


@dataclass(slots=True)
class PageSession:
    """A login of one user. csrf: the token that a request for a change must contain."""

    user: str
    operator: bool
    csrf: str = field(repr=False)
    passwords: Passwords = field(repr=False)
    begun: float
    seen: float


class PageLogins:
    """The sessions of the page. passwords: returns the passwords in force. operators, viewers:
    shell patterns of the users who may change something, and of the users who may only look. file:
    keeps the sessions over a restart.
    """

    def __init__(
        self,
        passwords: Callable[[], Passwords],
        operators: Collection[str],
        file: Path | None = None,
        viewers: Collection[str] = ("*",),
    ) -> None:
        self._late: LateFile | None = None
        self._kept = float("-inf")
        self._passwords = passwords
        self._operators = operators
        self._viewers = viewers
        self._sessions: dict[bytes, PageSession] = {}
        """Sessions by the token's hash, newest last."""
        self._users = BackOff(free=3)
        self._addresses = BackOff(free=20)
        self._pace = Pace()
        self._thread = ThreadPoolExecutor(1, "page-passwords")
        self._throttle = LogThrottle(time.monotonic)
        self._waiting = {False: 0, True: 0}
        """Number of password checks that run or wait. True: for users who are trusted at their
        address; False: for all other users.
        """
        self._trusted = Trusted(file.with_name("page-trusted.json") if file else None)
        if file is not None:
            self._recall(file)
            saved = SavedFile(file, "the list of logins to the page", 0o600)
            self._late = LateFile(saved, self._text, 0)

    async def login(self, user: str, password: str, address: str) -> str | tuple[int, str]:
        """Log a user in. Return the token of the login, or an HTTP status and a text for the user.
        address: IP address of the browser.
        """
        loop = asyncio.get_running_loop()
        passwords = self._passwords()
        if not passwords.asked_for:
            return 403, "There are no users yet. On the gateway: sudo onceway user add NAME"
        fits = 0 < len(user) <= LONGEST_NAME and len(password) <= LONGEST_PASSWORD
        if not fits or user.startswith(OWN_NAMES):
            return 403, "User name or password is wrong."
        address = origin(f"[{address}]:0" if ":" in address else address)
        trusted = (address, user) in self._trusted
        if trusted and passwords.known(user, password.encode()):
            return self._let_in(user, address, passwords)
        begun, wait = loop.time(), self._users.wait_s((address, user), loop.time())
        others = 0.0 if trusted else self._addresses.wait_s(address, begun)
        alike = 429, f"Too many wrong passwords. Wait {others or wait:.0f} s."
        if wait or (others and not self._may_be_right(passwords, user, address)):
            await asyncio.sleep(ALIKE_S if others else 0)
            return alike
        if self._waiting[trusted] >= MOST_WAITING:
            return 503, "Too many people are logging in. Try again in a moment."
        self._waiting[trusted] += 1
        try:
            refusal = await loop.run_in_executor(
                self._thread, passwords.wrong, user, password.encode(), "page", address, "page"
            )
        finally:
            self._waiting[trusted] -= 1
        if refusal is not None:
            if refusal[0] != ReasonCode.BAD_USER_NAME_OR_PASSWORD:
                return (
                    503,
                    "Your password cannot be checked now. Try again later.",
                )
            now = loop.time()
            self._users.fail((address, user), now)
            if others:  # no answer tells which names exist
                await asyncio.sleep(begun + ALIKE_S - now)
                return alike
            failures = self._addresses.fail(address, now)
            logged = failures >= 4 and not failures & failures - 1
            if logged and self._throttle.has_room():
                log.warning("page: %s: %d wrong passwords", address, failures)
            return 403, "User name or password is wrong."
        return self._let_in(user, address, passwords)

    def _may_be_right(self, passwords: Passwords, user: str, address: str) -> bool:
        """Whether a user's password is checked although the address must wait."""
        now = asyncio.get_running_loop().time()
        return passwords.has(user) or (
            passwords.asks_hook(user) and self._pace.allows(address, now)
        )

    def _let_in(self, user: str, address: str, passwords: Passwords) -> str | tuple[int, str]:
        """Begin a session for a user whose password was right, and return its token. Return a
        refusal if the user has no role on the page, or if there is no room for another session.
        """
        self._users.succeed((address, user))
        self._trusted.add(address, user)
        if not self._may_look(user):
            return 403, f"{user} is neither in `operators` nor in `viewers` of [page]."
        if self._is_full(user):
            return 503, "Too many users are logged in. Try again later."
        log.info("page: %s has logged in from %s", quote(user), address)
        return self._open(user, passwords, asyncio.get_running_loop().time())

    def session(self, token: str | None) -> PageSession | None:
        """Return the session of a token, or None if the token is unknown or its session has
        ended.
        """
        key = _hash(token or "")
        found = self._sessions.get(key)
        if found is None:
            return None
        now = asyncio.get_running_loop().time()
        late = now - found.seen > IDLE_S or now - found.begun > LONGEST_S
        if late or not self._passwords().agrees(found.passwords, found.user):
            del self._sessions[key]
            return None
        found.seen = now
        if now - self._kept > KEEP_S:
            self._keep()
        return found

    def logout(self, token: str | None) -> None:
        if self._sessions.pop(_hash(token or ""), None) is not None:
            self._keep()

    @property
    def jobs(self) -> list[Job]:
        """The jobs that keep logins over a restart."""
        own = [] if self._late is None else [self._late.saved.job]
        return [*own, *self._trusted.jobs]

    def close(self) -> None:
        self._trusted.close()
        if self._late is not None:
            self._late.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _open(self, user: str, passwords: Passwords, now: float) -> str:
        token = secrets.token_urlsafe(32)
        csrf = secrets.token_urlsafe(32)
        operator = self._is_operator(user)
        mine = [key for key, one in self._sessions.items() if one.user == user]
        if len(mine) >= MOST_OF_ONE:
            del self._sessions[mine[0]]
        elif len(self._sessions) >= MOST_SESSIONS:
            del self._sessions[self._least()]
        self._sessions[_hash(token)] = PageSession(user, operator, csrf, passwords, now, now)
        self._keep()
        return token

    def _least(self) -> bytes:
        """Return the key of the session that ends to make room: the oldest session of the viewer
        with the most sessions, or the oldest of all if only operators are logged in.
        """
        count = Counter(one.user for one in self._sessions.values() if not one.operator)
        if not count:
            return next(iter(self._sessions))
        [(most, _)] = count.most_common(1)
        return next(key for key, one in self._sessions.items() if one.user == most)

    def _is_full(self, user: str) -> bool:
        """Whether the user is a viewer who cannot log in, because operators have all sessions."""
        return (
            not self._is_operator(user)
            and len(self._sessions) >= MOST_SESSIONS
            and all(one.operator for one in self._sessions.values())
        )

    def _is_operator(self, user: str) -> bool:
        return any(fnmatchcase(user, pattern) for pattern in self._operators)

    def _may_look(self, user: str) -> bool:
        return self._is_operator(user) or any(fnmatchcase(user, item) for item in self._viewers)

    def _keep(self) -> None:
        """Have the sessions written to the file. Logins are rare, and the file is small."""
        self._kept = asyncio.get_running_loop().time()
        if self._late is not None:
            self._late.changed()

    def _text(self) -> str:
        now, wall = asyncio.get_running_loop().time(), time.time()
        rows = {
            key.hex(): {
                "user": one.user,
                "csrf": one.csrf,
                "password": one.passwords.fingerprint(one.user),
                "begun": wall - (now - one.begun),
                "seen": wall - (now - one.seen),
            }
            for key, one in self._sessions.items()
        }
        return json.dumps(rows)

    def _recall(self, file: Path) -> None:
        """Load the saved sessions of users whose password is unchanged and who may still see the
        page.
        """
        now, wall, passwords = asyncio.get_running_loop().time(), time.time(), self._passwords()
        try:
            for key, row in json.loads(file.read_text()).items():
                user = str(row["user"])
                if row["password"] != passwords.fingerprint(user) or not self._may_look(user):
                    continue
                begun, seen = (now - max(0.0, wall - float(row[at])) for at in ("begun", "seen"))
                self._sessions[bytes.fromhex(key)] = PageSession(
                    user, self._is_operator(user), str(row["csrf"]), passwords, begun, seen
                )
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            log.error("%s: cannot be read (%s): users have to log in again", file, error)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
