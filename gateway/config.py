"""The one configuration file of a gateway: TOML in, a checked `Config` out.

`onceway gateway run` and `onceway uplink run` read the same file. Whatever is wrong with it is said as key, value and reason; unknown
keys are refused, since a misspelt key that is silently ignored is a setting that is not in force.
"""

import tomllib
from datetime import time
from difflib import get_close_matches
from fnmatch import fnmatchcase
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from gateway.errors import OncewayError
from gateway.mqtt.topics import SHARE_PREFIX, SYSTEM_PREFIX, topic_filter_problem

MEGABYTE = 1_000_000
_OFTEN = ("file", "s3", "sftp")
"""Schemes of landing places that fsspec knows for sure."""


class ConfigError(OncewayError):
    """The configuration file cannot be used."""

    exit_code = 2


def _check_bind(value: str) -> str:
    split_bind(value)
    return value


def _check_filter(value: str) -> str:
    if problem := topic_filter_problem(value):
        raise ValueError(f"a topic filter that {problem}")
    if value.startswith(SHARE_PREFIX):
        raise ValueError("a shared subscription has no place here")
    return value


def _check_spooled(value: str) -> str:
    if value.startswith(SYSTEM_PREFIX):
        raise ValueError("the broker's own figures do not go up")
    return value


def _check_name(value: str) -> str:
    if "/" in value or value in (".", "..") or not value.isprintable():
        raise ValueError("must be usable as a folder name: printable, without '/'")
    return value


def _check_window(value: str) -> str:
    split_window(value)
    return value


def split_window(value: str) -> tuple[time, time]:
    """`22:00-06:00` → (begin, end). ValueError with the reason."""
    try:
        begin, end = (time.fromisoformat(part) for part in value.split("-"))
    except ValueError:
        raise ValueError("must be two times of day, such as 22:00-06:00") from None
    return begin, end


def _check_landing(value: str) -> str:
    scheme, colon, path = value.partition("://")
    if colon and scheme not in _OFTEN:
        from fsspec.registry import known_implementations, registry  # 4 MB that a gateway does not spend on the places it knows

        if scheme not in known_implementations and scheme not in registry:
            raise ValueError(f"there is no file system called {scheme!r}")
    if not value or (colon and not path.strip("/")):
        raise ValueError("names no place")
    if not colon and not value.startswith("/"):
        raise ValueError("must be a URL, such as file:///srv/landing, or an absolute path")
    return value


def split_bind(value: str) -> tuple[str, int]:
    """`127.0.0.1:1883`, `[::1]:1883` or `:1883` (every address) → (host, port). ValueError with the reason."""
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError("must be ADDRESS:PORT, such as 127.0.0.1:1883 or [::1]:1883")
    host = host.removeprefix("[").removesuffix("]")
    if host and host != "localhost":
        try:
            ip_address(host)
        except ValueError:
            raise ValueError(f"{host!r} is not an IP address") from None
    return host, int(port)


Bind = Annotated[str, AfterValidator(_check_bind)]
Window = Annotated[str, AfterValidator(_check_window)]
TopicFilter = Annotated[str, AfterValidator(_check_filter)]
SpoolFilter = Annotated[TopicFilter, AfterValidator(_check_spooled)]
Count = Annotated[int, Field(ge=1)]
FilePath = Annotated[Path, Field(strict=False)]
U16 = Annotated[int, Field(ge=1, le=65535)]


class Section(BaseModel):
    """A table of the file: nothing unknown in it, nothing converted from another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class GatewaySection(Section):
    """name: unique among the gateways of one landing place. data: the folder of the store. trust_clock: take the system's clock for
    right even when the kernel does not call it synchronised. sys_interval_s: seconds between two looks at the figures under `$SYS`; 0: none
    there."""

    name: Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_check_name)] = "gateway"
    data: Path = Field(default=Path("/var/lib/onceway"), strict=False)
    trust_clock: bool = False
    sys_interval_s: Annotated[int, Field(ge=0, le=86_400)] = 10


class TlsSection(Section):
    """TLS 1.2 and up. Files in PEM format. client_ca: authorities whose client certificates are taken; the common name in one is the user
    name. client_crl: the authorities' lists of revoked certificates; without one of an authority, or past its date, no certificate of it is
    taken. client_required: no entry without a certificate."""

    certificate: FilePath
    key: FilePath
    client_ca: FilePath | None = None
    client_crl: FilePath | None = None
    client_required: bool = False

    @model_validator(mode="after")
    def _has_authority(self) -> "TlsSection":
        if self.client_ca is None and (self.client_required or self.client_crl is not None):
            raise ValueError("client_required and client_crl need client_ca: whose certificates are to be taken?")
        return self


class ListenerSection(Section):
    """MQTT over TCP or WebSocket. bind: an address, or the name of a socket from systemd (`FileDescriptorName=`).

    anonymous: take clients without a user name; default: on a loopback address, as long as there are no users. receive_maximum: QoS 1 and 2
    messages that a client may have in flight towards us (MQTT 5, section 3.2.2.3.3). origins: web pages that may connect over WebSocket
    from other hosts.
    """

    type: Literal["tcp", "websocket"] = "tcp"
    bind: Bind | None = None
    systemd: Annotated[str, Field(min_length=1)] | None = None
    anonymous: bool | None = None
    receive_maximum: U16 = 1024
    tls: TlsSection | None = None
    origins: list[str] = []

    @model_validator(mode="after")
    def _one_place(self) -> "ListenerSection":
        if (self.bind is None) == (self.systemd is None):
            raise ValueError("needs either bind = ADDRESS:PORT or systemd = NAME")
        if self.origins and self.type != "websocket":
            raise ValueError("origins are for listeners with type = 'websocket'")
        return self

    @property
    def name(self) -> str:
        """For logs."""
        return self.bind or f"systemd:{self.systemd}"

    @property
    def knows_certificates(self) -> bool:
        """Whether a client may show a certificate."""
        return self.tls is not None and self.tls.client_ca is not None

    @property
    def is_local(self) -> bool:
        """Whether only programs of this machine reach it, and need not show who they are."""
        host, _ = self.address
        return (host == "localhost" or (host != "" and ip_address(host).is_loopback)) and not self.knows_certificates

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; an empty host is every address."""
        return split_bind(self.bind) if self.bind else ("", 0)


