"""The decision of a session lookup: where the newest session of a client is.

In: the claims of the members that have a record of the client, and the silent members. Out: the
member that has the session, and the record of the deciding member.

A claim that names another member in `older` supersedes that member's claim: when the record of the
first claim was made, the other member could not be asked, or had an older record. If each of two
claims names the other's member, each record was made without the other one, and it is unknown which
session the client saw last. The result is then suspect. Among claims that do not name each other's
members, the claim with the higher epoch is newer. A claim from a copy of a store is older than any
other.

A claim of another member was true when that member answered. A silent member may have decided
something about the client since then. So a session that moves while a member is silent is suspect.
"""

from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

from gateway.site.rules.holder import NOBODY, Held


class Claim(NamedTuple):
    """A member's record of a client; the fields are those of `Held` in `holder.py`."""

    epoch: int
    session: bool
    given_to: str | None = None
    older: frozenset[str] = NOBODY
    suspect: bool = False
    copied: bool = False
    unsure: frozenset[str] = NOBODY
    """Members that may have a newer session: they have given this member no valid lease, or have
    said that they are about to decide about this client. Set only in this member's own claim.
    """


class Decision(NamedTuple):
    source: str | None
    """The member whose session the client gets; None if a new session begins."""
    epoch: int
    """Epoch of the record that this member makes for the decision."""
    older: frozenset[str]
    suspect: bool


def supersedes(newer: tuple[str, Claim], older: tuple[str, Claim]) -> bool:
    """Whether claim A (`newer`) replaces claim B (`older`). Each comes with the name of its member.
    If exactly one claim is from a copy of a store, that claim is replaced. Else A replaces B if A
    names B's member in `older`, and either B does not name A's member or B's session has moved to
    A's member.
    """
    (one, first), (other, second) = newer, older
    if first.copied != second.copied:
        return second.copied
    return other in first.older and (one not in second.older or second.given_to == one)


def went_on_twice(claims: Mapping[str, Claim]) -> bool:
    """Whether two members each have a session that continued without knowing of the other one."""
    live = {name: claim.older for name, claim in claims.items() if is_live(claim)}
    return any(one in live[other] and other in live[one] for one, other in combinations(live, 2))


def is_live(record: Claim | Held) -> bool:
    """Whether the record's member has the session, and has not given it to another member."""
    return record.session and record.given_to is None


def decide(me: str, claims: Mapping[str, Claim], silent: frozenset[str], clean: bool) -> Decision:
    """Return the decision of this member. me: its name. claims: the claim of each member that has a
    record, including this member. silent: members without an answer. clean: whether the client
    wants no session.
    """
    older = (silent | claims.keys()) - {me}
    if not claims:
        return Decision(None, int(bool(silent)), older, bool(silent))
    epoch = max(claim.epoch for claim in claims.values()) + 1
    standing = dict(claims)
    if len(claims) > 1:
        for one in claims.items():
            if any(supersedes(other, one) for other in claims.items()):
                del standing[one[0]]
    ambiguous = not standing
    standing = standing or dict(claims)
    source, best = max(standing.items(), key=lambda item: (item[1].epoch, item[0]))
    ambiguous |= any(
        source in claim.older and one in best.older and claim.given_to != source
        for one, claim in claims.items()
    )
    better = best.unsure if source == me else silent
    if best.given_to is not None:
        better |= {best.given_to}
    if clean or not best.session:
        suspect = bool(silent) or (not clean and (ambiguous or best.suspect))
        return Decision(None, epoch, older, suspect)
    return Decision(source, epoch, older, ambiguous or best.suspect or bool(silent & better))
