"""The tables of the configuration file, key by key: meaning, bounds and default."""

from fnmatch import fnmatchcase
from pathlib import Path
from shutil import disk_usage
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gateway.config.regions import REGIONS
from gateway.config.values import (
    U16,
    Address,
    BeatUrl,
    Below,
    Bind,
    BrokerUrl,
    Count,
    FilePath,
    GatewayName,
    HookUrl,
    Landing,
    MailServer,
    MemberName,
    Network,
    PlainFilter,
    SpoolFilter,
    TopicFilter,
    TopicPrefix,
    Window,
    is_local,
    split_address,
    split_bind,
    split_broker,
)
from gateway.errors import OncewayError

MEGABYTE = 1_000_000


class Section(BaseModel):
    """A table of the file: nothing unknown in it, nothing converted from another type. The text
    under a key is its meaning for people, too (`reference.py`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class GatewaySection(Section):
    """The name of this gateway, and the place of its data."""

    name: GatewayName = "gateway"
    """Unique among the gateways of one landing place."""
    data: Path = Field(default=Path("/var/lib/onceway"), strict=False)
    """The folder of the store."""
    hosts: list[str] = []
    """Shell patterns of more names under which browsers and scrapers ask for page and metrics, such
    as that of a proxy. Addresses, names without a dot and names of private networks (.local, .lan,
    .internal, .home.arpa) are answered anyway. So are this machine's name, and the names of the
    page's certificate.
    """
    trust_clock: bool = False
    """Take the system's clock for right even when the kernel does not call it synchronised."""
    sys_interval_s: Annotated[int, Field(ge=0, le=86_400)] = 10
    """Seconds between two looks at the figures under `$SYS`; 0: none there."""


class TlsSection(Section):
    """TLS 1.2 and up. Files in PEM format."""

    certificate: FilePath
    """The certificate of the gateway, with those between it and its authority."""
    key: FilePath
    """The private key of the certificate."""
    client_ca: FilePath | None = None
    """Authorities whose client certificates are taken; the common name in one is the user name."""
    client_crl: FilePath | None = None
    """The authorities' lists of revoked certificates; without one of an authority, or past its
    date, no certificate of it is taken.
    """
    client_required: bool = False
    """Refuse clients without a certificate."""

    @model_validator(mode="after")
    def _has_authority(self) -> "TlsSection":
        if self.client_ca is None and (self.client_required or self.client_crl is not None):
            raise ValueError(
                "client_required and client_crl need client_ca: whose certificates are to be taken?"
            )
        return self


