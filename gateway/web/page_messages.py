"""Live message view and publishing for the page's users.

View and publishing use MQTT, through an internal client (`gateway/runtime/internal_client.py`) with
the user's name. So access rules, quotas and limits apply as to any client. The view subscribes at
QoS 0 and is limited to a readable rate: after MOST_A_SECOND messages in a second it unsubscribes
until the next second, so that a flood takes little of the gateway's time.
"""

import asyncio
from typing import Protocol

from gateway.broker.refusals import words
from gateway.mqtt.packets import (
    Connack,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.topics import SHARE_PREFIX, topic_filter_problem, topic_name_problem
from gateway.runtime.engine import Engine
from gateway.runtime.internal_client import Client

MOST_A_SECOND = 100
PATIENCE_S = 10.0
_FULL = "The gateway accepts no messages now: its disk, its spool, a queue or your quota is full."
_GONE = "The gateway has ended the connection."
_FAILURE = 0x80


class Seen(Protocol):
    """The receiver of the events of a live view. Its methods are called within a step of the
    broker.
    """

    def begin(self) -> None:
        """Note that the subscription is active. Called again when the pause that follows `more` is
        over.
        """

    def message(self, message: Publish) -> None: ...

    def more(self) -> None:
        """Note that more messages arrive than are shown, so messages are left out for up to a
        second.
        """

    def end(self, why: str) -> None:
        """Note that the view has ended. why: a sentence."""


class Watch:
    """A live view of one topic filter with one user's rights, until `stop`."""

    def __init__(
        self,
        engine: Engine,
        user: str,
        topic_filter: str,
        seen: Seen,
    ) -> None:
        self._engine = engine
        self._filter = topic_filter
        self._seen = seen
        self._second = 0.0
        """Time at which the present second began, on the event loop's clock."""
        self._shown = 0
        """Number of messages that arrived in the present second, whether they are shown or not."""
        self._rests = False
        self._client = Client(engine, "page", user, self._take)

    def stop(self) -> None:
        self._client.leave()

    def _take(self, packet: Packet | None) -> None:
        match packet:
            case Connack(reason=reason) if reason < _FAILURE:
                if problem := _filter_problem(self._filter):
                    self._end(problem)
                else:
                    self._subscribe()
            case Connack(reason=reason) | Disconnect(reason=reason):
                self._end(f"The gateway refuses the request: {words(reason)}.")
            case Suback(reasons=[reason]) if reason >= _FAILURE:
                self._end(_refusal(reason, f"read {self._filter}"))
            case Suback():
                self._seen.begin()
            case Publish() if not self._rests:
                self._show(packet)
            case None:
                self._end(_GONE)

    def _show(self, message: Publish) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._second >= 1.0:
            self._second, self._shown = now, 0
        self._shown += 1
        if self._shown <= MOST_A_SECOND:
            self._seen.message(message)
            return
        self._rests = True
        self._seen.more()
        self._client.send(Unsubscribe(1, [self._filter]))
        self._engine.call_later(max(0.0, self._second + 1.0 - now), self._wake)

    def _wake(self) -> None:
        self._rests = False
        self._subscribe()

    def _subscribe(self) -> None:
        wanted = Subscription(self._filter, 0, retain_as_published=True, retain_handling=2)
        self._client.send(Subscribe(1, [wanted]))

    def _end(self, why: str) -> None:
        self._seen.end(why)
        self._engine.call_later(0, self._client.leave)


def _filter_problem(topic_filter: str) -> str | None:
    if topic_filter.startswith(SHARE_PREFIX):
        return "A shared subscription would take messages away from others."
    problem = topic_filter_problem(topic_filter)
    return f"This is not a topic filter: it {problem}." if problem else None


async def publish(engine: Engine, user: str, message: Publish) -> str | None:
    """Publish a message at QoS 1 or 2. Return None when the message is on disk; else a sentence:
    why it was refused, or that the disk is slow.
    """
    if problem := topic_name_problem(message.topic):
        return f"This is not a topic: it {problem}."
    done: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def end(problem: str | None) -> None:
        if not done.done():
            done.set_result(problem)

    def handle(packet: Packet | None) -> None:
        match packet:
            case Connack(reason=reason) if reason < _FAILURE:
                message.packet_id = 1
                client.send(message)
            case Puback(reason=reason) | Pubrec(reason=reason) if reason >= _FAILURE:
                end(_refusal(reason, f"publish to {message.topic}"))
            case Pubrec():
                client.send(Pubrel(1))
            case Puback() | Pubcomp():
                end(None)
            case Connack(reason=reason) | Disconnect(reason=reason):
                end(f"The gateway refuses the request: {words(reason)}.")
            case None:
                end(_GONE)

    client = Client(engine, "page", user, handle)
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await done
    except TimeoutError:
        return "The disk is slow: it is not known whether the message was stored."
    finally:
        client.leave()


def _refusal(reason: ReasonCode, action: str) -> str:
    match reason:
        case ReasonCode.NOT_AUTHORIZED:
            return f"The access rules do not let you {action}."
        case ReasonCode.QUOTA_EXCEEDED:
            return _FULL
    return f"You cannot {action}: {words(reason)}."
