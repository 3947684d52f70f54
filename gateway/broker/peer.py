"""Who is at the far end of a connection. In: what the link knows. Out: for logs, access and
publication identity.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """Who greeted on a reliable link: the first two parts of publication identity."""

    name: str
    incarnation: int
    next_sequence: int
    """The sequence that it will use next."""
    proved: bool = False
    """It has shown that it has the key of this name."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The far end of a connection."""

    listener: str
    address: str
    """For logs, e.g. `127.0.0.1:40312` or `/dev/ttyUSB0`."""
    device: DeviceIdentity | None = None
    """Who greeted on a reliable link."""
    certificate_name: str | None = None
    """Common name of the certificate that a TLS client has proved to own."""
