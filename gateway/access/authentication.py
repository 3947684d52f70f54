"""Authentication of a client: by certificate, by password, or anonymous.

In: a CONNECT. Out: a user name, or a reason to refuse. Passwords are compared with memory-hard
hashes on another thread. A correct password is remembered as a keyed hash in memory, so that a
thousand clients that reconnect at the same time do not wait for each other.
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
from gateway.access.rules import ByAcl, Caller, Refusal, SlowCheck
from gateway.access.users import NOBODY, Users
from gateway.config import OWN_NAMES, AccessSection, ListenerSection
from gateway.mqtt.packets import Connect
from gateway.mqtt.reason import ReasonCode

_REMEMBERED = 4096
_HOOK_KEYS = "command", "url", "hook_remember_s"
_ONE_AT_A_TIME = threading.Lock()
"""Lock for comparisons of passwords: one at a time, because each takes 32 MiB of memory."""


class Passwords:
    """Checks of passwords. A reload of the configuration creates a new object. earlier: the object
    before the reload. A password that `earlier` has found correct stays remembered if the user is
    still checked in the same way.
    """

    def __init__(
        self, users: Users, section: AccessSection, earlier: "Passwords | None" = None
    ) -> None:
        self._users = users
        self._section = section
        self._key: bytes = earlier._key if earlier is not None else secrets.token_bytes(32)
        self._right = self._remembered(earlier) if earlier is not None else {}
        """Keyed hash of each user's correct password, and the time (`time.monotonic`) until which
        the password is remembered.
        """
        self._hook = AuthHook(section) if section.has_hook else None
        self._hook_remember_s = section.hook_remember_s

    def changed(self, later: "Passwords") -> set[str]:
        """Return the names in the file that are missing in `later`, or have another password in
        it.
        """
        others = later._users.hashes
        return {name for name, item in self._users.hashes.items() if others.get(name) != item}

    def _remembered(self, earlier: "Passwords") -> dict[str, tuple[bytes, float]]:
        """Return the passwords that `earlier` found correct, for users who are still checked in the
        same way: by an unchanged entry in the file, or by the same hook.
        """
        same_hook = all(
            getattr(self._section, key) == getattr(earlier._section, key) for key in _HOOK_KEYS
        )
        return {
            name: found
            for name, found in dict(earlier._right).items()
            if self.agrees(earlier, name) and (same_hook or name in self._users.hashes)
        }

    def agrees(self, earlier: "Passwords", name: str) -> bool:
        """Whether a user's entry in the file of users is the same as in `earlier`, or neither has
        an entry of this user.
        """
        return self._users.hashes.get(name) == earlier._users.hashes.get(name)

    def fingerprint(self, name: str) -> str:
        """Return a text that changes with the user's password, and does not reveal it."""
        return hashlib.sha256(str(self._users.hashes.get(name)).encode()).hexdigest()

    def has(self, name: str) -> bool:
        """Whether the file of users contains this name."""
        return name in self._users.hashes

    @property
    def asked_for(self) -> bool:
        """Whether any password can be checked: the file has users, or a hook is configured."""
        return bool(self._users.hashes) or self._hook is not None

    def asks_hook(self, name: str) -> bool:
        """Whether the hook decides about a user, because the file of users does not contain the
        name.
        """
        return name not in self._users.hashes and self._hook is not None

    def known(self, name: str, password: bytes) -> bool:
        """Whether this password of the user was correct before, and is still remembered. Fast
        enough for the event loop.
        """
        mark, until = self._right.get(name, (b"", inf))
        return hmac.compare_digest(mark, self._mark(password)) and time.monotonic() < until

    def wrong(
        self, name: str, password: bytes, client: str, address: str, listener: str
    ) -> Refusal | None:
        """Compare a password with the user's hash, or ask the hook if the file does not contain the
        user. Return a refusal, or None if the password is correct. Slow by design; may run on any
        thread. client, address, listener: passed to the hook.
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
    """The access rules of one network listener. section: its configuration. If there are no users
    and no hook, a client counts as anonymous, whatever user name it gives.
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
        """Whether a client may state the identities of its publications. A client with the name of
        a board may do so only if an `[[acl]]` section explicitly lets it.
        """
        if self.identifiers.is_board(caller.client):
            return caller.acl.named_to_identify(caller.user, caller.client)
        return super().may_identify(caller)

    @property
    def takes_anonymous(self) -> bool:
        """Whether clients without a user name are let in. By default, only programs of this machine
        are let in without a name, and only while there are no users and no hook.
        """
        wanted = self.section.anonymous
        return self.section.is_local and not self.passwords.asked_for if wanted is None else wanted

    @property
    def accepts_no_client(self) -> bool:
        """Whether no client can log in: the listener has no users, no hook and no client
        certificates, and accepts no anonymous clients.
        """
        return not (
            self.takes_anonymous or self.passwords.asked_for or self.section.knows_certificates
        )

    def refuses_connect(self, caller: Caller, packet: Connect) -> Refusal | SlowCheck | None:
        certified = caller.peer.certificate_name
        names = packet.client_id, packet.username, certified
        if any(name is not None and name.startswith(OWN_NAMES) for name in names):
            return ReasonCode.NOT_AUTHORIZED, "the name is reserved for the gateway's own clients"
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
                f"the listener {self.section.name} accepts no anonymous clients: {why}",
            )
        if self.passwords.known(name, password):
            caller.user = name
            return None
        asked = self.passwords
        return SlowCheck(
            name,
            partial(
                asked.wrong, name, password, caller.client, caller.peer.address, self.section.name
            ),
            lambda: self.passwords.agrees(asked, name),
            asks_others=asked.asks_hook(name),
            listed=asked.has(name),
        )

    def holds(self, caller: Caller) -> bool:
        """Whether this connection may stay. False for a client that was accepted without a user, if
        the listener no longer accepts anonymous clients.
        """
        return self.takes_anonymous or not caller.is_accepted or caller.user is not None
