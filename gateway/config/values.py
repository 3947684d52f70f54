"""Types of configuration values, each with its check: addresses, filters, names, times, landing
places.
"""

import re
from datetime import time
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import AfterValidator, Field

from gateway.mqtt.topics import (
    SHARE_PREFIX,
    SYSTEM_PREFIX,
    topic_filter_problem,
    topic_name_problem,
)
from gateway.system import gateway_name

_OFTEN = ("file", "s3", "sftp")
"""Schemes of landing places that are accepted without loading fsspec's list of schemes."""


def _check_bind(value: str) -> str:
    split_bind(value)
    return value


def _check_filter(value: str) -> str:
    if problem := topic_filter_problem(value):
        raise ValueError(f"the topic filter {problem}")
    if value.startswith(SHARE_PREFIX):
        raise ValueError("a shared subscription is not allowed here")
    return value


def _check_spooled(value: str) -> str:
    if value.startswith(SYSTEM_PREFIX):
        raise ValueError("topics of the broker itself ($SYS) are not kept for the uplink")
    return value


def _check_prefix(value: str) -> str:
    if problem := topic_name_problem(value):
        raise ValueError(f"the topic {problem}")
    if value.startswith("$") or value.endswith("/"):
        raise ValueError(
            "must be the first levels of a topic: no $ at the beginning, no / at the end"
        )
    return value


def _check_name(value: str) -> str:
    if problem := gateway_name.problem(value):
        raise ValueError(problem)
    return value


def _check_address(value: str) -> str:
    split_address(value)
    return value


def _check_member(value: str) -> str:
    if len(value.encode()) > 64:
        raise ValueError("is longer than the 64 bytes of UTF-8 that a certificate has room for")
    return value


def _check_bridge(value: str) -> str:
    if not re.fullmatch("[A-Za-z0-9_-]{1,32}", value):
        raise ValueError("must have 1 to 32 characters: letters from a to z, digits, _ and -")
    return value


def _url(value: str) -> SplitResult:
    """Return the parts of a URL. Raises ValueError for an impossible host or port."""
    url = urlsplit(value)
    if any(sign.isspace() or not sign.isprintable() for sign in value):
        raise ValueError("a URL has no spaces")
    try:
        port = url.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("the port of a URL is a number from 1 to 65535")
    return url


def _check_hook(value: str) -> str:
    url = _url(value)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError("must be a URL, such as https://auth.example/mqtt")
    if url.username is not None or url.password is not None:
        raise ValueError("must have no password")
    return value


def _check_mail_server(value: str) -> str:
    url = _url(value)
    if url.scheme not in ("smtp", "smtps") or not url.hostname or url.path or url.query:
        raise ValueError("must be a URL, such as smtps://mail.example or smtp://mail.example:587")
    if url.username is not None or url.password is not None:
        raise ValueError("must have no password: use mail_user and mail_password_file")
    return value


def _check_broker(value: str) -> str:
    split_broker(value)
    return value


def split_broker(value: str) -> tuple[str, int, bool]:
    """Split `mqtts://broker.example:8883` into (host, port, with TLS). Raises ValueError."""
    url = _url(value)
    beyond = url.path or url.query or "#" in value
    if url.scheme not in ("mqtt", "mqtts") or not url.hostname or beyond:
        raise ValueError("must be a URL, such as mqtts://broker.example or mqtt://10.0.0.2:1883")
    if url.username is not None or url.password is not None:
        raise ValueError("must have no password: use user and password_file")
    encrypted = url.scheme == "mqtts"
    return url.hostname, url.port or (8883 if encrypted else 1883), encrypted


def _check_beat(value: str) -> str:
    if value.startswith(("mqtt://", "mqtts://")):
        split_beat(value)
        return value
    return _check_hook(value)


def split_beat(value: str) -> tuple[str, int, bool, str]:
    """Split `mqtts://broker.example/a/b` into (host, port, with TLS, topic) or raise ValueError."""
    url = urlsplit(value)
    topic = unquote(url.path[1:])
    beyond = url.query or "#" in value or topic.startswith("$")
    if not topic or beyond or topic_name_problem(topic):
        raise ValueError(
            "must be a URL with a topic, such as mqtts://broker.example/onceway/site-1"
        )
    return (*split_broker(url._replace(path="").geturl()), topic)


def _check_below(value: str) -> str:
    if value and (not value.endswith("/") or value.startswith("$") or topic_name_problem(value)):
        raise ValueError('must be the first levels of a topic and end with /, such as "site-1/"')
    return value


