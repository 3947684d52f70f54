"""Whether a stored place of a queue, and its message, can be sent.

In: columns of `queue` and `message` as the store holds them. Out: True or False. SQL
(`gateway/store/queue_reads.py`) and the reader of pages (`queue_pages.py`) ask the same functions.
"""

from functools import lru_cache

from gateway.mqtt.errors import MqttError
from gateway.mqtt.properties import SERVER_PUBLISH_PROPERTIES, decode_properties
from gateway.mqtt.topics import topic_name_problem
from gateway.mqtt.wire import Reader, encode_varint

FLAGS = 2, 5
"""Lowest and highest `queue.flags`: QoS 1 or 2, RETAIN or not."""
HIGHEST = 1 << 53
"""Highest plausible number of a message and time on the axis in ms."""
MOST = 0xFFFF_FFFF
"""Most publications in one row."""


def text(data: bytes | str | None) -> str | None:
    """Text from the store; None if the bytes are no UTF-8."""
    if not isinstance(data, bytes):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


@lru_cache(4096)
def is_topic(data: bytes) -> bool:
    """Whether these bytes are a Topic Name."""
    name = text(data)
    return name is not None and topic_name_problem(name) is None


def is_text(data: bytes) -> bool:
    """Whether these bytes are UTF-8."""
    return text(data) is not None


def is_block(block: bytes) -> bool:
    """Whether these bytes are properties of a PUBLISH, without their length."""
    if not block:
        return True
    try:
        reader = Reader(encode_varint(len(block)) + block, "the store")
        decode_properties(reader, SERVER_PUBLISH_PROPERTIES)
    except (MqttError, ValueError):
        return False
    return True
