"""Who may connect, publish, subscribe and receive. Each question is answered with a reason to
refuse, or None.

`Access` is what a listener asks at CONNECT: who is this? `Acl` says what each of them may do; it is
one for the whole broker, since messages for a session that is away must be judged, too.

Rules of an ACL: without any section every user may do everything. With sections, a
client may do what any section that names its user and client identifier allows, and no section that
names them denies; where sections do nothing but deny, the rest is allowed. `%u` and `%c` in a
filter stand for the user name and the client identifier. Nobody but the broker publishes to `$SYS…`
(MQTT 5, section 4.7.2).

A board is no user: only sections that name boards hold for it (`boards = true`, or the user ""),
and where no section does, it may do everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from gateway.broker.peer import Peer
from gateway.broker.topic import Topic
from gateway.config import AclSection
from gateway.mqtt.packets import Connect
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.topics import SYSTEM_PREFIX, split_shared, topic_matches

_KNOWN = 16_384
_KNOWN_LENGTH = 256
_FOUND = 65_536
"""Filters with the names of clients put in that are remembered."""

Refusal = tuple[ReasonCode, str]
"""Reason and text."""


@dataclass(frozen=True, slots=True)
class Question:
    """An answer that takes time, such as a password against a memory-hard hash: to be found
    elsewhere than on the event loop.

    user: who the client will be when it is let in. answer: called once, on any thread. holds:
    asked on the event loop after an answer that lets the client in: whether it still does.
    asks_others: the answer comes from somebody else, who may take his time.
    """

    user: str
    answer: Callable[[], Refusal | None]
    holds: Callable[[], bool] = lambda: True
    asks_others: bool = False


class Caller(Protocol):
    """A connection, as far as access goes."""

    user: str | None
    """Who it is, None for anonymous clients and devices."""

    @property
    def client(self) -> str: ...

    @property
    def peer(self) -> Peer: ...

    @property
    def acl(self) -> Acl: ...

    @property
    def let_in(self) -> bool:
        """Whether its CONNECT was accepted."""


class Asking(Caller, Protocol):
    """A caller whose CONNECT waits for the answer to a question."""

    @property
    def closing(self) -> str | None: ...

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> dict[str, str | None]: ...


@dataclass(frozen=True, slots=True)
class Ask:
    """Find out who a client is, elsewhere than on the event loop."""

    connection: Asking
    packet: Connect
    question: Question


class Access(Protocol):
    """The rules of one listener. `refuses_connect` sets `caller.user` of those that it lets in
    at once.
    """

    def refuses_connect(self, caller: Caller, packet: Connect) -> Refusal | Question | None: ...

    def identifier(self, caller: Caller, wanted: str) -> str | Refusal:
        """The client identifier of a caller that is known. wanted: what its CONNECT says, empty for
        none; then empty, too, when any will do.
        """

    def holds(self, caller: Caller) -> bool:
        """Whether a connection that was let in would be let in again."""

    def refuses_publish(self, caller: Caller, topic: Topic) -> ReasonCode | None: ...

    def refuses_subscribe(self, caller: Caller, topic_filter: str) -> ReasonCode | None: ...

    def may_identify(self, caller: Caller) -> bool:
        """Whether a client without reliable link may say in user properties which publication of
        its name a message is.
        """

    def heard(self, identity: tuple[str, int, int], payload: bytes, monotonic: int) -> None:
        """A publication of a device has come, maybe again. identity, monotonic: as in
        `Spool.rows`.
        """

    def met(
        self,
        device: str,
        topic: str,
        payload: bytes,
        reason: ReasonCode | None,
        monotonic: int,
        utc: int | None,
    ) -> None:
        """A publication of a device was taken, or refused for this reason. monotonic, utc: the time
        now, as in `Spool.rows`.
        """


class ByAcl:
    """What clients may do, as the broker's ACL says; whom a listener lets in is for its own class
    to say.
    """

    def identifier(self, caller: Caller, wanted: str) -> str | Refusal:
        return wanted

    def refuses_publish(self, caller: Caller, topic: Topic) -> ReasonCode | None:
        if caller.acl.may_write(caller.user, caller.client, topic.name):
            return None
        return ReasonCode.NOT_AUTHORIZED

    def may_identify(self, caller: Caller) -> bool:
        return caller.acl.may_identify(caller.user, caller.client)

    def heard(self, identity: tuple[str, int, int], payload: bytes, monotonic: int) -> None: ...

    def met(
        self,
        device: str,
        topic: str,
        payload: bytes,
        reason: ReasonCode | None,
        monotonic: int,
        utc: int | None,
    ) -> None: ...

    def refuses_subscribe(self, caller: Caller, topic_filter: str) -> ReasonCode | None:
        if caller.acl.may_subscribe(caller.user, caller.client, topic_filter):
            return None
        return ReasonCode.NOT_AUTHORIZED


class Acl:
    """The [[acl]] sections of a configuration. user: None for anonymous clients and boards;
    sections name them as "". is_board: whether a client identifier without a user is a board's.
    """

    def __init__(
        self, sections: list[AclSection], is_board: Callable[[str], bool] = lambda client: False
    ) -> None:
        self._of_boards = [section for section in sections if section.names_boards]
        self._of_users = [section for section in sections if section.named_users]
        self._is_board = is_board
        self._known: dict[tuple[str, bool, str | None, str, str], bool] = {}
        self._found: dict[tuple[str, bool, str, str], tuple[list[str], list[str]]] = {}
        """The filters that hold for a client. All are forgotten when they are many."""
        self._found_size = 0

    def may_write(self, user: str | None, client: str, topic: str) -> bool:
        if topic.startswith(SYSTEM_PREFIX):
            return False
        return self._may("write", user, client, topic, topic_matches)

    def writes_nothing(self, user: str | None, client: str) -> bool:
        """Whether no topic is left that this client may publish to."""
        board = user is None and self._is_board(client)
        allowed, denied = self._rules("write", board, user or "", client)
        if _open(self._sections(board)):
            return "#" in denied
        return all(any(covers(wall, item) for wall in denied) for item in allowed)

    def may_identify(self, user: str | None, client: str) -> bool:
        """Whether what this client says of the identity of its publications counts."""
        return _open(self._of_users) or self.named_to_identify(user, client)

    def named_to_identify(self, user: str | None, client: str) -> bool:
        """The same, and a section says so."""
        patterns = self._filters("identity", False, user or "", client)
        return any(fnmatchcase(client, pattern) for pattern in patterns)

    def may_read(self, user: str | None, client: str, topic: str) -> bool:
        return self._may("read", user, client, topic, topic_matches)

    def may_subscribe(self, user: str | None, client: str, topic_filter: str) -> bool:
        return self._may("subscribe", user, client, split_shared(topic_filter)[1], covers)

    def _may(
        self,
        what: str,
        user: str | None,
        client: str,
        wanted: str,
        fits: Callable[[str, str], bool],
    ) -> bool:
        if not self._of_users and not self._of_boards:
            return True
        board = user is None and self._is_board(client)
        key = (what, board, user, client, wanted)
        known = self._known.get(key)
        if known is None:
            allowed, denied = self._rules(what, board, user or "", client)
            known = _open(self._sections(board)) or any(fits(item, wanted) for item in allowed)
            known = known and not any(fits(item, wanted) for item in denied)
            if len(self._known) >= _KNOWN:
                self._known.clear()
            if len(wanted) <= _KNOWN_LENGTH:  # a client could fill the memory with long names
                self._known[key] = known
        return known

    def _rules(self, what: str, board: bool, user: str, client: str) -> tuple[list[str], list[str]]:
        """The filters that allow and those that deny. Found once for many questions: there may be
        many sections, many filters in one SUBSCRIBE, and many who get a message.
        """
        about = what, board, user, client
        rules = self._found.get(about)
        if rules is None:
            rules = self._filters(*about), self._denied(*about)
            self._found_size += 1 + len(rules[0]) + len(rules[1])
            if self._found_size > _FOUND:
                self._found.clear()
                self._found_size = 1 + len(rules[0]) + len(rules[1])
            self._found[about] = rules
        return rules

    def _filters(self, what: str, board: bool, user: str, client: str) -> list[str]:
        """The filters that hold for a client, with its names put in. A name with a wildcard or a
        slash in it would widen a filter: it gets none of those that mention it.
        """
        found = []
        for section in self._about(board, user, client):
            for item in (
                getattr(section, what) if what != "subscribe" else section.subscribe or section.read
            ):
                if ("%u" in item and not _plain(user)) or ("%c" in item and not _plain(client)):
                    continue
                found.append(item.replace("%u", user).replace("%c", client))
        return found

    def _denied(self, what: str, board: bool, user: str, client: str) -> list[str]:
        """The same for what is denied; there a name may widen a filter."""
        return [
            item.replace("%u", user).replace("%c", client)
            for section in self._about(board, user, client)
            for item in (section.deny_write if what == "write" else section.deny_read)
        ]

    def _sections(self, board: bool) -> list[AclSection]:
        return self._of_boards if board else self._of_users

    def _about(self, board: bool, user: str, client: str) -> Iterator[AclSection]:
        """The sections that name a client."""
        for section in self._sections(board):
            named = board or any(fnmatchcase(user, pattern) for pattern in section.named_users)
            if named and any(fnmatchcase(client, pattern) for pattern in section.clients):
                yield section


def _open(sections: list[AclSection]) -> bool:
    """Whether what is not denied is allowed: no section allows anything."""
    return all(
        (section.deny_write or section.deny_read)
        and not (section.write or section.read or section.subscribe)
        for section in sections
    )


def _plain(name: str) -> bool:
    return name != "" and not set(name) & set("/+#$%")


def covers(allowed: str, wanted: str) -> bool:
    """Whether everything that the filter `wanted` matches is matched by the filter `allowed`,
    too.
    """
    if wanted[0] == "$" and allowed[0] in "+#":
        return False
    outer, inner = allowed.split("/"), wanted.split("/")
    for position, level in enumerate(outer):
        if level == "#":
            return True
        if position == len(inner) or inner[position] == "#" or level not in ("+", inner[position]):
            return False
    return len(outer) == len(inner)


@dataclass(frozen=True, slots=True)
class Policy:
    """What a listener allows."""

    access: Access
    receive_maximum: int = 1024
    """Ours, announced to its clients."""
    connections: int | None = None
    """Clients at a time; this and the following: None for as many as `[limits]` says."""
    packet_bytes: int | None = None
    keep_alive_s: int | None = None
    keeps_sessions: bool = False
    """Whatever limits.session_expiry_s says."""
    reads_reasons: bool = False
    """Its clients read the reason codes of PUBACK and PUBREC (`exchanges.py`)."""
    stays: bool = False
    """Its sessions stay at this gateway, wherever their clients go."""
    device_aliases: int = 0
    """Topic aliases that a board is told of; 0 where the bytes to tell it are worth more."""
