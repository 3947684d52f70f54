"""The other gateways of the site, as the broker sees them: somebody who may know of a session that
is not here.

In: a CONNECT whose session may be elsewhere, and a PUBREL whose identifier nobody here knows. Out:
the answer, later, through `dispatch.py`. Without a site there is nobody (`Core.elsewhere` is None),
and nothing of this costs anything.

A session is known among the gateways by its key: its client identifier and whose it is. So nobody
can fetch or end the session of another user by its client identifier.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.broker.access import Asking
    from gateway.mqtt.packets import Connect

_OF_A_DEVICE = "device"


class Elsewhere(Protocol):
    def waits(self, connection: Asking, packet: Connect) -> bool:
        """Whether a CONNECT waits until the others have said what they hold. Then
        `dispatch.placed` is called, unless the connection has ended by then."""

    def release(self, connection: Asking, identifiers: Sequence[int]) -> bool:
        """Whether the others are asked about identifiers that are unknown here. Then
        `exchanges.released` is called for each."""


def key_of(client: str, user: str | None, incarnation: int) -> str:
    """incarnation: of the board that it is, 0 for other clients."""
    if incarnation:
        return f"{client}\0{_OF_A_DEVICE}"
    if user is None:
        return client
    return f"{client}\0{sha256(user.encode()).hexdigest()[:16]}"


def name_of(key: str) -> str:
    """The client identifier in a key."""
    return key.partition("\0")[0]
