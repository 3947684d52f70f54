"""The move of a message, which its receiver can never accept, from a session's queue to the
messages that are set aside.

In: the packet identifier of a message in flight. Out: one commit removes the message from the queue
and sets it aside (`aside.py`). So after a power cut the message is either in the queue or set
aside. An exception in between stops the process before that commit (`Step`).
"""

from __future__ import annotations

from typing import NamedTuple, cast

from gateway.bridge.aside_rows import Aside, Bound, Message
from gateway.broker.connection import Connection
from gateway.broker.core import Core
from gateway.broker.exchanges import recorded
from gateway.broker.session import Session
from gateway.mqtt.runs import RETAIN


class SetAside(NamedTuple):
    """A message that was set aside. lost: number of messages dropped because too many were set
    aside; this message is one of them if it is too large.
    """

    topic: str
    lost: int


def set_aside(
    core: Core,
    session: Session,
    identifier: int,
    bridge: str,
    reason: str,
    most: Bound,
    *,
    received: bool,
) -> SetAside | None:
    """Set aside the message in flight with a packet identifier. Return None if there is no such
    message, or if the session has no connection.

    received: whether it is possible that the receiver has the PUBLISH. If so, at QoS 2 it may still
    hold the packet identifier, and would treat a later message with this identifier as this
    message. So PUBREL follows, and the identifier is used again only after PUBCOMP.
    """
    found = session.send_flow.flights.find(identifier)
    if found is None or session.connection is None:
        return None
    delivery, index = found
    run = delivery.run
    qos = delivery.flags >> 1
    message = Message(
        run.topic.name,
        run.payload(index),
        qos,
        bool(delivery.flags & RETAIN),
        run.properties,
        run.expires,
    )
    with core.step:
        lost = Aside(core).keep(bridge, message, reason, most, core.utc)
        take_out(session, identifier, qos, received=received)
    return SetAside(message.topic, lost)


def take_out(session: Session, identifier: int, qos: int, *, received: bool) -> None:
    """Remove a message in flight from the queue. Call this in a step of the broker. The session
    must have a connection. received: see `set_aside`.
    """
    flow = session.send_flow
    if qos == 1:
        flow.finish(flow.flights.acknowledging, (identifier,))
    elif received:
        recorded(cast("Connection", session.connection), session, (identifier,))
    else:
        flow.finish(flow.flights.receiving, (identifier,))
    flow.pump()
