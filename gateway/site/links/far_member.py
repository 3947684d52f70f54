"""Another member of the site, as this gateway's links see it.

In: links that begin and end. Out: a row of `onceway site status`.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.site.links.link import Link
from gateway.site.links.seldom import QUIET_S
from gateway.system.logs import printable

_UNLISTED_S = 90.0
"""A gateway that is not in [site.members] is shown for this many seconds after its last attempt to
join. Such a gateway tries at least once a minute.
"""


@dataclass(slots=True)
class FarMember:
    """Another member.

    heard: time of its last frame, on the loop's clock; None: never. since: start of the link, or of
    the time without a link. last: the latest link, which may have ended. problem: why there is no
    link, or the fault with which the link began; empty if unknown. before: the generation word of
    the member's previous run (`Link.generation`), "" if unknown. begun: whether `last` is the first
    link since the member's start. wake: set when the member is to be dialled, or knocked at, at
    once. knocked: whether `wake` was set because the member has knocked. answered_knock: time of
    the last answered knock. attempt: the current dialling, which a knock may end.
    """

    name: str
    address: str
    since: float
    link: Link | None = None
    heard: float | None = None
    last: Link | None = None
    before: str = ""
    begun: bool = False
    problem: str = ""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    knocked: bool = False
    answered_knock: float = float("-inf")
    attempt: asyncio.Timeout | None = None


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A row of `onceway site status`. heard_s: seconds since the last received byte; None if there
    was none in this run. until: the end date of the certificate, if known.
    """

    name: str
    address: str
    here: bool  # prose: JSON key
    connected: bool
    since_s: float
    heard_s: float | None
    lag_ms: float | None
    clock_s: float | None
    protocol: int | None
    generation: str | None
    until: str | None
    problem: str | None


def status(far: FarMember, now: float) -> MemberStatus:
    link, last = far.link, far.last
    heard = link.heard if link is not None else far.heard
    certificate = last.certificate if last is not None else None
    is_past = link is not None and now - far.since > QUIET_S
    return MemberStatus(
        far.name,
        far.address,
        here=False,
        connected=link is not None,
        since_s=round(now - far.since, 1),
        heard_s=None if heard is None else round(now - heard, 1),
        lag_ms=None if link is None or link.lag_s is None else round(link.lag_s * 1000, 1),
        clock_s=None if last is None else round(last.clock_s, 1),
        protocol=None if last is None else last.version,
        generation=None if last is None else last.generation,
        until=None if certificate is None else f"{certificate.not_valid_after_utc:%Y-%m-%d}",
        problem=(not is_past and far.problem)
        or (link is not None and "; ".join(link.differs))
        or None,
    )


def missing(unlisted: Mapping[str, float], now: float) -> str | None:
    """Return a sentence with the gateways that [site.members] lacks, or None. unlisted: gateways
    that have tried to join, each with the time of its last attempt.
    """
    names = [name for name, at in unlisted.items() if now - at < _UNLISTED_S]
    if not names:
        return None
    text = ", ".join(map(printable, sorted(names)))
    return (
        f"[site.members] lacks gateways that try to join: {text}. Make [site.members] the same at"
        " all members"
    )
