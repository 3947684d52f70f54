"""Promises that are broken on purpose, each of which must be noticed: by the random schedules, or,
if thousands of these would be needed, by the test of a rule.

In: the name of a sabotage. Out: the package with this part replaced, during a `with` block.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from inspect import Parameter, signature
from typing import Any
from unittest.mock import patch

from gateway.site.rules.contacts import Contact
from gateway.site.rules.ending import Ending
from gateway.site.rules.holder import Held
from gateway.site.rules.lookup import Lookup, Search
from gateway.site.rules.messages import End, Ended, Over, Part, State, Wanted
from gateway.site.rules.outbound_moves import OutboundMoves, Parts
from gateway.site.rules.search import Claim, Decision, decide, supersedes
from gateway.site.rules.trust import Trust
from tests.site.sim_holder import MemoryHolder, Session


def _who_was_silent_is_forgotten(
    me: str, claims: Mapping[str, Claim], silent: frozenset[str], clean: bool
) -> Decision:
    decision = decide(me, claims, silent, clean)
    return decision._replace(older=decision.older - silent)


def _nothing_is_in_doubt(
    me: str, claims: Mapping[str, Claim], silent: frozenset[str], clean: bool
) -> Decision:
    return decide(me, claims, silent, clean)._replace(suspect=False)


def _a_lease_for_ever(self: Contact, beat: Any, now: float) -> None:
    self._clock = beat.clock
    self.promise = now
    if beat.echo:
        self.lease = float("inf")


def _confirmed_before_the_commit(
    self: Lookup, client: str, parts: list[bytes], suspect: bool
) -> None:
    decision = self._searches[client].decision
    assert decision is not None
    if decision.source is not None and self._contacts[decision.source].up:
        self._contacts.say(decision.source, End((Over(client, decision.epoch),)))
    _ARRIVED(self, client, parts, suspect)


_ARRIVED = Lookup.arrived


def _what_is_higher_is_confirmed(self: Ending, member: str, item: Ended) -> None:
    _ON_ENDED(self, member, item._replace(state=State.DONE))


_ON_ENDED = Ending._on_ended


def _silence_is_a_no(self: Lookup, search: Search) -> None:
    search.silent = ()
    _DECIDE(self, search)


_DECIDE = Lookup._decide


def _a_part_without_doubt(self: OutboundMoves, wanted: Wanted, parts: Parts) -> Part:
    return _PART(self, wanted, parts)._replace(suspect=False)


_PART = OutboundMoves._part


def _a_copy_counts(newer: tuple[str, Claim], older: tuple[str, Claim]) -> bool:
    (one, first), (other, second) = newer, older
    return supersedes((one, first._replace(copied=False)), (other, second._replace(copied=False)))


def _decided_without_a_new_epoch(own: Held | None, decision: Decision) -> bool:
    if own is None or own.given_to is not None:
        return own is None and not decision.older
    return decision.older <= own.older


def _without_identifiers(self: Session, size: int) -> list[bytes]:
    return _PARTS(self._replace(received=()), size)


_PARTS = Session.parts

SABOTAGES: dict[str, tuple[Any, str, Any]] = {
    "received identifiers stay behind": (Session, "parts", _without_identifiers),
    "the highest epoch wins": (
        "gateway.site.rules.search",
        "supersedes",
        lambda newer, older: False,
    ),
    "who was silent is forgotten": (
        "gateway.site.rules.search",
        "decide",
        _who_was_silent_is_forgotten,
    ),
    "nothing is in doubt": ("gateway.site.rules.search", "decide", _nothing_is_in_doubt),
    "silence is a no": (Lookup, "_decide", _silence_is_a_no),
    "answers do not wait for the disk": (MemoryHolder, "on_disk", lambda self, done: done()),
    "a lease lasts for ever": (Contact, "on_beat", _a_lease_for_ever),
    "who is asked trusts its session on": (Trust, "asked", lambda self, client, member: None),
    "over before the commit": (Lookup, "arrived", _confirmed_before_the_commit),
    "a higher epoch is taken for an end": (Ending, "_on_ended", _what_is_higher_is_confirmed),
    "a restore is kept quiet": (Ending, "_mark_all_suspect", lambda self, member, done: done()),
    "no doubt comes with a session": (OutboundMoves, "_part", _a_part_without_doubt),
    "a copy is as good as what it was": (
        "gateway.site.rules.search",
        "supersedes",
        _a_copy_counts,
    ),
    "the one that stays is not in doubt": (
        MemoryHolder,
        "mark_suspect",
        lambda self, client, done: done(),
    ),
    "an earlier word ends a record": (
        "gateway.site.rules.lookup",
        "_stands",
        _decided_without_a_new_epoch,
    ),
    "two search at once": (Lookup, "yields", lambda self, client, member: True),
}


@contextmanager
def sabotage(name: str) -> Iterator[None]:
    where, attribute, replacement = SABOTAGES[name]
    module = import_module(where) if isinstance(where, str) else where
    with sabotaged(module, attribute, replacement):
        yield


@contextmanager
def sabotaged(where: Any, attribute: str, replacement: Any) -> Iterator[None]:
    """Replace a function by one with the same number of arguments. Otherwise, calls would fail, and
    a test would notice this failure instead of the broken promise.
    """
    kinds = [
        [parameter.kind for parameter in signature(function).parameters.values()]
        for function in (getattr(where, attribute), replacement)
    ]
    assert Parameter.VAR_POSITIONAL in kinds[1] or len(kinds[0]) == len(kinds[1]), attribute
    with patch.object(where, attribute, replacement):
        yield


def first_noticed(name: str, schedules: range, run: Callable[[int], object]) -> tuple[int, str]:
    """Return the number of the first schedule that notices the sabotage, and the error; -1 and ""
    if no schedule does.
    """
    with sabotage(name):
        for number in schedules:
            try:
                run(number)
            except Exception as error:
                return number, f"{type(error).__name__}: {error}"
    return -1, ""
