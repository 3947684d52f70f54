"""The rule that says which client identifiers a user may use.

In: a user name, and the identifier in a CONNECT. Out: the valid identifier, or a reason to refuse.
The section `[access]` sets the rule. In addition, an identifier that is the name of a board in the
device registry is refused, unless the user has this name, too.
"""

import secrets
from collections.abc import Callable

from gateway.access.rules import Refusal
from gateway.config import AccessSection
from gateway.mqtt.errors import quote
from gateway.mqtt.reason import ReasonCode

_BEHIND = ":"
"""Separator between a user name and a suffix in a client identifier. No user name contains it."""


class Identifiers:
    """The rules of client identifiers. is_user: whether a user has this name. is_board: whether a
    board has this name.
    """

    def __init__(
        self,
        section: AccessSection,
        is_user: Callable[[str], bool],
        is_board: Callable[[str], bool],
    ) -> None:
        self._section = section
        self._is_user = is_user
        self.is_board = is_board

    def choose(self, user: str | None, wanted: str) -> str | Refusal:
        """Return the identifier that a client gets, or a refusal. user: the client's user name,
        None for an anonymous client. wanted: the identifier in its CONNECT; if empty, this method
        makes one.
        """
        client = wanted or self._free(user)
        problem = self._problem(user, client)
        if problem is None:
            return client
        return (
            ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
            f"client identifier {quote(client)} {problem}",
        )

    def _free(self, user: str | None) -> str:
        way, prefixes = self._section.identifiers, self._section.prefixes
        if user is not None and way == "user name":
            return user
        mark = secrets.token_hex(8)
        if user is not None and way == "user name prefix":
            return f"{user}{_BEHIND}{mark}"
        return f"{prefixes[0] if prefixes else 'onceway-'}{mark}"

    def _problem(self, user: str | None, client: str) -> str | None:
        way, prefixes = self._section.identifiers, self._section.prefixes
        if self.is_board(client) and client != user:
            return "is the name of a board in the device registry"
        if prefixes and not client.startswith(tuple(prefixes)):
            return "begins with none of the prefixes that are allowed (access.prefixes)"
        first, colon, _ = client.partition(_BEHIND)
        if way == "any" or user is None:  # `%c` in an [[acl]] would be the other user's
            reserved = first != user and self._is_user(first)
            return "is reserved for another user (access.identifiers)" if reserved else None
        if first == user and (not colon or way == "user name prefix"):
            return None
        more = ", with or without a colon and more behind it" if way == "user name prefix" else ""
        return f"is not the user name{more} (access.identifiers)"
