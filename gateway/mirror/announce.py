"""What the gateway itself says on topics of its own.

In: a topic and a payload. Out: a message at QoS 0 to those who have subscribed, and the retained
message of the topic for those who do so later. It is in memory alone: nothing of it goes to the
disk or into the spool. Who may write there is for the configuration to say (`Config`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.broker.fan_out import publish
from gateway.broker.publish_run import PublishRun
from gateway.broker.retained import Retained

if TYPE_CHECKING:
    from gateway.broker.core import Core


def announce(core: Core, name: str, payload: bytes) -> None:
    """An empty payload takes the retained message away. Beyond the bounds of retained messages, it
    goes to present subscribers alone.
    """
    topic = core.router.routed(core.router.topic(name))
    topic.spooled = False
    if topic.refused:
        return
    publish(core, PublishRun(topic, payload), "")
    limits = core.limits
    if not payload:
        if core.retained.remove(name):  # it may be a client's, from before: then it is on the disk
            core.changes.retained[name] = None
    elif core.retained.fits(name, len(payload) + len(name), limits.retained, limits.retained_bytes):
        core.retained.put(Retained(name, "", 0, payload))
