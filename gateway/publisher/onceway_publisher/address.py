"""The gateway's address and login. In: a URL such as mqtts://user:password@pi:8883. Out: host,
port, TLS, login.
"""

import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from onceway_publisher.errors import Unreadable

PORTS = {"mqtt": 1883, "mqtts": 8883}
_UNKNOWN = (18, 19, 20, 21)
"""OpenSSL's codes for a certificate whose issuer is not known (X509_V_ERR_…)."""


@dataclass(frozen=True)
class Address:
    """The address of a gateway. tls: None for a plain connection."""

    host: str
    port: int
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def login(self) -> list[str | bytes]:
        """User and password for CONNECT; empty without a user."""
        if self.user is None:
            return []
        return [self.user] if self.password is None else [self.user, self.password]

    def cause(self, error: Exception, met: bool) -> str:
        """Return the cause of a lost or failed connection, with a remedy if one is known. met:
        whether the gateway had answered CONNECT.
        """
        if isinstance(error, ssl.SSLCertVerificationError):
            todo = (
                ". Name the file of its CA with tls= (--ca)"
                if error.verify_code in _UNKNOWN
                else ""
            )
            return f"its certificate is refused: {error.verify_message.rstrip('.')}{todo}"
        text = str(error) or ("no answer" if isinstance(error, TimeoutError) else repr(error))
        if met or isinstance(error, ConnectionRefusedError | socket.gaierror):
            return text
        hint = "has no TLS, write mqtt://" if self.tls else "uses TLS, write mqtts://"
        return f"{text}. If the port {hint}"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def address(
    url: str, user: str | None, password: str | None, tls: ssl.SSLContext | str | None
) -> Address:
    """Return the address in a URL. user, password: used instead of those in the URL. tls: a
    context, or the path of a CA file. Raises Unreadable if a part is invalid.
    """
    parts, port = urlsplit(url), 0
    with suppress(ValueError):
        port = parts.port or PORTS.get(parts.scheme, 0)
    if not port or parts.scheme not in PORTS or not parts.hostname or parts.path.strip("/"):
        raise Unreadable(
            f"{parts._replace(netloc=parts.netloc.rpartition('@')[2]).geturl()!r} is not an address"
            " of a gateway. Write mqtts://HOST or mqtt://HOST, with :PORT if not the usual port"
        )
    if tls is not None and parts.scheme == "mqtt":
        raise Unreadable("tls needs an address that begins with mqtts://")
    if parts.scheme == "mqtts" and not isinstance(tls, ssl.SSLContext):
        try:
            tls = ssl.create_default_context(cafile=tls)
        except (OSError, ssl.SSLError) as error:
            raise Unreadable(f"{tls}: this CA file cannot be read: {error}") from error
    user = user if user is not None else parts.username and unquote(parts.username)
    if password is None and parts.password:
        password = unquote(parts.password)
    if password is not None and user is None:
        raise Unreadable("a password needs a user")
    context = tls if isinstance(tls, ssl.SSLContext) else None
    return Address(parts.hostname, port, context, user or None, password)