def _check_network(value: str) -> str:
    try:
        ip_network(value, strict=False)
    except ValueError:
        raise ValueError(
            "must be an address or a network, such as 10.0.0.2 or 10.0.0.0/24"
        ) from None
    return value


def _check_plain(value: str) -> str:
    if value.startswith("$"):
        raise ValueError(
            "topics that begin with $ belong to one broker: a bridge does not forward them"
        )
    return value


def _check_window(value: str) -> str:
    split_window(value)
    return value


def split_window(value: str) -> tuple[time, time]:
    """Split `22:00-06:00` into (begin, end). Raises ValueError with the reason."""
    try:
        begin, end = (time.fromisoformat(part) for part in value.split("-"))
        if begin.tzinfo or end.tzinfo:
            raise ValueError
    except ValueError:
        raise ValueError("must be two times of day, such as 22:00-06:00") from None
    return begin, end


def _check_landing(value: str) -> str:
    scheme, colon, path = value.partition("://")
    if colon and scheme not in _OFTEN:
        # fsspec takes 4 MB: not loaded for common schemes
        from fsspec.registry import (
            known_implementations,
            registry,
        )

        if scheme not in known_implementations and scheme not in registry:
            raise ValueError(f"there is no file system called {scheme!r}")
    if not value or (colon and not path.strip("/")):
        raise ValueError("names no folder or bucket")
    if not colon and not value.startswith("/"):
        raise ValueError("must be a URL, such as file:///srv/landing, or an absolute path")
    if colon and scheme == "file" and not path.startswith("/"):
        raise ValueError("must be an absolute path: file:///srv/landing has three slashes")
    if scheme == "sftp" and path.startswith("/"):
        raise ValueError("names no server: write sftp://user@server/folder")
    return value


def split_bind(value: str) -> tuple[str, int]:
    """Split `127.0.0.1:1883`, `[::1]:1883` or `:1883` (every address); or raise ValueError."""
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdecimal():
        raise ValueError("must be ADDRESS:PORT, such as 127.0.0.1:1883 or [::1]:1883")
    if int(port) > 65535:
        raise ValueError("a port is a number up to 65535; MQTT's are 1883, and 8883 with TLS")
    host = host.removeprefix("[").removesuffix("]")
    if host and host != "localhost":
        try:
            ip_address(host)
        except ValueError:
            raise ValueError(f"{host!r} is not an IP address") from None
    return host, int(port)


def split_address(value: str) -> tuple[str, int]:
    """Split `10.0.0.2:8884`, `attic.local:8884` or `[fe80::1]:8884`; or raise ValueError."""
    host, colon, port = value.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isdecimal() and 0 < int(port) <= 65535):
        raise ValueError("must be HOST:PORT, such as 10.0.0.2:8884 or attic.local:8884")
    if not host.isprintable() or " " in host:
        raise ValueError(f"{host!r} is not the name of a machine")
    return host, int(port)


def is_local(bind: str) -> bool:
    """Return whether an address is reachable only from this machine."""
    host, _ = split_bind(bind)
    return host == "localhost" or (host != "" and ip_address(host).is_loopback)


Address = Annotated[str, AfterValidator(_check_address)]
Bind = Annotated[str, AfterValidator(_check_bind)]
Network = Annotated[str, AfterValidator(_check_network)]
BridgeName = Annotated[str, AfterValidator(_check_bridge)]
BrokerUrl = Annotated[str, AfterValidator(_check_broker)]
Below = Annotated[str, AfterValidator(_check_below)]
GatewayName = Annotated[
    str, Field(min_length=1, max_length=gateway_name.LONGEST), AfterValidator(_check_name)
]
MemberName = Annotated[GatewayName, AfterValidator(_check_member)]
HookUrl = Annotated[str, AfterValidator(_check_hook)]
BeatUrl = Annotated[str, AfterValidator(_check_beat)]
MailServer = Annotated[str, AfterValidator(_check_mail_server)]
Landing = Annotated[str, AfterValidator(_check_landing)]
Window = Annotated[str, AfterValidator(_check_window)]
TopicPrefix = Annotated[str, AfterValidator(_check_prefix)]
TopicFilter = Annotated[str, AfterValidator(_check_filter)]
SpoolFilter = Annotated[TopicFilter, AfterValidator(_check_spooled)]
PlainFilter = Annotated[TopicFilter, AfterValidator(_check_plain)]
Count = Annotated[int, Field(ge=1)]
FilePath = Annotated[Path, Field(strict=False)]
U16 = Annotated[int, Field(ge=1, le=65535)]