class ListenerSection(Section):
    """MQTT over TCP or WebSocket."""

    type: Literal["tcp", "websocket"] = "tcp"
    """WebSocket is at the path /mqtt."""
    bind: Bind | None = None
    """An address, such as 127.0.0.1:1883 or [::1]:1883; :1883 is every address."""
    systemd: Annotated[str, Field(min_length=1)] | None = None
    """In place of bind, the name of a socket from systemd (`FileDescriptorName=`)."""
    anonymous: bool | None = None
    """Accept clients without a user name; default: on loopback, as long as there are no users."""
    receive_maximum: U16 = 1024
    """QoS 1 and 2 messages that a client may have in flight to us (MQTT 5, section 3.2.2.3.3)."""
    connections: Count | None = None
    """Clients at a time on this listener, within limits.connections."""
    packet_bytes: Annotated[int, Field(ge=128, le=268_435_460)] | None = None
    """The longest packet that is taken here, in place of limits.packet_bytes."""
    keep_alive_s: Annotated[int, Field(ge=0, le=65535)] | None = None
    """In place of limits.keep_alive_s."""
    tls: TlsSection | None = None
    """Without it, nothing is encrypted."""
    refuse: Literal["disconnect", "reason code"] = "disconnect"
    """How a client learns that its message at QoS 1 or 2 is refused for now (the spool or the disk
    is full). Common clients take a PUBACK with a reason code for success, so the connection ends
    with DISCONNECT 0x97, and the client sends the message again. Where all clients of the listener
    read reason codes: "reason code".
    """
    origins: list[str] = []
    """Web pages that may connect over WebSocket from other hosts."""
    proxies: list[Network] = []
    """Proxies before it, over WebSocket, as in [page]."""

    @model_validator(mode="after")
    def _one_place(self) -> "ListenerSection":
        if (self.bind is None) == (self.systemd is None):
            raise ValueError("needs either bind = ADDRESS:PORT or systemd = NAME")
        for key in ("origins", "proxies"):
            if getattr(self, key) and self.type != "websocket":
                raise ValueError(f"{key} are for listeners with type = 'websocket'")
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
        return self.bind is not None and is_local(self.bind) and not self.knows_certificates

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; an empty host is every address."""
        return split_bind(self.bind) if self.bind else ("", 0)


class SerialSection(Section):
    """Serial ports with boards."""

    port: Annotated[str, Field(min_length=1)]
    """A path or a shell pattern."""
    baud: Annotated[int, Field(ge=300, le=4_000_000)] = 115200
    """Bits per second, as the firmware has them."""
    open: bool = False
    """Any board may greet; otherwise only registered boards, which must prove their keys if any."""
    receive_maximum: U16 = 1
    """A board journals one exchange at a time."""


_RYLR998_FACTOR, _RYLR998_POWERS = 9, range(23)


class LoraSection(Section):
    """A LoRa radio for boards without a wire: a modem at a serial port."""

    port: Annotated[str, Field(min_length=1)]
    """A path, best one of /dev/serial/by-id."""
    modem: Literal["kiss", "rylr998"] = "kiss"
    """A LoRa board with MeshCore's KISS firmware, or an RYLR998, which only its like understands.
    """
    region: Literal["EU868"] = "EU868"
    """The region whose radio rules are kept."""
    frequency: int = 869_525_000
    """Hz of the channel, which is 125 kHz wide. At this one, a radio may send a tenth of the time;
    at most others, a hundredth.
    """
    spreading_factor: Annotated[int, Field(ge=7, le=12)] = 9
    """LoRa spreading factor. Each step reaches farther, but doubles the airtime."""
    power: Annotated[int, Field(ge=-9)] = 14
    """dBm that the antenna radiates (e.r.p.)."""
    network: Annotated[int, Field(ge=0, le=255)] = 0
    """Number of this radio network. Choose another one if a neighbour's boards are in range."""
    boards: dict[str, Annotated[int, Field(ge=1, le=254)]] = {}
    """The numbers of boards in this network by their names, as in their identity pages. The boards
    that `onceway device add` has written stand in the device registry, and need no number here.
    """

    @model_validator(mode="after")
    def _keeps_the_law(self) -> "LoraSection":
        try:
            band = REGIONS[self.region].band(self.frequency)
        except OncewayError as error:
            raise ValueError(str(error)) from None
        if self.power > band.power:
            raise ValueError(f"power = {self.power} is not allowed: {band.rule}")
        if self.modem == "rylr998" and self.spreading_factor > _RYLR998_FACTOR:
            raise ValueError(
                f"spreading_factor = {self.spreading_factor}: an RYLR998 has {_RYLR998_FACTOR} at"
                " most on a channel of 125 kHz"
            )
        if self.modem == "rylr998" and self.power not in _RYLR998_POWERS:
            raise ValueError(f"power = {self.power}: an RYLR998 sends with 0 to 22 dBm")
        if len(set(self.boards.values())) < len(self.boards):
            raise ValueError("two boards have the same number")
        return self


