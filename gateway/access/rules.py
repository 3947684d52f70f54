"""Access rules: who may connect, publish, subscribe and receive.

Each check returns a reason to refuse, or None. `Access` has the rules of one listener, and
identifies the client at CONNECT. `Acl` defines what each client may do. There is one `Acl` for the
whole broker, because messages for disconnected clients, which have no listener, are checked too.

Rules of an ACL: without any section, every user may do everything. With sections, a client may do
what any section that names its user and client identifier allows, unless another such section
denies it. If no section allows anything, everything that is not denied is allowed. `%u` and `%c` in
a filter stand for the user name and the client identifier. Only the broker publishes to `$SYS…`
(MQTT 5, section 4.7.2), and only the gateway publishes to DEVICES_TOPIC, because the centre trusts
its content. A message or will in which a mosquitto bridge reports its state is acknowledged and
dropped.

A board has no user. Only sections that name boards apply to it (`boards = true`, or the user "");
without such sections, a board may do everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from gateway.access.peer import Peer
from gateway.config import DEVICES_TOPIC, INSIDE, AclSection
from gateway.mqtt.packets import Connect
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.topics import SYSTEM_PREFIX, covers, split_shared, topic_matches

_BRIDGE_STATE = f"{SYSTEM_PREFIX}/broker/connection/"  # topics of a mosquitto bridge's state
_KNOWN = 16_384
_KNOWN_LENGTH = 256
_FOUND = 65_536
"""Largest number of cached filters in which `%u` and `%c` are replaced."""

Refusal = tuple[ReasonCode, str]
"""Reason code for the client, and text for the log and the Reason String."""


@dataclass(frozen=True, slots=True)
class SlowCheck:
    """A slow check of a CONNECT, such as the check of a password against a memory-hard hash. The
    check runs off the event loop. user: user name that the client has if it is let in. answer:
    returns None to let the client in; called once, on any thread. holds: returns whether such an
    answer is still valid; called on the event loop. asks_others: whether the answer comes from
    another service, which may be slow. listed: whether the gateway's own file has the user.
    """

    user: str
    answer: Callable[[], Refusal | None]
    holds: Callable[[], bool] = lambda: True
    asks_others: bool = False
    listed: bool = False


class Caller(Protocol):
    """A connection, as far as the access rules need it."""

    user: str | None
    """The user name, None for anonymous clients and devices."""

    @property
    def client(self) -> str: ...

    @property
    def peer(self) -> Peer: ...

    @property
    def acl(self) -> Acl: ...

    @property
    def is_accepted(self) -> bool:
        """Whether the caller's CONNECT was accepted."""


class WaitingCaller(Caller, Protocol):
    """A caller whose CONNECT waits for the answer to a check."""

    @property
    def closing(self) -> str | None: ...

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> dict[str, str | None]: ...


@dataclass(frozen=True, slots=True)
class Ask:
    """A CONNECT whose check runs off the event loop."""

    connection: WaitingCaller
    packet: Connect
    question: SlowCheck


class Access(Protocol):
    """Access rules of one listener. `refuses_connect` sets `user` of callers that it lets in."""

    def refuses_connect(self, caller: Caller, packet: Connect) -> Refusal | SlowCheck | None: ...

    def identifier(self, caller: Caller, wanted: str) -> str | Refusal:
        """Return the client identifier of a caller that was let in, or a refusal. wanted: the
        identifier in its CONNECT. If `wanted` and the result are "", the broker chooses one.
        """

    def holds(self, caller: Caller) -> bool:
        """Whether a connection that was let in would be let in again now."""

    def refuses_publish(self, caller: Caller, topic: str) -> ReasonCode | None: ...

    def refuses_subscribe(self, caller: Caller, topic_filter: str) -> ReasonCode | None: ...

    def may_identify(self, caller: Caller) -> bool:
        """Whether a client without a reliable link may state the identities of its publications."""

    def heard(self, identity: tuple[str, int, int], payload: bytes, monotonic: int) -> None:
        """Note that a publication of a device has arrived, new or duplicate. identity: device,
        incarnation, sequence. monotonic: time of arrival in µs since the gateway's start.
        """
        return

    def note_publication(
        self,
        device: str,
        topic: str,
        payload: bytes,
        reason: ReasonCode | None,
        monotonic: int,
        utc: int | None,
    ) -> None:
        """Note that a publication of a device was accepted, or refused for `reason`. monotonic: µs
        since the gateway started. utc: µs since 1970, None while the clock is not known.
        """
        return


class ByAcl(Access):
    """Base of access rules that follow the broker's ACL. Subclasses decide who may connect."""

    def identifier(self, caller: Caller, wanted: str) -> str | Refusal:
        return wanted

    def refuses_publish(self, caller: Caller, topic: str) -> ReasonCode | None:
        if caller.acl.may_write(caller.user, caller.client, topic):
            return None
        is_state = topic.startswith(_BRIDGE_STATE)
        return ReasonCode.NO_MATCHING_SUBSCRIBERS if is_state else ReasonCode.NOT_AUTHORIZED

    def may_identify(self, caller: Caller) -> bool:
        return caller.acl.may_identify(caller.user, caller.client)

    def refuses_subscribe(self, caller: Caller, topic_filter: str) -> ReasonCode | None:
        if caller.acl.may_subscribe(caller.user, caller.client, topic_filter):
            return None
        return ReasonCode.NOT_AUTHORIZED


