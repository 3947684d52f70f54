"""The tables of the configuration file, key by key: what each means, its bounds, and what holds
where it is not given.
"""

from fnmatch import fnmatchcase
from ipaddress import ip_address
from pathlib import Path
from shutil import disk_usage
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gateway.config.values import (
    U16,
    Bind,
    Count,
    FilePath,
    GatewayName,
    Landing,
    SpoolFilter,
    TopicFilter,
    Window,
    split_bind,
)

MEGABYTE = 1_000_000


class Section(BaseModel):
    """A table of the file: nothing unknown in it, nothing converted from another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class GatewaySection(Section):
    """name: unique among the gateways of one landing place. data: the folder of the store.
    trust_clock: take the system's clock for right even when the kernel does not call it
    synchronised. sys_interval_s: seconds between two looks at the figures under `$SYS`; 0: none
    there.
    """

    name: GatewayName = "gateway"
    data: Path = Field(default=Path("/var/lib/onceway"), strict=False)
    trust_clock: bool = False
    sys_interval_s: Annotated[int, Field(ge=0, le=86_400)] = 10


class TlsSection(Section):
    """TLS 1.2 and up. Files in PEM format. client_ca: authorities whose client certificates are
    taken; the common name in one is the user name. client_crl: the authorities' lists of revoked
    certificates; without one of an authority, or past its date, no certificate of it is taken.
    client_required: no entry without a certificate.
    """

    certificate: FilePath
    key: FilePath
    client_ca: FilePath | None = None
    client_crl: FilePath | None = None
    client_required: bool = False

    @model_validator(mode="after")
    def _has_authority(self) -> "TlsSection":
        if self.client_ca is None and (self.client_required or self.client_crl is not None):
            raise ValueError(
                "client_required and client_crl need client_ca: whose certificates are to be taken?"
            )
        return self


class ListenerSection(Section):
    """MQTT over TCP or WebSocket. bind: an address, or the name of a socket from systemd
    (`FileDescriptorName=`).

    anonymous: take clients without a user name; default: on a loopback address, as long as there
    are no users. receive_maximum: QoS 1 and 2 messages that a client may have in flight towards us
    (MQTT 5, section 3.2.2.3.3). origins: web pages that may connect over WebSocket from other
    hosts.
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
        return (
            host == "localhost" or (host != "" and ip_address(host).is_loopback)
        ) and not self.knows_certificates

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; an empty host is every address."""
        return split_bind(self.bind) if self.bind else ("", 0)


class SerialSection(Section):
    """Serial ports with boards. port: a path or a shell pattern. open: any board may greet;
    otherwise those in the device registry only. receive_maximum: 1, since a board journals one
    exchange at a time.
    """

    port: Annotated[str, Field(min_length=1)]
    baud: Annotated[int, Field(ge=300, le=4_000_000)] = 115200
    open: bool = False
    receive_maximum: U16 = 1


class SpoolSection(Section):
    """topics: filters of what goes up. max_bytes: a full spool refuses new messages with 0x97 and
    drops nothing. max_share: a second bound, as a share of the whole disk that the data directory
    is on (0.5: half of it).
    """

    topics: Annotated[list[SpoolFilter], Field(min_length=1)] = ["#"]
    max_bytes: Count = 1000 * MEGABYTE
    max_share: Annotated[float, Field(gt=0, le=1)] = 1.0


class LimitsSection(Section):
    """Bounds that hold for every client. Sizes in bytes.

    connections: clients at a time, and as many again that have not said CONNECT yet.
    connects_per_s: CONNECTs from one address, in bursts of ten seconds' worth. sessions: clients
    that are there, and those that may come back.

    queue_*: QoS 1 and 2 messages waiting for one session; memory_bytes: for all sessions, and again
    for subscriptions, and for packets that have not come whole. topic_levels: of a topic or a
    filter. retained, retained_bytes: messages, and their size. outgoing_bytes: written to one
    connection and not yet taken by the peer; beyond it QoS 0 is dropped and the rest waits in the
    queue. inflight: QoS 1 and 2 messages sent to one client and not yet acknowledged, whatever
    Receive Maximum it announces. keep_alive_s: the longest keep alive of MQTT 5 clients; who asks
    for more, or for none, is told this one. 0: each its own.
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
    """What happens with the queues of some clients. clients: shell pattern of client identifiers;
    the first section that fits counts.

    full: "end the session" (its client learns so by Session Present 0: never a silent gap), "drop
    the oldest" (counted), or "refuse the publisher" (0x97). qos_0: keep QoS 0 messages, too, while
    the client is away; in memory, not on disk.
    """

    clients: Annotated[str, Field(min_length=1)] = "*"
    full: Literal["end the session", "drop the oldest", "refuse the publisher"] = "end the session"
    qos_0: bool = False


class WebSection(Section):
    """`/metrics` for Prometheus and `/healthz`, over HTTP and for everybody who reaches the
    address. Without the section there is none.
    """

    bind: Bind = "127.0.0.1:9464"


class LogSection(Section):
    """Lines on standard error. format: for people, or one JSON object a line. level: the least that
    is said; "info" is each connection. Without it: warnings, and what a service does as a whole,
    such as starting or landing a batch.
    """

    format: Literal["human", "json"] = "human"
    level: Literal["debug", "info", "warning", "error"] | None = None


class AccessSection(Section):
    """users: the file of user names and password hashes (`onceway user add`); default: `users` in
    the data directory, if it is there.
    """

    users: FilePath | None = None


class AclSection(Section):
    """What some clients may do. users, clients: shell patterns; "" is the user of anonymous clients
    and of devices.

    write: filters of the topics that they may publish to. read: of the topics that they may
    receive. subscribe: filters that cover those that they may ask for; without it, read holds. `%u`
    and `%c` stand for the user name and the client identifier.
    """

    users: Annotated[list[str], Field(min_length=1)] = ["*"]
    clients: Annotated[list[str], Field(min_length=1)] = ["*"]
    write: list[TopicFilter] = []
    read: list[TopicFilter] = []
    subscribe: list[TopicFilter] = []


class UplinkSection(Section):
    """landing: fsspec URL of the landing place; options: its fsspec storage options. A batch is cut
    at batch_count rows, batch_bytes of payload, or when its oldest row is batch_age_s old.

    window: times of day when batches may leave, such as "22:00-06:00" (local time); none: always.
    bytes_per_s: bound of the average rate. retry_s: the longest wait between two tries in an
    outage. read_back: fetch each file again whole, even where the place proves it cheaper.
    """

    landing: Landing
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

    @property
    def spool_bytes(self) -> int:
        """The bound of the spool on the disk that the data directory is on, which must be there."""
        share = self.spool.max_share
        return (
            self.spool.max_bytes
            if share == 1
            else min(self.spool.max_bytes, int(share * disk_usage(self.gateway.data).total))
        )

    def queueing(self, client: str) -> QueueSection:
        """The section for a client's queue."""
        return next(
            (section for section in self.queue if fnmatchcase(client, section.clients)),
            _DEFAULT_QUEUE,
        )

    @model_validator(mode="after")
    def _unique(self) -> "Config":
        addresses = [item.bind for item in (*self.listener, self.web) if item and item.bind]
        for kind, values in (("bind", addresses), ("port", [item.port for item in self.serial])):
            for value in values:
                if values.count(value) > 1 and not value.endswith(":0"):
                    raise ValueError(f"two sections have the {kind} {value!r}")
        return self
