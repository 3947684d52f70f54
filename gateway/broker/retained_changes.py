"""Changes of the retained messages: in memory, and in the next commit.

In: publications with RETAIN, the time, and entries of peer gateways. Out: the messages, and rows.

Rules for gateways that share messages, the same at all of them:

- The message or deletion with the highest version of a topic is valid. A version is the time of
  publication (µs UTC) by the clock of the publishing gateway, and always higher than the version
  that it replaces. While the time is not known, the version is one more than the version that it
  replaces. Equal versions are decided in the same way everywhere (`retained_entry.py`).
- Entries that were made before the gateway had neighbours have the lowest version, 1.
- A deletion is remembered for DELETION_S, or until there are too many.
- Each gateway deletes an expired message by itself, with the same version: one more than the
  message's own.
"""

from __future__ import annotations

from gateway.broker.core import Core
from gateway.broker.retained import Retained
from gateway.broker.spool import ROW_OVERHEAD

BEFORE = 1
"""Version of retained messages that were published while this gateway had no neighbours."""
MOST_VERSION = (1 << 62) - 1
DELETION_S = 30 * 86_400.0
DELETIONS_SHARE = 16
"""Deletions may take 1 / DELETIONS_SHARE of `limits.retained_bytes`."""


def next_version(core: Core, topic: str) -> int:
    """Return the version for a retained message that is published now; 0 without sharing."""
    if not core.retained.shared:
        return 0
    known = core.retained.latest(topic)
    replaced = BEFORE if known is None else max(BEFORE, known.version)
    return min(MOST_VERSION, max(core.utc or 0, replaced + 1))


def keep(core: Core, message: Retained) -> None:
    known, origin = core.retained.get(message.topic), message.origin
    if origin is not (known and known.origin):
        note = None if origin is None else (origin.name, 0)
        core.changes.origins["retained", message.topic] = note
    core.retained.put(message)
    core.changes.retained[message.topic] = message
    core.changes.bytes += message.size + ROW_OVERHEAD


def clear(core: Core, topic: str) -> bool:
    """Remove a topic's message for a publisher. Return False if there was none. If gateways share
    messages, return True: another one may have a message."""
    core.changes.origins["retained", topic] = None
    if core.retained.shared:  # a peer gateway may have a message
        _delete(core, topic, next_version(core, topic))
    elif not core.retained.remove(topic):
        return False
    else:
        core.changes.retained[topic] = None
    return True


def _delete(core: Core, topic: str, version: int) -> None:
    until = core.now + DELETION_S
    put_deletion(core, Retained(topic, "", 0, b"", expires=until, version=version))


def put_deletion(core: Core, deletion: Retained) -> None:
    retained = core.retained
    retained.put_deletion(deletion)
    core.changes.retained[deletion.topic] = deletion
    core.changes.bytes += deletion.size + ROW_OVERHEAD
    while retained.deletion_bytes > core.limits.retained_bytes // DELETIONS_SHARE:
        drop(core, next(iter(retained.deletions)))


def expire(core: Core) -> None:
    for topic in core.retained.expired(core.now):
        message = core.retained.get(topic)
        if message is not None and message.version and core.retained.shared:
            _delete(core, topic, min(MOST_VERSION, message.version + 1))
        else:
            drop(core, topic)


def drop(core: Core, topic: str) -> None:
    """Remove the message of a topic, or the record of its deletion, at this gateway only."""
    core.retained.remove(topic)
    core.retained.forget(topic)
    core.changes.origins["retained", topic] = None
    core.changes.retained[topic] = None
