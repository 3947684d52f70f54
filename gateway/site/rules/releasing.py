"""Queries to the other members about a PUBREL whose packet identifier this gateway does not know.

In: clients with identifiers, the members' replies, time. Out: queries; for each PUBREL, whether a
member had the identifier and has released it on disk, and the silent members. A member counts as
silent after the same time as in the lookup of a session (`contacts.py`).
"""

from collections.abc import Callable
from functools import partial

from gateway.site.rules.contacts import START_S, Contacts
from gateway.site.rules.holder import Holder
from gateway.site.rules.merge_window import Windows
from gateway.site.rules.messages import Kind, Query, Reply
from gateway.site.rules.search import is_live

Done = Callable[[bool, tuple[str, ...]], None]


class _Release:
    __slots__ = ("answered", "asked", "done", "looks", "over", "patience", "question")

    def __init__(self, question: Query, now: float, done: Done) -> None:
        self.question = question
        self.asked = now
        self.patience = now + START_S
        self.looks = now
        """Time of the next check of this release."""
        self.done = done
        self.answered: set[str] = set()
        self.over = False


class Releasing:
    def __init__(self, contacts: Contacts, holder: Holder, windows: Windows) -> None:
        self._contacts = contacts
        self._holder = holder
        self._windows = windows
        self._releases: dict[_Release, None] = {}

    def want(self, client: str, identifier: int, done: Done) -> None:
        question = Query(client, identifier)
        release = _Release(question, self._contacts.now, done)
        self._releases[release] = None
        for contact in self._contacts.values():
            if contact.up:
                self._query(release, contact.name)
        self._look(release)

    def _query(self, release: _Release, member: str) -> None:
        self._windows.ask(member, release.question, partial(self._on_reply, release))

    def _query_again(self, release: _Release, member: str) -> None:
        """Query a member again. If the session has moved away meanwhile, answer instead that the
        identifier is unknown: the session may be at that member by now, where the identifier may
        stand for another message.
        """
        record = self._holder.record(release.question.client)
        if record is not None and is_live(record):
            self._query(release, member)
        else:
            self._finish(release, False, ())

    def _on_reply(self, release: _Release, member: str, reply: Reply) -> None:
        if release.over:
            return
        if reply.kind is Kind.RELEASED:
            self._contacts.statistics.released += 1
            self._finish(release, True, ())
        elif reply.kind is Kind.BUSY:
            if self._contacts.now < self._silent_from(release, member):
                self._query_again(release, member)
        else:
            release.answered.add(member)
            self._look(release)

    def _silent_from(self, release: _Release, member: str) -> float:
        return self._contacts[member].silent_from(release.asked, release.patience)

    def _look(self, release: _Release) -> None:
        if release.over:
            return
        silent = self._contacts.keys() - release.answered
        until = max((self._silent_from(release, name) for name in silent), default=0.0)
        if self._contacts.now >= until:
            for name in silent:
                self._contacts[name].passed_over(self._contacts.now, release.asked)
            self._contacts.statistics.silent += bool(silent)
            self._finish(release, False, tuple(sorted(silent)))
        elif release.looks != until:
            release.looks = until
            self._contacts.plan(until, partial(self._look, release))

    def _finish(self, release: _Release, known: bool, silent: tuple[str, ...]) -> None:
        release.over = True
        del self._releases[release]
        done = partial(release.done, known, silent)
        if known:
            done()
        else:
            # the change that made the identifier unknown may wait for a commit: a power cut must
            # not undo it
            self._holder.on_disk(done)

    def joined(self, member: str) -> None:
        """Query the member again about each PUBREL for which it has not answered yet. A query over
        an earlier link may have been lost.
        """
        for release in list(self._releases):
            if member not in release.answered:
                self._query_again(release, member)

    def link_ended(self) -> None:
        for release in list(self._releases):
            self._look(release)
