"""Where the newest session of a client is, by what the members have said.

In: the claims of those that hold something, and who was silent. Out: who has the session, and what
the record of the one that decides is to say.

A claim that names another member in `older` supersedes the claim of that one: it was made when
that one could not be asked, or said that it had something older. If both name one another, each
was made without the other, and nobody can tell which the client saw last: the result is doubtful.
Among claims that say nothing of one another the higher epoch is the newer one.

A claim from a copy of a store is older than any that is from none.

A claim of another member was true when it answered. A member that is silent may have decided
something since then. So a session that moves while a member is silent is in doubt.
"""

from collections.abc import Mapping
from typing import NamedTuple

from gateway.site.rules.holder import NOBODY


class Claim(NamedTuple):
    """What a member holds of a client; `Held` of `holder.py` says what the fields mean."""

    epoch: int
    session: bool
    given_to: str | None = None
    older: frozenset[str] = NOBODY
    doubtful: bool = False
    copied: bool = False
    unsure: frozenset[str] = NOBODY
    """Of our own: members that may know better. They have given no lease, or asked for this
    client."""


class Verdict(NamedTuple):
    source: str | None
    """Who has the session; None: nobody."""
    epoch: int
    """Of the record that is made now."""
    older: frozenset[str]
    doubtful: bool


def supersedes(newer: tuple[str, Claim], older: tuple[str, Claim]) -> bool:
    """Whether the first claim names the second one's member, and is not named by it. If one of them
    is from a copy, it is the second.
    """
    (one, first), (other, second) = newer, older
    if first.copied != second.copied:
        return second.copied
    return other in first.older and (one not in second.older or second.given_to == one)


def decide(me: str, claims: Mapping[str, Claim], silent: frozenset[str], clean: bool) -> Verdict:
    """claims: by member, `me` included when it holds something. clean: no session is wanted."""
    older = (silent | claims.keys()) - {me}
    if not claims:
        return Verdict(None, int(bool(silent)), older, bool(silent))
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
        return Verdict(None, epoch, older, bool(silent) or (ambiguous and not clean))
    return Verdict(source, epoch, older, ambiguous or best.doubtful or bool(silent & better))
