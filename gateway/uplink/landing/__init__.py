"""Landing places of batches: one interface, and one module per kind of place (folder, SFTP, S3, any
other file system of fsspec).

In: bytes, and names below the landing URL. Out: complete files under these names, or an error;
never half a file under a final name.
"""

from gateway.uplink.landing.base import (
    Claimed,
    Landing,
    NotExclusive,
    Unreachable,
    Way,
    without_password,
)
from gateway.uplink.landing.by_url import open_landing

__all__ = [
    "Claimed",
    "Landing",
    "NotExclusive",
    "Unreachable",
    "Way",
    "open_landing",
    "without_password",
]
