"""The tables of the configuration file, key by key: meaning, bounds and default."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from shutil import disk_usage
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from gateway.config.between import Misfit
from gateway.config.lines import Place
from gateway.config.values import (
    U16,
    Address,
    BeatUrl,
    Below,
    Bind,
    BridgeName,
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
from gateway.system.regions import REGIONS

MEGABYTE = 1_000_000


class Section(BaseModel):
    """Base class of the tables of the configuration file. Unknown keys are refused, and so are
    values of another type. The docstring under a key is also its description for people
    (`reference.py`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class GatewaySection(Section):
    """The name of this gateway, and its data directory."""

    name: GatewayName = "gateway"
    """The gateway's name, unique among the gateways of one landing place."""
    data: Path = Field(default=Path("/var/lib/onceway"), strict=False)
    """The data directory: the folder with the store and the gateway's other files."""
    hosts: list[str] = []
    """Shell patterns of additional host names by which browsers and scrapers may reach page and
    metrics, such as the name of a proxy. Addresses, names without a dot and names of private
    networks (.local, .lan, .internal, .home.arpa) are always accepted. So are this machine's name
    and the names in the page's certificate.
    """
    trust_clock: bool = False
    """Trust the system's clock even if the kernel does not call it synchronised."""
    sys_interval_s: Annotated[int, Field(ge=0, le=86_400)] = 10
    """Seconds between two updates of the figures under `$SYS`; 0: no figures."""


class TlsSection(Section):
    """TLS, version 1.2 or higher. All files are in PEM format."""

    certificate: FilePath
    """The gateway's certificate, followed by the intermediate certificates."""
    key: FilePath
    """The private key of the certificate."""
    client_ca: FilePath | None = None
    """The certificate authorities whose client certificates are accepted. The common name in a
    client's certificate is the user name.
    """
    client_crl: FilePath | None = None
    """The authorities' certificate revocation lists (CRL). If an authority's list is missing or out
    of date, none of its certificates is accepted.
    """
    client_required: bool = False
    """Whether clients without a certificate are refused."""

    @model_validator(mode="after")
    def _has_authority(self) -> "TlsSection":
        if self.client_ca is None and (self.client_required or self.client_crl is not None):
            raise ValueError(
                "client_required and client_crl need client_ca, the file of the CAs whose client"
                " certificates are accepted"
            )
        return self


class ListenerSection(Section):
    """MQTT over TCP or WebSocket."""

    type: Literal["tcp", "websocket"] = "tcp"
    """MQTT over TCP, or over WebSocket at the path /mqtt."""
    bind: Bind | None = None
    """An address, such as 127.0.0.1:1883 or [::1]:1883; :1883 means every address."""
    systemd: Annotated[str, Field(min_length=1)] | None = None
    """Instead of bind: the name of a socket from systemd (`FileDescriptorName=`)."""
    anonymous: bool | None = None
    """Accept clients without a user name. Default: only from this machine (a loopback address), and
    only while no users exist.
    """
    receive_maximum: U16 = 1024
    """Largest number of QoS 1 and 2 messages in flight from a client (MQTT 5, 3.2.2.3.3)."""
    connections: Count | None = None
    """Largest number of clients that are connected to this listener at a time. limits.connections
    applies as well.
    """
    packet_bytes: Annotated[int, Field(ge=128, le=268_435_460)] | None = None
    """The largest packet accepted on this listener, instead of limits.packet_bytes."""
    keep_alive_s: Annotated[int, Field(ge=0, le=65535)] | None = None
    """The longest keep alive on this listener, instead of limits.keep_alive_s."""
    tls: TlsSection | None = None
    """Settings for TLS. Without this table, nothing is encrypted."""
    refuse: Literal["disconnect", "reason code"] = "disconnect"
    """The way in which a client learns that its message at QoS 1 or 2 is refused for now, because
    the spool or the disk is full. Common clients treat a PUBACK as success whatever its reason
    code. So by default the connection ends with DISCONNECT 0x97, and the client sends the message
    again. If all clients of the listener read reason codes, choose "reason code".
    """
    origins: list[str] = []
    """Origins of web pages on other hosts that may connect over WebSocket, such as
    https://dashboard.example.
    """
    proxies: list[Network] = []
    """Addresses or networks of proxies in front of this listener, for WebSocket only. Their
    X-Forwarded-For header contains the client's address.
    """
    proxy_protocol: list[Network] = []
    """Addresses or networks of proxies that send each client's address in a PROXY header, version
    2. If any other address sends such a header, its connection is closed.
    """

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
        return self.bind or f"systemd:{self.systemd}"

    @property
    def knows_certificates(self) -> bool:
        """Whether clients can log in with a certificate."""
        return self.tls is not None and self.tls.client_ca is not None

    @property
    def is_local(self) -> bool:
        """Whether clients need no login: only this machine can reach the listener, and the listener
        knows neither client certificates nor proxies.
        """
        others = self.knows_certificates or self.proxy_protocol
        return self.bind is not None and is_local(self.bind) and not others

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on; an empty host means every address. `("", 0)` for a socket
        from systemd.
        """
        return split_bind(self.bind) if self.bind else ("", 0)


class SerialSection(Section):
    """Serial ports with boards."""

    port: Annotated[str, Field(min_length=1)]
    """Path of a serial port, or a shell pattern that matches the paths of several ports."""
    baud: Annotated[int, Field(ge=300, le=4_000_000)] = 115200
    """Bits per second, as in the firmware."""
    open: bool = False
    """Whether any board without a key may connect. Otherwise only registered boards may. In both
    cases, a board with a key must prove that it has the key that is in the registry.
    """
    receive_maximum: U16 = 1
    """Largest number of messages in flight from a board. Boards with Onceway's firmware send one
    message at a time.
    """


_RYLR998_FACTOR, _RYLR998_POWERS = 9, range(23)


class LoraSection(Section):
    """A LoRa radio for boards without a wire: a modem at a serial port."""

    port: Annotated[str, Field(min_length=1)]
    """Path of the modem's serial port, preferably one in /dev/serial/by-id."""
    modem: Literal["kiss", "rylr998"] = "kiss"
    """A LoRa board with MeshCore's KISS firmware, or an RYLR998, which can talk only to other
    RYLR998 modems.
    """
    region: Literal["EU868"] = "EU868"
    """The region whose radio regulations the gateway obeys."""
    frequency: int = 869_525_000
    """Frequency of the channel in Hz; the channel is 125 kHz wide. On the default channel, a radio
    may send for a tenth of the time; on most others, for a hundredth.
    """
    spreading_factor: Annotated[int, Field(ge=7, le=12)] = 9
    """LoRa spreading factor. Each step reaches farther, but doubles the airtime."""
    power: Annotated[int, Field(ge=-9)] = 14
    """Power that the antenna radiates, in dBm (e.r.p.)."""
    network: Annotated[int, Field(ge=0, le=255)] = 0
    """Number of this radio network. Choose another number if boards of a foreign network are in
    range.
    """
    boards: dict[str, Annotated[int, Field(ge=1, le=254)]] = {}
    """Numbers of boards in this network, by board name, as in the boards' identity pages. Boards
    that `onceway device add` has provisioned are in the device registry, and need no number here.
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
                f"spreading_factor = {self.spreading_factor}: an RYLR998 allows at most"
                f" {_RYLR998_FACTOR} on a channel of 125 kHz"
            )
        if self.modem == "rylr998" and self.power not in _RYLR998_POWERS:
            raise ValueError(f"power = {self.power}: an RYLR998 sends with 0 to 22 dBm")
        if len(set(self.boards.values())) < len(self.boards):
            raise ValueError("two boards have the same number")
        return self


class SpoolSection(Section):
    """Messages on disk that wait for the uplink. Without [uplink], the spool stays empty."""

    topics: Annotated[list[SpoolFilter], Field(min_length=1)] = ["#"]
    """Topic filters of the messages for the uplink."""
    max_bytes: Count = 1000 * MEGABYTE
    """Size limit in bytes. A full spool refuses new messages with 0x97 and drops nothing."""
    max_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """A second limit, as a share of the disk with the data directory (0.5: half of the disk)."""
    devices_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the spool that is reserved for boards. One user, or one address of anonymous
    clients, may fill 0.8 of the rest.
    """


class LimitsSection(Section):
    """Limits for all clients. Sizes are in bytes."""

    connections: Count = 20_000
    """Largest number of clients that are connected at a time. If no more fit, a user or an address
    with more than four fifths of the connections loses its oldest one to another user's client. In
    addition, the same number of connections may be open that have not sent CONNECT yet.
    """
    connects_per_s: Count = 1000
    """CONNECT packets per second from one address. A burst may have as many as ten seconds allow.
    """
    sessions: Count = 100_000
    """Largest number of sessions. One user, or one address of anonymous clients, may have four
    fifths of them.
    """
    packet_bytes: Annotated[int, Field(ge=128, le=268_435_460)] = MEGABYTE
    """The largest packet accepted, in bytes."""
    connect_bytes: Annotated[int, Field(ge=128, le=268_435_460)] = 128_000
    """The largest CONNECT accepted, in bytes. Before a CONNECT is complete, its sender is unknown.
    """
    subscribe_bytes: Annotated[int, Field(ge=129, le=268_435_460)] = 128_000
    """The largest SUBSCRIBE or UNSUBSCRIBE accepted, in bytes. The size is bounded because each
    filter takes time.
    """
    client_id_bytes: Annotated[int, Field(ge=23, le=65_535)] = 256
    """Longest client identifier accepted, in bytes."""
    will_bytes: Count = 64 * MEGABYTE
    """Size limit of all wills together. One user, or one address of anonymous clients, may use four
    fifths of it.
    """
    inflight: U16 = 1024
    """Largest number of QoS 1 and 2 messages in flight to one client, even if it announces a larger
    Receive Maximum. If the session outlives its connection, this is also the largest number of
    messages that are sent before the disk records them as sent.
    """
    queue_messages: Count = 100_000
    """Largest number of QoS 1 and 2 messages that wait for one session."""
    queue_bytes: Count = 64 * MEGABYTE
    """Size limit of the messages that wait for one session."""
    memory_bytes: Count = 256 * MEGABYTE
    """Size limit of the messages that wait for all sessions. Subscriptions may take the same amount
    again, and so may incomplete packets. One user, or one address of anonymous clients, may use
    four fifths of the amount for subscriptions.
    """
    outgoing_bytes: Count = 4 * MEGABYTE
    """Size limit of the output that one client has not read yet. Beyond it, QoS 0 messages are
    dropped, other messages wait in the queue, and the gateway reads little more from the client.
    """
    subscriptions: Count = 1000
    """Largest number of subscriptions of one session."""
    topic_levels: Count = 128
    """Largest number of levels in a topic or a filter."""
    retained: Count = 100_000
    """Largest number of retained messages. One user, or one address of anonymous clients, may have
    four fifths of them.
    """
    retained_bytes: Count = 64 * MEGABYTE
    """Size limit of all retained messages. In a site, records of deletions may take a sixteenth of
    this size in addition.
    """
    connect_timeout_s: Annotated[int, Field(ge=1, le=3600)] = 10
    """Seconds in which a new connection must send CONNECT."""
    keep_alive_s: Annotated[int, Field(ge=0, le=65535)] = 0
    """The longest keep alive of MQTT 5 clients, in seconds. A client that asks for a longer one, or
    for none, gets this value. 0: each client gets the one that it asks for.
    """
    session_expiry_s: Annotated[int, Field(ge=0, le=0xFFFF_FFFF)] = 0xFFFF_FFFF
    """The longest time, in seconds, for which the session of an absent client is kept; 4294967295:
    without end.
    """
    topic_aliases: Annotated[int, Field(ge=0, le=65535)] = 64
    """Largest number of topic aliases in each direction of a connection."""


class QueueSection(Section):
    """Rules for the queues in which messages wait for clients."""

    clients: Annotated[str, Field(min_length=1)] = "*"
    """Shell pattern of client identifiers. The first section that matches a client applies."""
    full: Literal["end the session", "drop the oldest", "refuse the publisher"] = "end the session"
    """If the queue is full: end the session (its client sees Session Present 0, so there is never a
    silent gap), drop the oldest message (counted), or refuse the publisher (0x97).
    """
    qos_0: bool = False
    """Whether QoS 0 messages also wait while the client is away; in memory, not on disk."""
    messages: Count | None = None
    """Largest number of messages in one queue, instead of limits.queue_messages."""
    bytes: Count | None = None
    """Size limit of the messages in one queue, instead of limits.queue_bytes."""


class DeliverySection(Section):
    """Delivery of messages to subscribers."""

    overlapping: Literal["once", "each"] = "once"
    """If several subscriptions of a client match a message: deliver one copy, at the highest QoS
    and with all Subscription Identifiers, or one copy for each subscription (MQTT 5, section
    3.3.4).
    """


class WebSection(Section):
    """`/metrics` for Prometheus and `/healthz`, over HTTP, for everybody who can reach the address.
    Without this section, neither exists.
    """

    bind: Bind = "127.0.0.1:9464"
    """Address to listen on, as ADDRESS:PORT."""


class PageSection(Section):
    """The web page for users of the gateway. Without this section there is no page."""

    bind: Bind = "127.0.0.1:8080"
    """ADDRESS:PORT. If the address is reachable from other machines, use TLS, here or in a proxy:
    users send their passwords to it.
    """
    proxies: list[Network] = []
    """Addresses or networks of proxies in front of the page. Their X-Forwarded-For header contains
    the client's address.
    """
    operators: list[str] = []
    """Shell patterns of the users who see everything on the page, and may change things."""
    viewers: list[str] = []
    """Shell patterns of the users who may view the page; they see the topics that [[acl]] lets them
    read. If neither operators nor viewers are given, all users may view everything.
    """
    certificate: FilePath | None = None
    """The certificate for HTTPS, followed by the intermediate certificates, in PEM format."""
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
    `readings/DEVICE/NAME`. These never go to the uplink, and are kept in memory only: after a
    restart, the gateway publishes the values that it had saved last. Only the gateway may publish
    to these topics. Without this section, the gateway publishes none of them.
    """

    topic: TopicPrefix = "readings"
    """The first level of the topics, or several levels."""


class HomeAssistantSection(Section):
    """Boards as devices of Home Assistant, by MQTT discovery. This section implies [mirror].
    Without this section, the gateway announces no devices.
    """

    prefix: TopicPrefix = "homeassistant"
    """Home Assistant's discovery prefix; the birth message is expected on `PREFIX/status`."""
    expire_after_s: Annotated[int, Field(ge=0, le=31_536_000)] | None = None
    """Seconds without a reading until a value is shown as unavailable; 0: never. Default: three
    times the longest recent gap between readings, at least ten minutes.
    """
    page: HookUrl | None = None
    """Address of the web page, as Home Assistant's users reach it, such as http://pi:8080. The
    devices link to it.
    """


class NotifySection(Section):
    """Messages to people when a problem begins or ends. Try it: `onceway notify test`."""

    command: list[str] = []
    """A program and its arguments; it reads a JSON object (event, problems, gateway, at) from
    stdin.
    """
    webhook: HookUrl | None = None
    """URL to which the JSON object of `command` is sent by POST."""
    mail_to: list[str] = []
    """Addresses that get an e-mail."""
    mail_from: str | None = None
    """Sender of the e-mail; default: the first of mail_to."""
    mail_server: MailServer | None = None
    """The mail server: smtps://HOST:PORT, or smtp://HOST:PORT. A server without TLS must offer
    STARTTLS.
    """
    mail_user: str | None = None
    """The user name at the mail server."""
    mail_password_file: FilePath | None = None
    """A file that contains only this user's password, readable by the service only."""
    mail_ca: FilePath | None = None
    """The certificate authorities whose server certificates are accepted; default: the system's."""
    after_s: Annotated[int, Field(ge=0, le=86_400)] = 30
    """Seconds that a problem must last before it is reported. Its end is reported when the problem
    has been over for equally long. If the problem returns within an hour of that report, the wait
    before the next report of its end becomes four times as long, up to an hour.
    """
    quiet: list[Window] = []
    """Times of day without messages ("22:00-06:00", local time). A problem that still lasts at the
    end of such a time is reported then.
    """
    repeat_h: Annotated[int, Field(ge=0, le=8784)] = 24
    """Hours after which a lasting problem is reported again; 0: never."""
    heartbeat: BeatUrl | None = None
    """A URL that is requested regularly, or a topic at another broker. A dead gateway cannot report
    itself, but a service behind the URL can report that the requests stop. At a topic such as
    "mqtts://broker.example/onceway/site-1", the retained message is `online`, and becomes `offline`
    when the gateway is gone.
    """
    heartbeat_s: Annotated[int, Field(ge=1, le=86_400)] = 60
    """Seconds between two heartbeats."""
    heartbeat_user: str | None = None
    """The user name at the broker of the heartbeat topic."""
    heartbeat_password_file: FilePath | None = None
    """A file that contains only this user's password, readable by the service only."""
    heartbeat_ca: FilePath | None = None
    """The certificate authorities whose broker certificates are accepted; default: the system's."""

    @property
    def is_wanted(self) -> bool:
        return bool(self.command or self.webhook or self.mail_to or self.heartbeat)

    @model_validator(mode="after")
    def _has_server(self) -> "NotifySection":
        if bool(self.mail_to) != (self.mail_server is not None):
            raise ValueError("set both mail_to and mail_server, or neither")
        return self


class LogSection(Section):
    """Log lines on standard error."""

    format: Literal["human", "json"] = "human"
    """Lines for people, or one JSON object per line."""
    level: Literal["debug", "info", "warning", "error"] | None = None
    """The lowest level that is logged; "info" includes each connection. Default: warnings, boards
    that connect or disconnect, and the main actions of a service, such as starting or landing a
    batch.
    """


class AccessSection(Section):
    """Rules for connecting, and for client identifiers. A client identifier that is a name in the
    device registry is reserved for this board, and for the user with the same name.
    """

    users: FilePath | None = None
    """The file of user names and password hashes (`onceway user add`); default: `users` in the data
    directory, if that file exists.
    """
    identifiers: Literal["any", "user name", "user name prefix"] = "any"
    """Client identifiers allowed to clients with a user name. "any": every identifier except those
    of other users. An identifier is another user's if it is that user's name, alone or followed by
    a colon and more text, or if that user has a session under it. "user name": the user name
    itself, which a client without an identifier gets. "user name prefix": the user name, alone or
    followed by a colon and more text. Clients without a user name may never use the name of a known
    user, alone or followed by a colon and more text.
    """
    prefixes: list[Annotated[str, Field(min_length=1)]] = []
    """If any are given, each client identifier must begin with one of them."""
    command: list[Annotated[str, Field(min_length=1)]] = []
    """A program, with its arguments, that decides about users who are not in the file `users`. The
    program gets one JSON object on its standard input (user, password, client, address, listener),
    and exits with 0 for yes or 1 for no.
    """
    url: HookUrl | None = None
    """Instead of command: a URL that gets the same object by POST. 200 or 204 means yes, 401 or 403
    means no.
    """
    hook_timeout_s: Annotated[float, Field(gt=0, le=60, strict=False)] = 5.0
    """Seconds that the command or the URL may take. If there is no answer in time, the client is
    refused with 0x88.
    """
    hook_remember_s: Annotated[float, Field(ge=0, le=86_400, strict=False)] = 60.0
    """Seconds for which a yes of the command or the URL also holds for further CONNECTs with the
    same password.
    """

    @model_validator(mode="after")
    def _one_hook(self) -> "AccessSection":
        if self.command and self.url is not None:
            raise ValueError("has both a command and a url: remove one of them")
        return self

    @property
    def has_hook(self) -> bool:
        """Whether a program or a URL is asked about users."""
        return bool(self.command) or self.url is not None


class QuotaSection(Section):
    """Quotas of each user whom `users` matches, over all sessions of that user together; boards
    have no quota. A missing key means no quota of that kind.
    """

    users: Annotated[list[str], Field(min_length=1)] = ["*"]
    """Shell patterns of user names; "" stands for all anonymous clients. Only the first section
    that matches a user applies.
    """
    sessions: Count | None = None
    """Largest number of sessions of a user. A further session is refused with 0x97."""
    connections: Count | None = None
    """Largest number of connections of a user. A further connection is refused with 0x97."""
    messages_per_s: Count | None = None
    """Limit of messages published per second. A burst may have as many as a second allows. If a
    user is faster, the gateway reads more slowly from the user's clients.
    """
    bytes_per_s: Count | None = None
    """Limit of bytes of payloads and properties published per second. Bursts and faster users are
    treated as for `messages_per_s`.
    """
    spool_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the spool that a user's messages may fill. Further messages are refused with 0x97.
    After a restart, messages of a client whose session has ended count for no user.
    """

    @model_validator(mode="after")
    def _says_something(self) -> "QuotaSection":
        if not self.model_fields_set - {"users"}:
            raise ValueError(
                "sets no limit: give sessions, connections, messages_per_s, bytes_per_s or"
                " spool_share"
            )
        return self


class AclSection(Section):
    """Access rules for topics. Without any [[acl]], an admitted client may do everything. If all
    sections only deny, it may do what none of them denies. `%u` and `%c` stand for the user name
    and the client identifier. Boards are not users: if no section names boards, they may do
    everything. While access.identifiers is "any", several users can take the same client
    identifier. Then only a client whose identifier is the user name, alone or followed by a colon
    and more text, may read by a rule with `%c`.
    """

    users: Annotated[list[str], Field(min_length=1)] = ["*"]
    """Shell patterns of user names; "" stands for anonymous clients and for boards."""
    boards: bool = False
    """Whether this section is for boards. A section for boards applies to users only if it also
    contains the key `users`.
    """
    clients: Annotated[list[str], Field(min_length=1)] = ["*"]
    """Shell patterns of client identifiers."""
    write: list[TopicFilter] = []
    """Filters of the topics that these clients may publish to."""
    read: list[TopicFilter] = []
    """Filters of the topics that these clients may receive."""
    subscribe: list[TopicFilter] = []
    """A client may subscribe to these filters, and to narrower ones; default: the filters of
    `read`.
    """
    deny_write: list[TopicFilter] = []
    """Filters of topics that these clients may not publish to, whatever any section allows."""
    deny_read: list[TopicFilter] = []
    """Filters of topics that these clients may not receive, whatever any section allows. A
    subscription inside a denied filter is refused.
    """
    identity: list[Annotated[str, Field(min_length=1)]] = []
    """Shell patterns of client identifiers. From these clients, the user properties `incarnation`
    and `seq` are accepted as identity. If no section allows users anything, these properties are
    accepted from all clients, except those with the name of a board in the device registry.
    """

    def allowed(self, action: str, user: str, client: str, *, owned: bool) -> list[str]:
        """Return the filters of one action, with `%u` and `%c` replaced. action: a key of this
        section, such as `read`. A filter is left out if a name that it needs contains a wildcard or
        a slash, which would make the filter wider. owned: whether no other user may take the client
        identifier; if False, filters for reading with `%c` are left out.
        """
        found: list[str] = getattr(self, action)
        if action == "subscribe":
            found = found or self.read
        fills = _is_plain(client) and (owned or action not in ("read", "subscribe"))
        return [
            item.replace("%u", user).replace("%c", client)
            for item in found
            if ("%u" not in item or _is_plain(user)) and ("%c" not in item or fills)
        ]

    @property
    def names_boards(self) -> bool:
        return self.boards or "" in self.users

    @property
    def named_users(self) -> list[str]:
        """Patterns of the users for whom this section holds; none if it holds for boards only."""
        return [] if self.boards and "users" not in self.model_fields_set else self.users


class UplinkSection(Section):
    """The transfer from the spool to the landing place. A batch is complete as soon as it reaches
    batch_count, batch_bytes or batch_age_s.
    """

    landing: Landing
    """URL of the landing place: file:///folder, sftp://user@server/folder, s3://bucket/folder."""
    batch_count: Count = 500
    """Largest number of rows in a batch."""
    batch_bytes: Count = MEGABYTE
    """Largest total of the payloads in a batch."""
    batch_age_s: Annotated[float, Field(gt=0, strict=False)] = 60.0
    """Age of the oldest waiting row, in seconds, at which a batch is cut even if it is not full."""
    window: list[Window] = []
    """Times of day when batches may be sent, such as "22:00-06:00" (local time); an empty list:
    always.
    """
    bytes_per_s: Count | None = None
    """Limit of the average rate of sending, in bytes per second."""
    retry_s: Annotated[float, Field(ge=1, strict=False)] = 60.0
    """The longest wait between two attempts during an outage, in seconds."""
    read_back: bool = False
    """Whether each landed file is fetched again completely, even if the landing place has a cheaper
    proof of its content.
    """
    shared: bool = True
    """Whether it is possible that another gateway writes to the landing place under this gateway's
    name, by mistake or because its card was cloned. If true, the uplink accepts only a landing
    place that refuses a second file with the same name. If false, the uplink also accepts other
    landing places, and checks first that each name is free.
    """
    options: dict[str, Any] = {}
    """fsspec storage options of the landing place. Do not put passwords into this file."""


class BridgeSection(Section):
    """A connection to another MQTT 5 broker that transfers topics in both directions. Messages for
    the other broker wait in a queue on disk. If the other broker is away, boards and uplink
    continue.
    """

    name: BridgeName
    """Name of the bridge, for logs and commands. A bridge with a new name gets a new queue."""
    server: BrokerUrl
    """mqtts://HOST:PORT, or mqtt:// without TLS."""
    user: str | None = None
    """The user name at the other broker."""
    password_file: FilePath | None = None
    """A file that contains only this user's password, readable by the service only."""
    ca: FilePath | None = None
    """The certificate authorities whose server certificates are accepted; default: the system's."""
    certificate: FilePath | None = None
    """The gateway's certificate for the other broker, followed by the intermediate certificates, in
    PEM format.
    """
    key: FilePath | None = None
    """The private key of the certificate."""
    up: list[PlainFilter] = []
    """Filters of the topics that go to the other broker."""
    down: list[PlainFilter] = []
    """Filters of the topics that come from the other broker, such as "commands/#"."""
    prefix: Below = ""
    """Prefix of all these topics at the other broker, such as "site-1/"."""
    qos: Annotated[int, Field(ge=0, le=2)] = 2
    """The highest QoS, in both directions. At 2 each message arrives once, at 1 at least once; at
    0 messages are lost while the other broker is away.
    """
    retained: bool = True
    """Whether the retained messages of these topics are compared after each connect, so that both
    brokers hold the same. Without any `[[acl]]`, changes are forwarded in both directions, whether
    a topic is in up or in down.
    """
    max_messages: Count = 1_000_000
    """Messages that may wait for the other broker; beyond this number, the oldest are dropped and
    counted.
    """
    max_bytes: Count | None = None
    """Bytes that may wait for the other broker. Default: 100 MB, or less if memory is scarce: all
    bridges together get at most half of limits.memory_bytes. Bridges without this key get equal
    shares of the rest of that half.
    """
    aside_messages: Count = 1000
    """Largest number of messages that are set aside because the other broker refused them, or can
    never accept them (`onceway bridge aside`). If there are more, the oldest ones are deleted and
    counted.
    """
    aside_bytes: Count = 10 * MEGABYTE
    """Size limit of the messages that are set aside."""

    @model_validator(mode="after")
    def _makes_sense(self) -> "BridgeSection":
        if not (self.up or self.down):
            raise ValueError('has neither up nor down. Add, for example, up = ["sensors/#"]')
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
        """The client identifier of the bridge's session at this gateway."""
        return f"{BRIDGE}{self.name}"


class SiteSection(Section):
    """Gateways that work together: a client or board may reconnect at another one, and its session
    moves there. `onceway site` makes their certificates.
    """

    members: Annotated[dict[MemberName, Address], Field(min_length=1, max_length=16)]
    """Every gateway of the site, including this one: its gateway.name, and the HOST:PORT where the
    other members reach it. Write the same lines into the file of each gateway.
    """
    bind: Bind | None = None
    """Address to listen on for the other members; default: every address, at this gateway's port in
    members.
    """
    folder: FilePath | None = None
    """Folder of the key and certificates. The gateway's account must be able to write there, and no
    other account may read it. Default: `site` in the data directory.
    """
    copies: Literal[1, 2] = 1
    """With 2, a message for the spool at QoS 1 or 2 is acknowledged when it is on the disks of two
    members. While no other member accepts copies, such messages are refused (0x97).
    """
    copies_bytes: Count = 1000 * MEGABYTE
    """Size limit of the rows that this gateway keeps for other members' spools. It also applies if
    this gateway's own `copies` is 1.
    """
    copies_silent_s: Annotated[float, Field(ge=1, strict=False)] = 600.0
    """Seconds of silence of a member after which this gateway lands the rows that it keeps for that
    member.
    """
    _written: dict[str, str] = PrivateAttr(default_factory=dict)
    """`members` as written in the configuration file. A signed list may have replaced `members`
    (`site_members.py`).
    """

    @property
    def written(self) -> Mapping[str, str]:
        return self._written

    @model_validator(mode="after")
    def _different(self) -> "SiteSection":
        addresses = list(self.members.values())
        for address in addresses:
            if addresses.count(address) > 1:
                raise ValueError(f"two members have the address {address!r}")
        self._written = dict(self.members)
        return self


COPY_BYTES = (1 << 20) - 4096
"""Largest size in bytes, if `copies = 2`, of a message with its client identifier and other names:
one frame between members must hold them.
"""

_DEFAULT_QUEUE = QueueSection()
_MEMBER_QUEUE = QueueSection(full="drop the oldest")
"""Queue rules for another member of the site. If the member is away for long, its oldest messages
are dropped, so that boards can continue.
"""

MEMBER = "onceway-site:"
"""Prefix of the client identifiers of the internal clients that stand for the other members, one
for each. After the prefix come the name of this gateway, a colon, and the name of the other
gateway.
"""

BRIDGE = "onceway-bridge:"
"""Prefix of the client identifiers of bridges."""

INSIDE = "onceway-inside"
"""The user name of the gateway's own clients (`gateway/runtime/internal_client.py`)."""

OWN_NAMES = INSIDE, MEMBER, BRIDGE
"""Beginnings of user names and client identifiers that only the gateway itself uses. Listeners
refuse them.
"""

DEVICES_TOPIC = "onceway/devices"
"""Topic on which a gateway publishes its device registry for the centre. No other client may
publish to it.
"""

IDENTITY = ("onceway-identity", "ignored"), ("onceway-identity", "counts")
"""The user property of CONNACK that tells a client whether its `incarnation` and `seq` count as
identity. Index False: they are ignored. Index True: they count.
"""

READS_REASON_CODES = ("onceway-reads-reason-codes", "1")
"""The user property in the CONNECT of programs that read the reason codes of PUBACK and PUBREC, and
publish refused messages again.
"""


def _is_plain(name: str) -> bool:
    return name != "" and not set(name) & set("/+#$%")


def _of(section: Any, key: str, default: Any) -> Any:
    """Return the value of a key. section: a checked section, or a table as parsed from TOML."""
    return (
        section.get(key, default) if isinstance(section, dict) else getattr(section, key, default)
    )


def _fits_users(section: Any) -> bool:
    """Return whether an `[[acl]]` section holds for users, and not only for boards. section: a
    checked section, or a table as parsed from TOML.
    """
    if isinstance(section, AclSection):
        return bool(section.named_users)
    return not _of(section, "boards", False) or _of(section, "users", None) is not None


def _only_denies(section: Any) -> bool:
    """Whether an `[[acl]]` section denies something and allows nothing. If all sections are like
    this, everything else is allowed (`access/rules.py`).
    """
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
        """Add the access rules that protect mirrored topics, and those that the gateway's own
        clients need. If there is a section `home_assistant`, add the section `mirror`, which it
        needs.
        """
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
                read = [f"{prefix}/status", "commands/+/update"]
                more.append({"users": [INSIDE], "read": read})
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
        return self.access.users or self.gateway.data / "users"

    @property
    def site_folder(self) -> Path:
        folder = self.site.folder if self.site is not None else None
        return folder or self.gateway.data / "site"

    @property
    def site_bind(self) -> tuple[str, int]:
        """Host and port to listen on for the other members. Needs a [site] section."""
        assert self.site is not None  # noqa: S101 - said above
        if self.site.bind is not None:
            return split_bind(self.site.bind)
        return "", split_address(self.site.members[self.gateway.name])[1]

    @property
    def spooled(self) -> list[str]:
        """Filters of the topics that go into the spool: none without an uplink."""
        return [] if self.uplink is None else [*self.spool.topics, DEVICES_TOPIC]

    @property
    def spool_bytes(self) -> int:
        """Size limit of the spool, in bytes. Raises OSError if the limit is a share of the disk,
        and the data directory does not exist.
        """
        share = self.spool.max_share
        return (
            self.spool.max_bytes
            if share == 1
            else min(self.spool.max_bytes, int(share * disk_usage(self.gateway.data).total))
        )

    def queueing(self, client: str) -> QueueSection:
        """Return the limits of the queue of a client, bridge or member. client: its client
        identifier.
        """
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

    def owns_identifier(self, user: str, client: str) -> bool:
        """Whether rules with `%c` let this client read. They do in three cases: the client has no
        user name; its identifier is the user name, alone or followed by `:` and more text; or no
        other user has such rules for reading. In these cases, no other user can read more by taking
        the identifier.
        """
        named = {
            name
            for section in self.acl
            if "%c" in f"{section.read}{section.subscribe}"
            for name in section.named_users
        }
        alone = named == {user} and not set(user) & set("*?[")
        return alone or user in ("", client) or client.startswith(f"{user}:")

    def quota_of(self, user: str) -> QuotaSection | None:
        """Return the first [[quota]] section that matches a user, or None."""
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
        """Whether a quota limits the part of the spool that some user may fill."""
        return any(section.spool_share < 1 for section in self.quota)

    @model_validator(mode="after")
    def _has_room(self) -> "Config":
        """Check that the queues of bridges leave enough memory for the queues of other clients."""
        wanted = sum(item.max_bytes or MEGABYTE for item in self.bridge)
        if wanted > self.limits.memory_bytes // 2:
            raise Misfit(
                f"all bridges together may keep {wanted} bytes (bridge.max_bytes, or 1 MB without"
                " that key), which is more than half of limits.memory_bytes ="
                f" {self.limits.memory_bytes}: lower bridge.max_bytes, or raise"
                " limits.memory_bytes",
                *("bridge", 0, "max_bytes"),
            )
        return self

    @property
    def _bridge_share(self) -> int:
        """Size limit, in bytes, of the messages that wait for each bridge without `max_bytes`."""
        bounds = [item.max_bytes for item in self.bridge]
        free = self.limits.memory_bytes // 2 - sum(filter(None, bounds))
        return min(100 * MEGABYTE, free // bounds.count(None))

    @model_validator(mode="after")
    def _is_member(self) -> "Config":
        if self.site is not None and self.gateway.name not in self.site.members:
            raise Misfit(
                f"site.members lacks this gateway itself: {self.gateway.name!r} (gateway.name)",
                *("site", "members"),
            )
        return self

    @model_validator(mode="after")
    def _copies_fit(self) -> "Config":
        """Check that, with `copies = 2`, the site has another member, and each message fits into
        one frame between members.
        """
        if self.site is None or self.site.copies == 1:
            return self
        if len(self.site.members) == 1:
            raise Misfit("site.copies = 2 needs another member in site.members", "site", "copies")
        limits = [self.limits.packet_bytes, *(item.packet_bytes for item in self.listener)]
        longest = max(size for size in limits if size is not None)
        names = self.limits.client_id_bytes + 1024
        if longest + names > COPY_BYTES:
            raise Misfit(
                "with site.copies = 2, packet_bytes in [limits] and [[listener]] may be at most"
                f" {COPY_BYTES - names}, but it is {longest}",
                *("site", "copies"),
            )
        return self

    @model_validator(mode="after")
    def _unique(self) -> "Config":
        single = {"web": self.web, "page": self.page, "site": self.site}
        places: list[tuple[str, Place, str | None]] = [
            *(("bind", ("listener", at), item.bind) for at, item in enumerate(self.listener)),
            *(("bind", (name,), item.bind) for name, item in single.items() if item),
            *(("port", ("serial", at), item.port) for at, item in enumerate(self.serial)),
            *(("port", ("lora", at), item.port) for at, item in enumerate(self.lora)),
            *(("name", ("bridge", at), item.name) for at, item in enumerate(self.bridge)),
        ]
        known = set()
        for kind, place, value in places:
            if (kind, value) in known and value and not value.endswith(":0"):
                raise Misfit(f"two sections have the {kind} {value!r}", *place, kind)
            known.add((kind, value))
        return self
