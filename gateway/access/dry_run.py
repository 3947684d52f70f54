"""A dry run of the access rules, which finds likely mistakes: known users and boards that can
publish nothing, boards that can get no commands, and denials that do not apply to boards.

In: the `[[acl]]` sections, the names of users and of registered boards. Out: a sentence for each
kind of mistake, for `onceway gateway check-config`.
"""

from collections.abc import Collection

from gateway.access.rules import Acl
from gateway.config import AclSection, Config

_NAMED = 5
"""Largest number of names in one sentence; beyond it, the sentence has only their number."""


def mistakes(
    sections: list[AclSection],
    users: Collection[str],
    boards: Collection[str],
    *,
    anonymous: bool = False,
) -> list[str]:
    """Return likely mistakes in the rules. Each user is tried with its own name as client
    identifier, and with each text in `clients` of a section. anonymous: whether a listener accepts
    clients without a user name.
    """
    acl = Acl(sections, frozenset(boards).__contains__)
    identifiers = {client for section in sections for client in section.clients}
    silent_users = [
        user
        for user in sorted(users)
        if all(acl.writes_nothing(user, client) for client in {user, *identifiers})
    ]
    silent_boards = [board for board in sorted(boards) if acl.writes_nothing(None, board)]
    found = []
    if silent_boards:
        found.append(
            f"acl: {_some('board', silent_boards)} can publish nothing, so every reading is"
            ' refused. If this is not intended, add write = ["sensors/%c/#"] to a section with'
            " boards = true"
        )
    others = [board for board in sorted(boards) if board not in silent_boards]
    if lost := [board for board in others if not _may_report(acl, sections, board)]:
        found.append(
            f"acl: {_some('board', lost)} can publish nothing below sensors/NAME/, so the readings"
            " of the firmware are refused. If this is not intended, add"
            ' write = ["sensors/%c/#"] to a section with boards = true'
        )
    deaf = [
        name for name in sorted(boards) if not acl.may_subscribe(None, name, f"commands/{name}")
    ]
    if deaf:
        found.append(
            f"acl: {_some('board', deaf)} may not read commands/NAME, so no command arrives. If"
            ' this is not intended, add read = ["commands/%c"] to a section with boards = true'
        )
    if silent_users:
        found.append(
            f"acl: {_some('user', silent_users)} can publish nothing. If this is not intended,"
            " add a section with users = [...] and write = [...]"
        )
    if anonymous and all(acl.writes_nothing(None, client) for client in {"", *identifiers}):
        found.append(
            "acl: a listener accepts clients without a user name, but they can publish nothing. If"
            ' this is not intended, add a section with users = [""] and write = [...]'
        )
    found += [
        f"acl, section {number}: a board is not a user, so denials for every user do not apply"
        " to boards. If they should, add boards = true to the section"
        for number, section in enumerate(sections, 1)
        if (section.deny_write or section.deny_read)
        and "*" in section.users
        and section.named_users
        and not section.names_boards
    ]
    return found


def _may_report(acl: Acl, sections: list[AclSection], board: str) -> bool:
    """Whether a board may publish to a topic below `sensors/NAME/`, which its firmware does."""
    filters = [f"sensors/{board}/adc0", "#", *(item for one in sections for item in one.write)]
    topics = (_topic(item.replace("%c", board), board) for item in filters)
    return any(
        acl.may_write(None, board, topic)
        for topic in topics
        if topic.startswith(f"sensors/{board}/")
    )


def _topic(topic_filter: str, board: str) -> str:
    """Return a topic that the filter matches: if possible, one below `sensors/NAME/`."""
    levels, usual = topic_filter.split("/"), ["sensors", board, "any"]
    levels += usual[len(levels) :] if levels[-1] == "#" else []
    usual += ["any"] * len(levels)
    return "/".join(
        name if one in ("+", "#") else one for one, name in zip(levels, usual, strict=False)
    )


def takes_anonymous(config: Config, users: Collection[str]) -> bool:
    """Whether a listener accepts clients without a user name, as `ListenerAccess` decides."""
    asks = bool(users or config.access.command or config.access.url)
    return any(
        one.is_local and not asks if one.anonymous is None else one.anonymous
        for one in config.listener
    )


def _some(kind: str, names: list[str]) -> str:
    if len(names) > _NAMED:
        return f"{len(names)} {kind}s, {', '.join(names[:_NAMED])} among them,"
    return f"{kind}{'s' if names[1:] else ''} {', '.join(names)}"