class SpoolSection(Section):
    """Messages on disk that wait for the uplink. Without [uplink] none are put there."""

    topics: Annotated[list[SpoolFilter], Field(min_length=1)] = ["#"]
    """Topic filters of the messages for the uplink."""
    max_bytes: Count = 1000 * MEGABYTE
    """A full spool refuses new messages with 0x97 and drops nothing."""
    max_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """A second bound, as a share of the whole disk of the data directory (0.5: half of it)."""
    devices_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The part of it for boards only (0.25: others are refused when three quarters are full)."""


class LimitsSection(Section):
    """Bounds that hold for every client. Sizes in bytes."""

    connections: Count = 20_000
    """Clients at a time, and as many again that have not said CONNECT yet."""
    connects_per_s: Count = 1000
    """CONNECTs from one address, in bursts of ten seconds' worth."""
    sessions: Count = 100_000
    """Clients that are there, and those that may come back."""
    packet_bytes: Annotated[int, Field(ge=128, le=268_435_460)] = MEGABYTE
    """The longest packet that is taken."""
    connect_bytes: Annotated[int, Field(ge=128, le=268_435_460)] = 128_000
    """The longest CONNECT, which arrives before its sender is known."""
    subscribe_bytes: Annotated[int, Field(ge=129, le=268_435_460)] = 128_000
    """The longest SUBSCRIBE or UNSUBSCRIBE: it takes time by its filters."""
    client_id_bytes: Annotated[int, Field(ge=23, le=65_535)] = 256
    """The longest client identifier."""
    will_bytes: Count = 64 * MEGABYTE
    """All wills together."""
    inflight: U16 = 1024
    """QoS 1 and 2 messages sent to one client and not yet acknowledged, whatever Receive Maximum it
    announces; and sent beyond what the disk knows to be sent, if its session outlives its
    connection.
    """
    queue_messages: Count = 100_000
    """QoS 1 and 2 messages that wait for one session."""
    queue_bytes: Count = 64 * MEGABYTE
    """Bytes that wait for one session."""
    memory_bytes: Count = 256 * MEGABYTE
    """Bytes that wait for all sessions; as much for subscriptions, and for incomplete packets."""
    outgoing_bytes: Count = 4 * MEGABYTE
    """Written to one connection and not yet taken by the peer; beyond it QoS 0 is dropped, the rest
    waits in the queue, and nothing more is read from the peer.
    """
    subscriptions: Count = 1000
    """Subscriptions of one session."""
    topic_levels: Count = 128
    """Levels of a topic or a filter."""
    retained: Count = 100_000
    """Retained messages."""
    retained_bytes: Count = 64 * MEGABYTE
    """Bytes of all retained messages. In a site, a sixteenth more for deleted ones."""
    connect_timeout_s: Annotated[int, Field(ge=1, le=3600)] = 10
    """How long a new connection may take to say CONNECT."""
    keep_alive_s: Annotated[int, Field(ge=0, le=65535)] = 0
    """The longest keep alive of MQTT 5 clients; one that asks for more, or for none, gets this one.
    0: each its own.
    """
    session_expiry_s: Annotated[int, Field(ge=0, le=0xFFFF_FFFF)] = 0xFFFF_FFFF
    """The longest that a session is kept for a client that is away; 4294967295: without end."""
    topic_aliases: Annotated[int, Field(ge=0, le=65535)] = 64
    """Topic aliases in each direction of a connection."""


class QueueSection(Section):
    """Rules for the queues of some clients."""

    clients: Annotated[str, Field(min_length=1)] = "*"
    """Shell pattern of client identifiers; the first section that fits counts."""
    full: Literal["end the session", "drop the oldest", "refuse the publisher"] = "end the session"
    """At the bound: end the session (its client learns so by Session Present 0: never a silent
    gap), drop the oldest message (counted), or refuse the publisher (0x97).
    """
    qos_0: bool = False
    """Keep QoS 0 messages, too, while the client is away; in memory, not on disk."""
    messages: Count | None = None
    """In place of limits.queue_messages."""
    bytes: Count | None = None
    """In place of limits.queue_bytes."""


class DeliverySection(Section):
    """Delivery of messages to subscribers."""

    overlapping: Literal["once", "each"] = "once"
    """To a client with several subscriptions that match: one copy, at the highest QoS and with all
    Subscription Identifiers, or a copy for each subscription (MQTT 5, section 3.3.4).
    """


class WebSection(Section):
    """`/metrics` for Prometheus and `/healthz`, over HTTP and for everybody who reaches the
    address. Without the section there is none.
    """

    bind: Bind = "127.0.0.1:9464"
    """ADDRESS:PORT."""


class PageSection(Section):
    """The web page for users of the gateway. Without the section there is none."""

    bind: Bind = "127.0.0.1:8080"
    """ADDRESS:PORT. Beyond this machine, use tls or a proxy that does: passwords come this way."""
    proxies: list[Network] = []
    """Addresses or networks of proxies before it, whose X-Forwarded-For tells the client's address.
    """
    operators: list[str] = []
    """Shell patterns of the users who may change something, and see everything."""
    viewers: list[str] = []
    """Shell patterns of the users who may look, as far as [[acl]] lets them read. While neither
    operators nor viewers are given, all users may look, at everything.
    """
    certificate: FilePath | None = None
    """For HTTPS, with those between it and its authority, in PEM format."""
    key: FilePath | None = None
    """The private key of the certificate."""

    @property
    def names_roles(self) -> bool:
        return not self.model_fields_set.isdisjoint(("operators", "viewers"))

    @model_validator(mode="after")
    def _both(self) -> "PageSection":
        if (self.certificate is None) != (self.key is None):
            raise ValueError("HTTPS needs both certificate and key")
        return self


