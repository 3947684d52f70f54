"""Who a client is: by certificate, by password, or anonymous.

In: a CONNECT. Out: a user name, or a reason to refuse. Passwords are compared with memory-hard
hashes on another thread; a password that was right is remembered as a keyed hash in memory, so that
a thousand clients coming back at once do not wait for each other.
"""

import hashlib
import hmac
import secrets
import threading
import time
from functools import partial
from math import inf

from gateway.access.hook import WRONG, AuthHook
from gateway.access.identifiers import Identifiers
from gateway.access.users import NOBODY, Users
from gateway.broker.access import ByAcl, Caller, Question, Refusal
from gateway.config import AccessSection, ListenerSection
from gateway.mqtt.packets import Connect
from gateway.mqtt.reason import ReasonCode

_REMEMBERED = 4096
_ONE_AT_A_TIME = threading.Lock()
"""A comparison takes 32 MiB."""


class Passwords:
    """Right passwords, quickly and slowly. Replaced as a whole when the file of users changes."""

    def __init__(self, users: Users, section: AccessSection) -> None:
        self._users = users
        self._key = secrets.token_bytes(32)
        self._right: dict[str, tuple[bytes, float]] = {}
        """By user: the mark of the password, and until when it is remembered."""
        self._hook = AuthHook(section) if section.has_hook else None
        self._hook_remember_s = section.hook_remember_s

    def changed(self, later: "Passwords") -> set[str]:
        """Names that are gone later, or have another password; of those in the file."""
        others = later._users.hashes
        return {name for name, item in self._users.hashes.items() if others.get(name) != item}

    def agrees(self, earlier: "Passwords", name: str) -> bool:
        """Whether a user has still the password of then."""
        return self._users.hashes.get(name) == earlier._users.hashes.get(name)

    def fingerprint(self, name: str) -> str:
        """Another text when a user has another password; it tells nothing of the password."""
        return hashlib.sha256(str(self._users.hashes.get(name)).encode()).hexdigest()

    def has(self, name: str) -> bool:
        """Whether there is a user of this name."""
        return name in self._users.hashes

    @property
    def asked_for(self) -> bool:
        """Whether there is any user."""
        return bool(self._users.hashes) or self._hook is not None

    def asks_hook(self, name: str) -> bool:
        """Whether the hook is asked about a user: one who is not in the file."""
        return name not in self._users.hashes and self._hook is not None

    def known(self, name: str, password: bytes) -> bool:
        """Whether this password was right before. Quick."""
        mark, until = self._right.get(name, (b"", inf))
        return hmac.compare_digest(mark, self._mark(password)) and time.monotonic() < until

    def wrong(
        self, name: str, password: bytes, client: str, address: str, listener: str
    ) -> Refusal | None:
        """Compare with the hash, or ask the hook about a user who has none. Slow on purpose; on
        any thread. client, address, listener: for the hook.
        """
        until = inf
        if self._hook is not None and self.asks_hook(name):
            until = time.monotonic() + self._hook_remember_s
            refusal = self._hook.refuses(name, password, client, address, listener)
            if refusal is not None:
                return refusal
        else:
            with _ONE_AT_A_TIME:
                fits = self._users.hashes.get(name, NOBODY).fits(password)
            if not fits:
                return WRONG
        if len(self._right) >= _REMEMBERED:
            self._right.clear()
        self._right[name] = self._mark(password), until
        return None

    def _mark(self, password: bytes) -> bytes:
        return hashlib.blake2b(password, key=self._key).digest()


class ListenerAccess(ByAcl):
    """The rules of a network listener, as its section says them. Where there are no users at all, a
    user name that an anonymous client gives means nothing.
    """

    def __init__(
        self, section: ListenerSection, passwords: Passwords, identifiers: Identifiers
    ) -> None:
        self.section = section
        self.passwords = passwords
        self.identifiers = identifiers

    def identifier(self, caller: Caller, wanted: str) -> str | Refusal:
        return self.identifiers.choose(caller.user, wanted)

    def may_identify(self, caller: Caller) -> bool:
        """A board's name is no word that anybody may give, unless a section says so."""
        if self.identifiers.is_board(caller.client):
            return caller.acl.named_to_identify(caller.user, caller.client)
        return super().may_identify(caller)

    @property
    def takes_anonymous(self) -> bool:
        """Whether clients without a user name are let in: as the section says, or by default the
        programs of this machine as long as there are no users.
        """
        wanted = self.section.anonymous
        return self.section.is_local and not self.passwords.asked_for if wanted is None else wanted

    @property
    def takes_nobody(self) -> bool:
        """Whether there is no way in."""
        return not (
            self.takes_anonymous or self.passwords.asked_for or self.section.knows_certificates
        )

    def refuses_connect(self, caller: Caller, packet: Connect) -> Refusal | Question | None:
        certified = caller.peer.certificate_name
        if certified is not None:
            if packet.username not in (None, certified):
                return (
                    ReasonCode.BAD_USER_NAME_OR_PASSWORD,
                    "the user name is not the one in the certificate",
                )
            caller.user = certified
            return None
        name, password = packet.username, packet.password or b""
        if name is None or not self.passwords.asked_for:
            if self.takes_anonymous:
                return None
            why = (
                "there are no users yet"
                if not self.passwords.asked_for
                else "give a user name and a password"
            )
            return (
                ReasonCode.NOT_AUTHORIZED,
                f"the listener {self.section.name} takes no anonymous clients, {why}",
            )
        if self.passwords.known(name, password):
            caller.user = name
            return None
        asked = self.passwords
        return Question(
            name,
            partial(
                asked.wrong, name, password, caller.client, caller.peer.address, self.section.name
            ),
            lambda: self.passwords.agrees(asked, name),
            asks_others=asked.asks_hook(name),
        )

    def holds(self, caller: Caller) -> bool:
        """Whether an anonymous connection that was let in would be let in again."""
        return self.takes_anonymous or not caller.let_in or caller.user is not None
