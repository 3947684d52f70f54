"""Commands of the web page's users to boards.

In: a user, a board, and a command in the words of `firmware/README.md`. Out: a publication to
`commands/BOARD` at QoS 2, as if the user had sent it, when its commit is on disk; or the reason for
a refusal.
"""

import asyncio
import logging
import re

from gateway.broker.fan_out import lacks, publish
from gateway.broker.publish_run import PublishRun
from gateway.mqtt.errors import quote
from gateway.mqtt.properties import PropertyId, encode_properties
from gateway.mqtt.wire import MAX_PACKET
from gateway.payload.readings import DEVICE_NAME
from gateway.runtime.engine import Engine
from gateway.system.logs import about

log = logging.getLogger(__name__)

_COMMAND = re.compile(r"identify|reboot|interval [1-9]\d{0,4}( s| min)?")
_MOST = 65_535
_OVERHEAD = 5
"""Number of bytes of a short PUBLISH besides topic, properties and payload."""
PATIENCE_S = 5.0
_SLOW = "The disk is slow: the board gets the command when it is on the disk."


async def command(
    engine: Engine, user: str, device: str, text: str, correlation: bytes
) -> str | None:
    """Send a command for a user, if the access rules allow it. Return None if the command is on
    disk within PATIENCE_S, else a sentence that says what went wrong. correlation: Correlation Data
    for the answer.
    """
    number = re.search(r"\d+", text)
    if not DEVICE_NAME.fullmatch(device):
        return "A board with such a name accepts no commands."
    if not _COMMAND.fullmatch(text) or (number and int(number[0]) > _MOST):
        return "There is no such command."
    if not engine.broker.acl.may_write(user, "", f"commands/{device}"):
        return f"The access rules do not let you publish to commands/{device}."
    problem = await send(engine, device, text, correlation)
    if problem is None or problem is _SLOW:
        sender = quote(user)
        log.warning(
            "%s: the command %r was sent for user %s",
            device,
            text,
            sender,
            extra=about(client=device),
        )
    return problem


async def send(
    engine: Engine, device: str, text: str, correlation: bytes | None = None
) -> str | None:
    """Publish a command without checking a user's rights. Return None if the command is on disk
    within PATIENCE_S, else a sentence that says what went wrong. correlation: Correlation Data for
    the answer; None: no answer is awaited.
    """
    broker = engine.broker
    topic = broker.router.routed(broker.router.topic(f"commands/{device}"))
    if not any(route.qos == 2 and route.session.client == device for route in topic.routes):
        return "The board has no subscription to its commands: nothing was sent."
    properties = b"" if correlation is None else _answer_to(device, correlation)
    session = broker.sessions[device]
    longest = session.connection.packet_limit if session.connection else MAX_PACKET
    if _OVERHEAD + len(topic.wire) + len(properties) + len(text.encode()) > longest:
        return f"The command is too long: the board accepts packets of {longest} bytes at most."
    engine.begin()
    run = PublishRun(topic, text.encode(), 2, properties=properties)
    if lacks(broker, run):
        return "The gateway accepts no messages now: its disk or a queue is full."
    commit = publish(broker, run, "")
    broker.settle()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await _on_disk(engine, commit)
    except TimeoutError:
        return _SLOW
    return None


def _answer_to(device: str, correlation: bytes) -> bytes:
    """Return the properties that tell a board where to send its answer, without the Property
    Length.
    """
    awaited = {
        PropertyId.RESPONSE_TOPIC: f"logs/{device}",
        PropertyId.CORRELATION_DATA: correlation,
    }
    return encode_properties(awaited)[1:]


async def _on_disk(engine: Engine, commit: int) -> None:
    broker, done = engine.broker, asyncio.Event()
    if broker.committed < commit:
        broker.when_on_disk(commit, done.set)
        await done.wait()
