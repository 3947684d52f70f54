"""A client that brings each message of a Python program into Onceway's table exactly once.
`README.md` beside this package has the promise and its limits.
"""

from onceway_publisher.errors import (
    JournalError,
    JournalFull,
    JournalLocked,
    NoIdentity,
    PublisherError,
    Refused,
    StillWaiting,
    Unreadable,
)
from onceway_publisher.publisher import Publication, Publisher
from onceway_publisher.sync import SyncPublisher

__all__ = [
    "JournalError",
    "JournalFull",
    "JournalLocked",
    "NoIdentity",
    "Publication",
    "Publisher",
    "PublisherError",
    "Refused",
    "StillWaiting",
    "SyncPublisher",
    "Unreadable",
]
