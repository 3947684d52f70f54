"""The names of queue bounds, for log lines and answers.

In: a session's client identifier and the section for its queue. Out: the key of the configuration
that sets the bound in force.
"""

from typing import Literal

from gateway.config.sections import BRIDGE, QueueSection


def queue_key(
    client: str, section: QueueSection, unit: Literal["messages", "bytes"], value: int
) -> str:
    """Return the configuration key that limits a client's queue, with its value, such as
    `limits.queue_bytes = 64000000`.
    """
    if client.startswith(BRIDGE):
        key = f"[[bridge]] max_{unit}"
    elif getattr(section, unit) is None:
        key = f"limits.queue_{unit}"
    else:
        key = f"[[queue]] {unit}"
    return f"{key} = {value}"
