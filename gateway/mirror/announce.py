"""Messages of the gateway itself, on its own topics.

In: a topic and a payload. Out: a message at QoS 0 to current subscribers, and the retained message
of the topic for later subscribers. The retained message exists in memory only: it is never written
to the disk or the spool. The configuration decides who may publish to these topics (`Config`).
"""

from __future__ import annotations

from gateway.broker.core import Core
from gateway.broker.fan_out import publish
from gateway.broker.publish_run import PublishRun
from gateway.broker.retained import Retained


def announce(core: Core, name: str, payload: bytes) -> None:
    """Publish a payload. An empty payload removes the retained message. If the bounds of
    retained messages leave no room, only current subscribers get the payload.
    """
    topic = core.router.routed(core.router.topic(name))
    topic.spooled = False
    if topic.refused:
        return
    publish(core, PublishRun(topic, payload, retain=True), "")
    limits = core.limits
    if not payload:
        if core.retained.remove(name):  # a client's earlier message may be on disk
            core.changes.retained[name] = None
    elif core.retained.fits(name, len(payload) + len(name), limits):
        core.retained.put(Retained(name, "", 0, payload))