class SerialSection(Section):
    """Serial ports with boards. port: a path or a shell pattern. open: any board may greet; otherwise those in the device registry only.
    receive_maximum: 1, since a board journals one exchange at a time."""

    port: Annotated[str, Field(min_length=1)]
    baud: Annotated[int, Field(ge=300, le=4_000_000)] = 115200
    open: bool = False
    receive_maximum: U16 = 1


class SpoolSection(Section):
    """topics: filters of what goes up. max_bytes: a full spool refuses new messages with 0x97 and drops nothing."""

    topics: Annotated[list[SpoolFilter], Field(min_length=1)] = ["#"]
    max_bytes: Count = 1000 * MEGABYTE


class LimitsSection(Section):
    """Bounds that hold for every client. Sizes in bytes.

    connections: clients at a time, and as many again that have not said CONNECT yet. connects_per_s: CONNECTs from one address, in bursts
    of ten seconds' worth. sessions: clients that are there, and those that may come back.

    queue_*: QoS 1 and 2 messages waiting for one session; memory_bytes: for all sessions, and again for subscriptions, and for packets that
    have not come whole. topic_levels: of a topic or a filter. retained, retained_bytes: messages, and their size. outgoing_bytes: written
    to one connection and not yet taken by the peer; beyond it QoS 0 is dropped and the rest waits in the queue. inflight: QoS 1 and 2
    messages sent to one client and not yet acknowledged, whatever Receive Maximum it announces. keep_alive_s: the longest keep alive of
    MQTT 5 clients; who asks for more, or for none, is told this one. 0: each its own.
    """

    connections: Count = 20_000
    connects_per_s: Count = 1000
    sessions: Count = 100_000
    packet_bytes: Annotated[int, Field(ge=128, le=268_435_460)] = MEGABYTE
    inflight: U16 = 1024
    queue_messages: Count = 100_000
    queue_bytes: Count = 64 * MEGABYTE
    memory_bytes: Count = 256 * MEGABYTE
    outgoing_bytes: Count = 4 * MEGABYTE
    subscriptions: Count = 1000
    topic_levels: Count = 128
    retained: Count = 100_000
    retained_bytes: Count = 64 * MEGABYTE
    connect_timeout_s: Annotated[int, Field(ge=1, le=3600)] = 10
    keep_alive_s: Annotated[int, Field(ge=0, le=65535)] = 0
    session_expiry_s: Annotated[int, Field(ge=0, le=0xFFFF_FFFF)] = 0xFFFF_FFFF
    topic_aliases: Annotated[int, Field(ge=0, le=65535)] = 64


class QueueSection(Section):
    """What happens with the queues of some clients. clients: shell pattern of client identifiers; the first section that fits counts.

    full: "end the session" (its client learns so by Session Present 0: never a silent gap), "drop the oldest" (counted), or "refuse the
    publisher" (0x97). qos_0: keep QoS 0 messages, too, while the client is away; in memory, not on disk.
    """

    clients: Annotated[str, Field(min_length=1)] = "*"
    full: Literal["end the session", "drop the oldest", "refuse the publisher"] = "end the session"
    qos_0: bool = False


class WebSection(Section):
    """`/metrics` for Prometheus and `/healthz`, over HTTP and for everybody who reaches the address. Without the section there is none."""

    bind: Bind = "127.0.0.1:9464"


class LogSection(Section):
    """Lines on standard error. format: for people, or one JSON object a line. level: the least that is said; "info" is each connection.
    Without it: warnings, and what a service does as a whole, such as starting or landing a batch."""

    format: Literal["human", "json"] = "human"
    level: Literal["debug", "info", "warning", "error"] | None = None


