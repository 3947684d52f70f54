"""Who may connect, publish and subscribe. Each question is answered with a reason to refuse, or None."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gateway.mqtt.reason import ReasonCode

if TYPE_CHECKING:
    from gateway.broker.connection import Connection
    from gateway.broker.router import Topic
    from gateway.mqtt.packets import Connect

Refusal = tuple[ReasonCode, str]
"""Reason and text."""


class Access(Protocol):
    """The rules of one listener."""

    def refuses_connect(self, connection: Connection, packet: Connect) -> Refusal | None: ...

    def refuses_publish(self, connection: Connection, topic: Topic) -> ReasonCode | None: ...

    def refuses_subscribe(self, connection: Connection, topic_filter: str) -> ReasonCode | None: ...


class Anonymous:
    """Everybody may do everything, or nobody may connect."""

    def __init__(self, allowed: bool) -> None:
        self._allowed = allowed

    def refuses_connect(self, connection: Connection, packet: Connect) -> Refusal | None:
        if self._allowed:
            return None
        return ReasonCode.NOT_AUTHORIZED, f"the listener {connection.peer.listener} takes no anonymous clients"

    def refuses_publish(self, connection: Connection, topic: Topic) -> ReasonCode | None:
        return None

    def refuses_subscribe(self, connection: Connection, topic_filter: str) -> ReasonCode | None:
        return None
