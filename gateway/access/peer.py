"""The far end of a connection. In: data from the link. Out: data for logs, access rules and the
identity of publications.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """The device that sent HELLO on a reliable link or a turn link. Its name and incarnation are
    the first two parts of the identity of its publications.
    """

    name: str
    incarnation: int
    next_sequence: int
    """The next sequence that the device will use."""
    proved: bool = False
    """Whether the device has proved that it has the key that is registered under this name."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The far end of a connection."""

    listener: str
    address: str
    """Address for logs, for example `127.0.0.1:40312` or `/dev/ttyUSB0`."""
    device: DeviceIdentity | None = None
    """The device that sent HELLO on the link, or None on a network connection."""
    certificate_name: str | None = None
    """The name in the client's certificate, or None."""