class Acl:
    """The [[acl]] sections of a configuration. In the methods, `user` is None for anonymous clients
    and boards; in sections, they are "". is_board: whether a client identifier without a user
    belongs to a board. owns: whether a client identifier is reserved for this user.
    """

    def __init__(
        self,
        sections: list[AclSection],
        is_board: Callable[[str], bool] = lambda client: False,
        owns: Callable[[str, str], bool] = lambda user, client: True,
    ) -> None:
        self._of_boards = [section for section in sections if section.names_boards]
        self._of_users = [section for section in sections if section.named_users]
        self._is_board = is_board
        self._owns = owns
        self._known: dict[tuple[str, bool, str | None, str, str], bool] = {}
        self._found: dict[tuple[str, bool, str, str], tuple[list[str], list[str]]] = {}
        self._found_size = 0

    def may_write(self, user: str | None, client: str, topic: str) -> bool:
        if topic.startswith(SYSTEM_PREFIX) or (topic == DEVICES_TOPIC and user != INSIDE):
            return False
        return self._may("write", user, client, topic, topic_matches)

    def writes_nothing(self, user: str | None, client: str) -> bool:
        board = user is None and self._is_board(client)
        allowed, denied = self._rules("write", board, user or "", client)
        if _open(self._sections(board)):
            return "#" in denied
        return all(any(covers(wall, item) for wall in denied) for item in allowed)

    def may_identify(self, user: str | None, client: str) -> bool:
        """Whether this client may give identities to its publications."""
        return _open(self._of_users) or self.named_to_identify(user, client)

    def named_to_identify(self, user: str | None, client: str) -> bool:
        """Whether an `identity` list of the access rules names this client."""
        patterns = self._filters("identity", False, user or "", client)
        return any(fnmatchcase(client, pattern) for pattern in patterns)

    def may_read(self, user: str | None, client: str, topic: str) -> bool:
        return self._may("read", user, client, topic, topic_matches)

    def may_subscribe(self, user: str | None, client: str, topic_filter: str) -> bool:
        return self._may("subscribe", user, client, split_shared(topic_filter)[1], covers)

    def _may(
        self,
        verb: str,
        user: str | None,
        client: str,
        wanted: str,
        fits: Callable[[str, str], bool],
    ) -> bool:
        if not self._of_users and not self._of_boards:
            return True
        board = user is None and self._is_board(client)
        key = (verb, board, user, client, wanted)
        known = self._known.get(key)
        if known is None:
            allowed, denied = self._rules(verb, board, user or "", client)
            known = _open(self._sections(board)) or any(fits(item, wanted) for item in allowed)
            known = known and not any(fits(item, wanted) for item in denied)
            if len(self._known) >= _KNOWN:
                self._known.clear()
            if len(wanted) <= _KNOWN_LENGTH:  # long names could fill the memory
                self._known[key] = known
        return known

    def _rules(self, verb: str, board: bool, user: str, client: str) -> tuple[list[str], list[str]]:
        """Return the filters that allow an action, and the filters that deny it. verb: read, write,
        subscribe or identity. The result is cached.
        """
        about = verb, board, user, client
        rules = self._found.get(about)
        if rules is None:
            rules = self._filters(*about), self._denied(*about)
            self._found_size += 1 + len(rules[0]) + len(rules[1])
            if self._found_size > _FOUND:
                self._found.clear()
                self._found_size = 1 + len(rules[0]) + len(rules[1])
            self._found[about] = rules
        return rules

    def _filters(self, verb: str, board: bool, user: str, client: str) -> list[str]:
        """Return the filters that allow an action, with `%u` and `%c` replaced."""
        owned = self._owns(user, client)
        return [
            item
            for section in self._about(board, user, client)
            for item in section.allowed(verb, user, client, owned=owned)
        ]

    def _denied(self, verb: str, board: bool, user: str, client: str) -> list[str]:
        """Return the filters that deny an action, with `%u` and `%c` replaced. A wildcard in a name
        is kept, because it can only deny more.
        """
        return [
            item.replace("%u", user).replace("%c", client)
            for section in self._about(board, user, client)
            for item in (section.deny_write if verb == "write" else section.deny_read)
        ]

    def _sections(self, board: bool) -> list[AclSection]:
        return self._of_boards if board else self._of_users

    def _about(self, board: bool, user: str, client: str) -> Iterator[AclSection]:
        """Yield the sections that match the client identifier and (not for a board) the user."""
        for section in self._sections(board):
            named = board or any(fnmatchcase(user, pattern) for pattern in section.named_users)
            if named and any(fnmatchcase(client, pattern) for pattern in section.clients):
                yield section


def _open(sections: list[AclSection]) -> bool:
    """Whether the sections only deny. If so, everything that is not denied is allowed."""
    return all(
        (section.deny_write or section.deny_read)
        and not (section.write or section.read or section.subscribe)
        for section in sections
    )


@dataclass(frozen=True, slots=True)
class Policy:
    """The limits and access rules of one listener."""

    access: Access
    receive_maximum: int = 1024
    """Receive Maximum of the broker, announced to its clients."""
    connections: int | None = None
    """Largest number of clients of this listener. Here, in `packet_bytes` and in `keep_alive_s`,
    None means that only `[limits]` applies."""
    packet_bytes: int | None = None
    keep_alive_s: int | None = None
    keeps_sessions: bool = False
    """Whether sessions are kept without regard to limits.session_expiry_s."""
    reads_reasons: bool = False
    """Whether clients of this listener read the reason codes of PUBACK and PUBREC."""
    never_moves: bool = False
    """Whether sessions of this listener never move to another gateway."""
    device_aliases: int = 0
    """Largest number of topic aliases per board; 0 if they cost more bytes than they save."""