class MirrorSection(Section):
    """Readings of boards as JSON, for programs that do not read SenML-CBOR: the retained messages
    `readings/DEVICE/NAME`. They never go up, and no disk is written for them; only the
    gateway may write there. Without the section there are none.
    """

    topic: TopicPrefix = "readings"
    """The first level of their topics."""


class HomeAssistantSection(Section):
    """Boards as devices of Home Assistant, by MQTT discovery; [mirror] counts as given, too.
    Without the section there are none.
    """

    prefix: TopicPrefix = "homeassistant"
    """Home Assistant's discovery prefix; the birth message comes to `PREFIX/status`."""
    expire_after_s: Annotated[int, Field(ge=0, le=31_536_000)] | None = None
    """Seconds without a reading until a value is unavailable; 0: never. Without it: three
    of the longest of the last gaps, ten minutes at least.
    """


class NotifySection(Section):
    """Messages to people when a problem begins or ends. Try it: `onceway notify test`."""

    command: list[str] = []
    """A program and its arguments; it reads a JSON object (event, problems, gateway, at) from
    stdin.
    """
    webhook: HookUrl | None = None
    """URL to which the same object is sent by POST."""
    mail_to: list[str] = []
    """Addresses that get an e-mail."""
    mail_from: str | None = None
    """Sender of the e-mail; default: the first of mail_to."""
    mail_server: MailServer | None = None
    """smtps://HOST:PORT, or smtp://HOST:PORT, which must offer STARTTLS."""
    mail_user: str | None = None
    """The user name there."""
    mail_password_file: FilePath | None = None
    """A file with that user's password alone, readable by the service only."""
    mail_ca: FilePath | None = None
    """Authorities whose server certificates are taken; without it, those of the system."""
    after_s: Annotated[int, Field(ge=0, le=86_400)] = 30
    """Seconds that a problem must last before it is reported."""
    quiet: list[Window] = []
    """Times of day without messages ("22:00-06:00", local time); lasting problems are sent later.
    """
    repeat_h: Annotated[int, Field(ge=0, le=8784)] = 24
    """Hours after which a lasting problem is reported again; 0: never."""
    heartbeat: BeatUrl | None = None
    """A URL that is requested regularly. A service behind it can report when the requests stop: a
    dead gateway cannot report itself. Or a topic at another broker, such as
    "mqtts://broker.example/onceway/site-1": the retained message there is `online`, and `offline`
    when the gateway is gone.
    """
    heartbeat_s: Annotated[int, Field(ge=1, le=86_400)] = 60
    """Seconds between two heartbeats."""
    heartbeat_user: str | None = None
    """The user name at that broker."""
    heartbeat_password_file: FilePath | None = None
    """A file with that user's password alone, readable by the service only."""
    heartbeat_ca: FilePath | None = None
    """Authorities whose broker certificates are taken; without it, those of the system."""

    @property
    def is_wanted(self) -> bool:
        return bool(self.command or self.webhook or self.mail_to or self.heartbeat)

    @model_validator(mode="after")
    def _has_server(self) -> "NotifySection":
        if bool(self.mail_to) != (self.mail_server is not None):
            raise ValueError("mail_to and mail_server need each other")
        return self


class LogSection(Section):
    """Lines on standard error."""

    format: Literal["human", "json"] = "human"
    """For people, or one JSON object a line."""
    level: Literal["debug", "info", "warning", "error"] | None = None
    """The lowest level that is logged; "info" includes each connection. Without it: warnings,
    boards that come and go, and what a service does as a whole, such as starting or landing a
    batch.
    """


