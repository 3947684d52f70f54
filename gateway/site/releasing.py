"""A PUBREL whose identifier is not known here: whether another member has received it.

In: clients with identifiers, the members' replies, time. Out: questions; whether somebody had the
identifier and has released it, on disk, and who was silent.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from gateway.site.asking import ANSWER_S
from gateway.site.contacts import Contacts
from gateway.site.holder import Holder
from gateway.site.messages import Kind, Question, Reply
from gateway.site.windows import Windows

Done = Callable[[bool, tuple[str, ...]], None]


class _Release:
    __slots__ = ("answered", "asking", "deadline", "done", "over", "question")

    def __init__(
        self, asking: "Releasing", question: Question, deadline: float, done: Done
    ) -> None:
        self.asking = asking
        self.question = question
        self.deadline = deadline
        self.done = done
        self.answered: set[str] = set()
        self.over = False

    def on_reply(self, member: str, number: int, reply: Reply) -> None:
        if not self.over:
            self.asking.on_reply(self, member, reply)


class Releasing:
    def __init__(self, contacts: Contacts, holder: Holder, windows: Windows) -> None:
        self._contacts = contacts
        self._holder = holder
        self._windows = windows
        self._releases: deque[_Release] = deque()

    def want(self, client: str, identifier: int, done: Done) -> None:
        question = Question(client, identifier)
        release = _Release(self, question, self._contacts.now + ANSWER_S, done)
        self._releases.append(release)
        for contact in self._contacts.values():
            if contact.up:
                self._windows.ask(contact.name, question, release, 0)
        self._look(release)

    def on_reply(self, release: _Release, member: str, reply: Reply) -> None:
        if reply.kind is Kind.RELEASED:
            self._contacts.statistics.released += 1
            self._finish(release, True, ())
        elif reply.kind is Kind.BUSY:
            if self._contacts.now < release.deadline:
                self._windows.ask(member, release.question, release, 0)
        else:
            release.answered.add(member)
            self._look(release)

    def _look(self, release: _Release) -> None:
        silent = self._contacts.keys() - release.answered
        waits = self._contacts.now < release.deadline and any(
            self._contacts[one].up for one in silent
        )
        if not release.over and not waits:
            self._contacts.statistics.silent += bool(silent)
            self._finish(release, False, tuple(sorted(silent)))

    def _finish(self, release: _Release, known: bool, silent: tuple[str, ...]) -> None:
        release.over = True
        done = partial(release.done, known, silent)
        if known:
            done()
        else:
            # that it is unknown here may wait for a commit: a power cut must not bring it back
            self._holder.on_disk(done)

    def left(self) -> None:
        for release in list(self._releases):
            self._look(release)

    @property
    def deadline(self) -> float | None:
        return self._releases[0].deadline if self._releases else None

    def advance(self) -> None:
        while self._releases and (
            self._releases[0].over or self._contacts.now >= self._releases[0].deadline
        ):
            self._look(self._releases.popleft())