class AccessSection(Section):
    """users: the file of user names and password hashes (`onceway user add`); default: `users` in the data directory, if it is there."""

    users: FilePath | None = None


class AclSection(Section):
    """What some clients may do. users, clients: shell patterns; "" is the user of anonymous clients and of devices.

    write: filters of the topics that they may publish to. read: of the topics that they may receive. subscribe: filters that cover those
    that they may ask for; without it, read holds. `%u` and `%c` stand for the user name and the client identifier.
    """

    users: Annotated[list[str], Field(min_length=1)] = ["*"]
    clients: Annotated[list[str], Field(min_length=1)] = ["*"]
    write: list[TopicFilter] = []
    read: list[TopicFilter] = []
    subscribe: list[TopicFilter] = []


class UplinkSection(Section):
    """landing: fsspec URL of the landing place; options: its fsspec storage options. A batch is cut at batch_count rows, batch_bytes of
    payload, or when its oldest row is batch_age_s old.

    window: times of day when batches may leave, such as "22:00-06:00" (local time); none: always. bytes_per_s: bound of the average rate.
    retry_s: the longest wait between two tries in an outage. read_back: fetch each file again whole, even where the place proves it
    cheaper.
    """

    landing: Annotated[str, AfterValidator(_check_landing)]
    batch_count: Count = 500
    batch_bytes: Count = MEGABYTE
    batch_age_s: Annotated[float, Field(gt=0, strict=False)] = 60.0
    window: list[Window] = []
    bytes_per_s: Count | None = None
    retry_s: Annotated[float, Field(ge=1, strict=False)] = 60.0
    read_back: bool = False
    options: dict[str, Any] = {}


_DEFAULT_QUEUE = QueueSection()


class Config(Section):
    """The whole file."""

    gateway: GatewaySection = GatewaySection()
    listener: list[ListenerSection] = []
    serial: list[SerialSection] = []
    spool: SpoolSection = SpoolSection()
    limits: LimitsSection = LimitsSection()
    queue: list[QueueSection] = []
    access: AccessSection = AccessSection()
    acl: list[AclSection] = []
    uplink: UplinkSection | None = None
    web: WebSection | None = None
    log: LogSection = LogSection()

    @property
    def users_file(self) -> Path:
        """Where users and their password hashes are."""
        return self.access.users or self.gateway.data / "users"

    def queueing(self, client: str) -> QueueSection:
        """The section for a client's queue."""
        return next((section for section in self.queue if fnmatchcase(client, section.clients)), _DEFAULT_QUEUE)

    @model_validator(mode="after")
    def _unique(self) -> "Config":
        for kind, values in (("bind", [item.bind for item in self.listener if item.bind]), ("port", [item.port for item in self.serial])):
            for value in values:
                if values.count(value) > 1 and not value.endswith(":0"):
                    raise ValueError(f"two sections have the {kind} {value!r}")
        return self


def load(path: Path) -> Config:
    """Read and check a file. Raises ConfigError naming each key with its value and the reason."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the configuration ({error.strerror})", str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the configuration is not UTF-8 (byte {error.start})", str(path)) from error
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}", str(path)) from error
    return parse(values, str(path))


def parse(values: dict[str, Any], where: str) -> Config:
    """Check values that were read from `where`. Raises ConfigError."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError("; ".join(map(_explain, error.errors())), where) from error


def _explain(problem: Any) -> str:
    """One finding of pydantic as `key = value: reason`."""
    key = "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).lstrip(".")
    if problem["type"] == "extra_forbidden":
        return f"{key}: there is no such key{_meant(problem['loc'])}"
    if problem["type"] == "missing":
        return f"{key}: is missing"
    if problem["type"] == "path_type":
        return f"{key}{_shown(problem['loc'], problem['input'])}: input should be a path, in quotes"
    reason = problem["msg"].removeprefix("Value error, ")
    reason = reason[:1].lower() + reason[1:]
    return f"{key}{_shown(problem['loc'], problem['input'])}: {reason}" if key else reason


def _shown(path: tuple[int | str, ...], value: Any) -> str:
    """A value for an error that ends up in a log; nothing for one that may hold a password: storage options, and URLs with a login."""
    url = str(value)
    return "" if path[:2] == ("uplink", "options") or ("://" in url and "@" in url) else f" = {value!r}"


def _meant(path: tuple[int | str, ...]) -> str:
    """Which known key an unknown one looks like, if any."""
    section: type[BaseModel] = Config
    for name in path[:-1]:
        if isinstance(name, str):
            kinds = [section.model_fields[name].annotation]
            kinds += [part for kind in kinds for part in get_args(kind)]
            section = next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel))
    near = get_close_matches(str(path[-1]), section.model_fields, 1)
    return f", {near[0]!r} was meant?" if near else ""