class AccessSection(Section):
    """Rules for connecting, and for client identifiers. Names in the device registry are reserved
    for the boards, and for users of the same name.
    """

    users: FilePath | None = None
    """The file of user names and password hashes (`onceway user add`); default: `users` in the data
    directory, if it is there.
    """
    identifiers: Literal["any", "user name", "user name prefix"] = "any"
    """Client identifiers allowed to clients with a user name: any that is not another user's (its
    name, or its name and a colon with more text, or one with a session of it); the user name itself
    (assigned to a client without an identifier); or the user name, alone or followed
    by a colon and more text. Other clients may then use no identifier that begins so for a known
    user.
    """
    prefixes: list[Annotated[str, Field(min_length=1)]] = []
    """When there are any, client identifiers must begin with one of them."""
    command: list[Annotated[str, Field(min_length=1)]] = []
    """A program and its arguments that is asked about users who are not in the file: one JSON
    object on its standard input (user, password, client, address, listener); it exits with 0 for
    yes and with 1 for no.
    """
    url: HookUrl | None = None
    """In place of command, a URL that gets that object by POST: 200 or 204: yes, 401 or 403: no."""
    hook_timeout_s: Annotated[float, Field(gt=0, le=60, strict=False)] = 5.0
    """How long the command or the URL may take; without an answer the client gets 0x88."""
    hook_remember_s: Annotated[float, Field(ge=0, le=86_400, strict=False)] = 60.0
    """How long a yes holds for further CONNECTs with the same password."""

    @model_validator(mode="after")
    def _one_hook(self) -> "AccessSection":
        if self.command and self.url is not None:
            raise ValueError("asks either a command or a url, not both")
        return self

    @property
    def has_hook(self) -> bool:
        """Whether a program or a URL is asked about users."""
        return bool(self.command) or self.url is not None


class QuotaSection(Section):
    """Quotas of some users, over all their sessions together; boards have no quota. A key that is
    not given has no bound of its own.
    """

    users: Annotated[list[str], Field(min_length=1)] = ["*"]
    """Shell patterns; "" is the user of all anonymous clients. The first matching section counts.
    """
    sessions: Count | None = None
    """Sessions; one more gets 0x97."""
    connections: Count | None = None
    """Connections; one more gets 0x97."""
    messages_per_s: Count | None = None
    """Messages published, in bursts of a second's worth; a faster user is read more slowly."""
    bytes_per_s: Count | None = None
    """Bytes of their payloads and properties, in the same way."""
    spool_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The part of the spool that their messages may fill; more gets 0x97. After a
    restart, messages of a client whose session has ended count for no user.
    """

    @model_validator(mode="after")
    def _says_something(self) -> "QuotaSection":
        if not self.model_fields_set - {"users"}:
            raise ValueError(
                "says no bound: give sessions, connections, messages_per_s, bytes_per_s or"
                " spool_share"
            )
        return self


class AclSection(Section):
    """Access rules for topics. Without any such section, or with sections that only deny, an
    admitted client may do everything else. `%u` and `%c` stand for the user name and the client
    identifier. Boards are not users: if no section names boards, they may do everything.
    """

    users: Annotated[list[str], Field(min_length=1)] = ["*"]
    """Shell patterns; "" is the user of anonymous clients, and names boards, too."""
    boards: bool = False
    """Whether this section is for boards; for users, too, only where `users` is given."""
    clients: Annotated[list[str], Field(min_length=1)] = ["*"]
    """Shell patterns of client identifiers."""
    write: list[TopicFilter] = []
    """Filters of the topics that they may publish to."""
    read: list[TopicFilter] = []
    """Filters of the topics that they may receive."""
    subscribe: list[TopicFilter] = []
    """Filters that cover those that they may ask for; without it, read holds."""
    deny_write: list[TopicFilter] = []
    """Filters of topics that they may not publish to, whatever any section allows."""
    deny_read: list[TopicFilter] = []
    """The same for topics that they may receive; a filter inside a denied one is refused."""
    identity: list[Annotated[str, Field(min_length=1)]] = []
    """Shell patterns of client identifiers for which the user properties `incarnation` and `seq`
    count. Without any section they count for all but the boards of the device registry.
    """

    @property
    def names_boards(self) -> bool:
        return self.boards or "" in self.users

    @property
    def named_users(self) -> list[str]:
        """`users`; none where the section is for boards alone."""
        return [] if self.boards and "users" not in self.model_fields_set else self.users


class UplinkSection(Section):
    """Spool to landing place. A batch is cut at the bound that comes first."""

    landing: Landing
    """URL of the landing place: file:///folder, sftp://user@server/folder, s3://bucket/folder."""
    batch_count: Count = 500
    """Rows of a batch."""
    batch_bytes: Count = MEGABYTE
    """Bytes of payload."""
    batch_age_s: Annotated[float, Field(gt=0, strict=False)] = 60.0
    """Age of the oldest row, in seconds."""
    window: list[Window] = []
    """Times of day when batches may leave, such as "22:00-06:00" (local time); none: always."""
    bytes_per_s: Count | None = None
    """Bound of the average rate."""
    retry_s: Annotated[float, Field(ge=1, strict=False)] = 60.0
    """The longest wait between two tries in an outage."""
    read_back: bool = False
    """Fetch each file again whole, even where the place proves it cheaper."""
    shared: bool = True
    """Another gateway may write there under this gateway's name, by mistake or from a cloned card.
    With false, a place is used that cannot refuse a taken name.
    """
    options: dict[str, Any] = {}
    """fsspec storage options of the landing place. A password has no place in this file."""


