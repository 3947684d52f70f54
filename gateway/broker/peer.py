"""Who is at the far end of a connection. In: what the link knows. Out: for logs, access and
publication identity.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """Who greeted on a reliable link: the first two parts of publication identity, and the next
    sequence it will use. proved: it has shown that it has the key of this name.
    """

    name: str
    incarnation: int
    next_sequence: int
    proved: bool = False


@dataclass(frozen=True, slots=True)
class Peer:
    """The far end of a connection. address: for logs, e.g. `127.0.0.1:40312` or `/dev/ttyUSB0`.

    device: who greeted on a reliable link. certificate_name: common name of the certificate that a
    TLS client has proved to own.
    """

    listener: str
    address: str
    device: DeviceIdentity | None = None
    certificate_name: str | None = None