class BridgeSection(Section):
    """Topics of this gateway to another MQTT 5 broker, and of that one here. Messages for it wait
    in a queue of its own on disk; a broker that is away stops neither boards nor the uplink.
    """

    name: Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,32}$")]
    """For logs and commands; another name is another bridge, with a queue of its own."""
    server: BrokerUrl
    """mqtts://HOST:PORT, or mqtt:// without TLS."""
    user: str | None = None
    """The user name there."""
    password_file: FilePath | None = None
    """A file with that user's password alone, readable by the service only."""
    ca: FilePath | None = None
    """Authorities whose server certificates are taken; without it, those of the system."""
    certificate: FilePath | None = None
    """A certificate to show, with those between it and its authority, in PEM format."""
    key: FilePath | None = None
    """The private key of the certificate."""
    up: list[PlainFilter] = []
    """Filters of the topics that go there."""
    down: list[PlainFilter] = []
    """Filters of the topics that come here from there, such as "commands/#"."""
    prefix: Below = ""
    """Stands before all these topics at the other broker: "site-1/"."""
    qos: Annotated[int, Field(ge=0, le=2)] = 2
    """The highest QoS, in both directions. At 2 each message arrives once, at 1 at least once; at
    0 messages are lost while the other broker is away.
    """
    retained: bool = True
    """Whether the retained messages of these topics are compared after each connect, so that both
    brokers hold the same. Without any `[[acl]]`, changes of the topics in up come here, too, and of
    those in down go there.
    """
    max_messages: Count = 1_000_000
    """Messages that may wait for the other broker; beyond it the oldest are dropped and counted."""
    max_bytes: Count | None = None
    """Bytes that may wait for the other broker; default: 100 MB, or an equal share of half of
    limits.memory_bytes if all bridges without this key have less than that.
    """
    aside_messages: Count = 1000
    """Messages kept that can never reach the other broker (`onceway bridge aside`); beyond it the
    oldest are lost, and counted.
    """
    aside_bytes: Count = 10 * MEGABYTE
    """Bytes of these messages."""

    @model_validator(mode="after")
    def _makes_sense(self) -> "BridgeSection":
        if not (self.up or self.down):
            raise ValueError('says no topics: give up = ["sensors/#"], or down')
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key go together")
        if self.password_file is not None and self.user is None:
            raise ValueError("password_file needs user")
        files = (self.ca, self.certificate)
        if not split_broker(self.server)[2] and any(files):
            raise ValueError("ca and certificate are for servers with mqtts://")
        return self

    @property
    def client(self) -> str:
        """The client identifier of its session here."""
        return f"{BRIDGE}{self.name}"


class SiteSection(Section):
    """Gateways that know each other: a client or board may come back at another one, and its
    session moves there. `onceway site` makes their certificates.
    """

    members: Annotated[dict[MemberName, Address], Field(min_length=1, max_length=16)]
    """Every gateway of the site by its gateway.name, this one too, with the HOST:PORT where the
    others reach it: the same lines in each one's file.
    """
    bind: Bind | None = None
    """Address for the other members; default: every address, at the port in members."""
    folder: FilePath | None = None
    """Folder of its key and certificates. Only the gateway's own account may read it, and must be
    able to write there; default: `site` in the data directory.
    """
    copies: Literal[1, 2] = 1
    """With 2, a message for the spool at QoS 1 or 2 is acknowledged when it is on the disks of two
    members. While no other member takes copies, such messages are refused (0x97).
    """
    copies_bytes: Count = 1000 * MEGABYTE
    """Bytes of other members' spools that this gateway keeps for them, whatever its own copies."""
    copies_silent_s: Annotated[float, Field(ge=1, strict=False)] = 600.0
    """Seconds that a member must be silent before this gateway lands the rows kept for it."""

    @model_validator(mode="after")
    def _different(self) -> "SiteSection":
        addresses = list(self.members.values())
        for address in addresses:
            if addresses.count(address) > 1:
                raise ValueError(f"two members have the address {address!r}")
        return self


COPY_BYTES = (1 << 20) - 4096
"""The most that a message and its client's name may take where members have copies."""

_DEFAULT_QUEUE = QueueSection()
_MEMBER_QUEUE = QueueSection(full="drop the oldest")
"""For another gateway of the site: one that is away for long must not stop boards."""

MEMBER = "onceway-site:"
"""Prefix of the client identifiers of other members; the name of this gateway, a colon, and the
name of the other one follow.
"""

BRIDGE = "onceway-bridge:"
"""Prefix of the client identifiers of bridges."""

INSIDE = "onceway-inside"
"""The user name of the gateway's own clients (`gateway/runtime/internal_client.py`)."""

OWN_NAMES = INSIDE, MEMBER, BRIDGE
"""Prefixes of users and clients of the gateway's own. No listener takes them."""

DEVICES_TOPIC = "onceway/devices"
"""Topic on which a gateway publishes its device registry for the centre. No other client may."""

READS_REASON_CODES = ("onceway-reads-reason-codes", "1")
"""The user property of CONNECT of programs that read the reason codes of PUBACK and PUBREC, and
publish refused messages again.
"""


def _of(section: Any, key: str, default: Any) -> Any:
    """A key of a section that is not checked yet, or was."""
    return (
        section.get(key, default) if isinstance(section, dict) else getattr(section, key, default)
    )


def _fits_users(section: Any) -> bool:
    """Whether an `[[acl]]` that is not checked yet, or was, is for more than boards."""
    if isinstance(section, AclSection):
        return bool(section.named_users)
    return not _of(section, "boards", False) or _of(section, "users", None) is not None


def _only_denies(section: Any) -> bool:
    """Whether a section leaves everything allowed that no section denies (`broker/access.py`)."""
    denies = _of(section, "deny_write", []) or _of(section, "deny_read", [])
    allows = any(_of(section, name, []) for name in ("read", "write", "subscribe"))
    return bool(denies) and not allows


class Config(Section):
    """The whole configuration file."""

    gateway: GatewaySection = GatewaySection()
    listener: list[ListenerSection] = []
    serial: list[SerialSection] = []
    lora: list[LoraSection] = []
    spool: SpoolSection = SpoolSection()
    limits: LimitsSection = LimitsSection()
    queue: list[QueueSection] = []
    delivery: DeliverySection = DeliverySection()
    access: AccessSection = AccessSection()
    quota: list[QuotaSection] = []
    acl: list[AclSection] = []
    uplink: UplinkSection | None = None
    bridge: list[BridgeSection] = []
    web: WebSection | None = None
    page: PageSection | None = None
    mirror: MirrorSection | None = None
    home_assistant: HomeAssistantSection | None = None
    site: SiteSection | None = None
    notify: NotifySection = NotifySection()
    log: LogSection = LogSection()

    @model_validator(mode="before")
    @classmethod
    def _keep_the_mirror(cls, values: Any) -> Any:
        """Add rules: only the gateway writes mirrored topics, and may read the topics it needs."""
        if not isinstance(values, dict):
            return values
        home = values.get("home_assistant")
        if home is not None:
            values = {"mirror": {}} | values
        mirror, bridges = values.get("mirror"), values.get("bridge", [])
        acl = values.get("acl", [])
        if not isinstance(acl, list) or not isinstance(bridges, list):
            return values
        more: list[Any] = []
        if mirror is not None:
            walled = [f"{_of(mirror, 'topic', 'readings')}/#"]
            more.append({"users": ["*"], "boards": True, "deny_write": walled})
        if any(_fits_users(item) and not _only_denies(item) for item in acl):
            more.append({"users": [INSIDE], "read": ["logs/+"], "write": [DEVICES_TOPIC]})
            if home is not None:
                prefix = _of(home, "prefix", "homeassistant")
                more.append({"users": [INSIDE], "read": [f"{prefix}/status"]})
            more += [
                {
                    "users": [INSIDE],
                    "clients": [f"{BRIDGE}{_of(item, 'name', '')}"],
                    "read": _of(item, "up", []),
                    "write": _of(item, "down", []),
                }
                for item in bridges
            ]
        return values | {"acl": [*acl, *more]} if more else values

    @property
    def users_file(self) -> Path:
        """The file of users and their password hashes."""
        return self.access.users or self.gateway.data / "users"

    @property
    def site_folder(self) -> Path:
        """The folder of the site's key and certificates."""
        given = self.site.folder if self.site is not None else None
        return given or self.gateway.data / "site"

    @property
    def site_bind(self) -> tuple[str, int]:
        """Host and port where the other members reach this gateway. Only with a site."""
        assert self.site is not None  # noqa: S101 - said above
        if self.site.bind is not None:
            return split_bind(self.site.bind)
        return "", split_address(self.site.members[self.gateway.name])[1]

    @property
    def spooled(self) -> list[str]:
        """Filters of the topics that go into the spool: none without an uplink to empty it."""
        return [] if self.uplink is None else [*self.spool.topics, DEVICES_TOPIC]

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
        for bridge in self.bridge:
            if bridge.client == client:
                most = bridge.max_bytes or self._bridge_share
                return QueueSection(
                    full="drop the oldest", messages=bridge.max_messages, bytes=most
                )
        default = _MEMBER_QUEUE if client.startswith(MEMBER) else _DEFAULT_QUEUE
        return next(
            (
                section
                for section in self.queue
                if fnmatchcase(client, section.clients)
                and (default is _DEFAULT_QUEUE or section.clients.startswith(MEMBER))
            ),
            default,
        )

    def quota_of(self, user: str) -> QuotaSection | None:
        """The section for a user; None when there is none."""
        return next(
            (
                section
                for section in self.quota
                if any(fnmatchcase(user, pattern) for pattern in section.users)
            ),
            None,
        )

    @property
    def shares_spool(self) -> bool:
        """Whether there is a user who may fill a part of the spool only."""
        return any(section.spool_share < 1 for section in self.quota)

    @model_validator(mode="after")
    def _has_room(self) -> "Config":
        """Check that the queues of bridges leave enough memory for the queues of other clients."""
        wanted = sum(item.max_bytes or MEGABYTE for item in self.bridge)
        if wanted > self.limits.memory_bytes // 2:
            raise ValueError(
                f"bridges may keep {wanted} bytes (bridge.max_bytes, at least 1 MB), more than half"
                f" of limits.memory_bytes = {self.limits.memory_bytes}: raise that, too"
            )
        return self

    @property
    def _bridge_share(self) -> int:
        """Bytes that may wait for each bridge without max_bytes."""
        given = [item.max_bytes for item in self.bridge]
        free = self.limits.memory_bytes // 2 - sum(filter(None, given))
        return min(100 * MEGABYTE, free // given.count(None))

    @model_validator(mode="after")
    def _is_member(self) -> "Config":
        if self.site is not None and self.gateway.name not in self.site.members:
            raise ValueError(
                f"site.members lacks this gateway itself: {self.gateway.name!r} (gateway.name)"
            )
        return self

    @model_validator(mode="after")
    def _copies_fit(self) -> "Config":
        """Check that each row fits into one frame between members."""
        if self.site is None or self.site.copies == 1:
            return self
        if len(self.site.members) == 1:
            raise ValueError("site.copies = 2 needs another member in site.members")
        taken = [self.limits.packet_bytes, *(item.packet_bytes for item in self.listener)]
        longest = max(size for size in taken if size is not None)
        names = self.limits.client_id_bytes + 1024
        if longest + names > COPY_BYTES:
            raise ValueError(
                f"with site.copies = 2, packet_bytes may be {COPY_BYTES - names} at most"
                f" (limits, listener), and not {longest}"
            )
        return self

    @model_validator(mode="after")
    def _unique(self) -> "Config":
        sections = (*self.listener, self.web, self.page, self.site)
        addresses = [item.bind for item in sections if item and item.bind]
        ports = [item.port for item in self.serial] + [item.port for item in self.lora]
        names = [item.name for item in self.bridge]
        for kind, values in (("bind", addresses), ("port", ports), ("name", names)):
            for value in values:
                if values.count(value) > 1 and not value.endswith(":0"):
                    raise ValueError(f"two sections have the {kind} {value!r}")
        return self
