"""A gateway's figures as Prometheus metrics.

In: a `Source`, and the uplink's state in the database. Out: metric families, made at each scrape
from the counters of the gateway's parts. Labels take their values from the configuration, the
device registry, the standard's reason codes and ports, never from clients: the number of series
does not depend on the number of clients. A port's counters are labelled with its path;
`onceway_link_device` says which device is on it, to be joined (`* on(port) group_left(device)
onceway_link_device`).
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from gateway import __version__
from gateway.boards.expected import WORDS
from gateway.broker.lack import Bound
from gateway.broker.ledger import Request
from gateway.links.lora.status import BoardSignal, RadioStatus
from gateway.links.serial_port import PortStatus
from gateway.links.statistics import LinkStatistics
from gateway.mqtt.reason import ReasonCode
from gateway.runtime.sys_topics import take_figures
from gateway.store.checkpoint import LogJob
from gateway.store.schema import FILE
from gateway.store.times import BOUNDS_S, Histogram
from gateway.web.health import gateway_problems
from gateway.web.source import Source
from gateway.web.uplink import UplinkState

MOST_PORTS = 256

_EXPECTED: dict[tuple[Request, ReasonCode], int] = {
    ("connect", ReasonCode.BAD_USER_NAME_OR_PASSWORD): 0,
    ("connect", ReasonCode.NOT_AUTHORIZED): 0,
    ("connect", ReasonCode.QUOTA_EXCEEDED): 0,
    ("connect", ReasonCode.CONNECTION_RATE_EXCEEDED): 0,
    ("publish", ReasonCode.NOT_AUTHORIZED): 0,
    ("publish", ReasonCode.QUOTA_EXCEEDED): 0,
    ("subscribe", ReasonCode.NOT_AUTHORIZED): 0,
    ("subscribe", ReasonCode.QUOTA_EXCEEDED): 0,
}
"""Counters that exist from the start, with 0. Without the sample 0, the first refusal would be
missing in a rate.
"""

_LINK_COUNTERS = {
    "frames_received": "Frames that passed their CRC",
    "frames_sent": "Frames that were sent, retransmissions included",
    "retransmissions": "Frames that were sent again",
    "duplicates": "DATA frames received again or out of order",
    "crc_errors": "Frames with a wrong CRC: damaged on the line, or sent in an earlier session",
    "malformed_frames": "Frames that cannot be read",
    "sessions": "Link sessions that have begun",
    "reboots": "Link sessions that have begun after a restart of the device",
    "give_ups": "Link sessions that ended because the device did not answer",
}


_BOARD_FIGURES = (
    (
        "board_eeprom_life_years",
        "life",
        "Remaining life of the board's EEPROM in years, if the interval stays the same",
    ),
    ("board_worn_writes", "worn", "Failed writes of EEPROM cells, since the board's start"),
    (
        "board_set_aside",
        "aside",
        "Publications of the board that the gateway refused for good, since the start of the board",
    ),
)
"""For each metric: its name, the name of the figure in a board's status report, and its help text.
"""


_BRIDGE_GAUGES = {
    "waiting": "Messages that wait for the other broker",
    "waiting_bytes": "Bytes of the messages that wait for the other broker",
    "aside": "Messages that are set aside: the other broker did not accept them, or never can",
    "aside_bytes": "Bytes of the messages that are set aside",
    "held": "Messages from the other broker that wait for room here",
    "differ": "Retained topics that differ between both brokers; 0 while that is unknown",
    "oldest_s": "Age of the oldest message that waits for the other broker, in seconds",
}
_BRIDGE_COUNTERS = {
    "sent": "Messages that the other broker has acknowledged",
    "refused": "Messages that the other broker has refused for good",
    "dropped": "Messages dropped because too many waited, or because the other broker closed"
    " connections",
    "received": "Messages from the other broker",
    "set_aside": "Messages that were set aside since the start of the gateway",
    "aside_lost": "Messages that were lost because too many were set aside",
    "unconfirmed": "Messages given up at their PUBREL, which may have reached the other broker",
    "not_taken": "Messages from the other broker that this gateway can never accept",
    "looped": "Messages that came back in a loop of bridges and were not forwarded again",
}
_SITE_COUNTERS = {
    "asked": "Session lookup queries, one for each member that was asked",
    "calls": "Calls to other members, each with one or more session lookup queries",
    "moved_in": "Sessions that moved here from another member",
    "moved_out": "Sessions that moved to another member",
    "released": "Packet identifiers that another member released for a client here",
    "lost": "Messages lost with sessions that another member has, or may have, replaced or ended",
    "superseded": "CONNECTs whose client connected again before the session lookup had ended",
    "marked": "Answers to clients with a suspect session: a repeated message may be spooled twice",
    "forward_dropped": "Messages for other members that were dropped because too many waited",
    "followers_refused": "Moved sessions without a forwarder: their late messages are lost",
    "retained_left_out": "Retained messages of other members for which there was no room here",
}
_SITE_GAUGES = {
    "given": "Sessions that move to another member, and stay here until they have arrived",
    "filters": "Topic Filters of clients at other members",
    "followers": "Moved sessions for which messages may still arrive here",
    "forward_waiting": "Messages that wait until another member has them",
    "retained_waiting": "Retained messages that a connected member may not have yet",
    "in_doubt": "Suspect sessions: another member may have a newer session of the client",
}
_COPIES_GAUGES = {
    "copies_kept_bytes": "Bytes of other members' spools that are kept here",
    "copies_damaged": "Replicated rows of other members that this disk has corrupted",
    "copies_full": "1 while other members' copies wait for room here (site.copies_bytes, the disk)",
    "copies_behind": "Rows of the spool that are neither on a second disk nor landed",
    "copies_refusing": "1 while messages are refused because no other member accepts copies",
}
"""Gauges of replication. The last two exist only with `copies = 2`."""
_RADIO_FIGURES: tuple[tuple[str, str, Callable[[RadioStatus], float]], ...] = (
    ("radio_open", "1 while a radio's modem answers", lambda radio: radio.is_open),
    ("radio_boards", "Boards in session by radio", lambda radio: len(radio.connected)),
    (
        "radio_airtime_seconds",
        "Airtime that the radio has used within the last hour",
        lambda radio: radio.used,
    ),
    (
        "radio_airtime_limit_seconds",
        "Legal limit of the airtime within an hour",
        lambda radio: radio.limit,
    ),
    (
        "radio_airtime_left_seconds",
        "Airtime that the radio may use now without exceeding the limit",
        lambda radio: radio.limit - radio.used,
    ),
)
_SIGNAL_FIGURES: tuple[tuple[str, str, Callable[[BoardSignal], float | None]], ...] = (
    ("radio_heard_seconds", "Time since the last frame from a board", lambda board: board.age),
    (
        "radio_board_airtime_seconds",
        "Airtime of a board's frames that were heard within an hour",
        lambda board: board.airtime,
    ),
    ("radio_rssi_dbm", "Signal strength of the last frame from a board", lambda board: board.rssi),
    (
        "radio_snr_db",
        "Signal-to-noise ratio of the last frame from a board",
        lambda board: board.snr,
    ),
)


def registry(source: Source, uplink: UplinkState | None) -> CollectorRegistry:
    """Return all metrics of `/metrics`: those of the gateway, and those of its process under
    Prometheus's own names. uplink: None if not known.
    """
    found = CollectorRegistry()
    found.register(GatewayCollector(source, uplink))
    ProcessCollector(registry=found)
    return found


class GatewayCollector(Collector):
    """A Prometheus collector of one gateway. It runs on the event loop's thread, so figures from
    the disk are read beforehand.
    """

    def __init__(self, source: Source, uplink: UplinkState | None) -> None:
        self._source = source
        self._uplink = uplink

    def collect(self) -> Iterator[Metric]:
        source = self._source
        yield _gauge("build_info", "Version of this gateway", 1, {"version": __version__})
        yield _gauge("healthy", "1 while /healthz reports no problem", not gateway_problems(source))
        yield from _traffic(source)
        yield from _clients(source)
        yield from _store(source)
        yield from _spool(source)
        if self._uplink is not None:
            yield from _uplink(self._uplink)
        yield from _bridges(source)
        yield from _links(source)
        yield from _expected(source)
        yield from _radios(source)
        yield from _site(source)


def _traffic(source: Source) -> Iterator[Metric]:
    statistics = source.broker.statistics
    yield _counters(
        "messages_received",
        "PUBLISH packets from clients",
        "qos",
        dict(enumerate(statistics.received)),
    )
    yield _counters(
        "messages_sent", "PUBLISH packets to clients", "qos", dict(enumerate(statistics.sent))
    )
    yield _counter("received_bytes", "Bytes of MQTT from clients", statistics.bytes_received)
    yield _counter("sent_bytes", "Bytes of MQTT to clients", statistics.bytes_sent)
    given_up = {
        "slow_receiver": statistics.dropped,
        "queue_full": statistics.overflowed,
        "store_damaged": statistics.vanished,
        "expired": statistics.expired,
        "too_large": statistics.too_large,
    }
    yield _counters(
        "messages_dropped", "Messages that a client did not get, by reason", "reason", given_up
    )
    refused = CounterMetricFamily(
        "onceway_refused",
        "Requests of clients that were refused, by request and reason",
        labels=["request", "reason"],
    )
    for (request, reason), count in (_EXPECTED | statistics.refusals).items():
        refused.add_metric([request, reason.name.lower()], count)
    yield refused
    pauses = dict.fromkeys([*Bound, "for_good"], 0) | statistics.pauses
    yield _counters(
        "turned_away",
        "Connections ended because a publication was refused for now, by the exceeded bound",
        "bound",
        pauses,
    )
    waiting = source.broker.pauses.waiting(source.broker.now)
    yield _gauges(
        "publishers_paused",
        "Clients that are paused because a publication was refused",
        "bound",
        dict.fromkeys(pauses, 0) | {key or "for_good": n for key, n in waiting.items()},
    )
    yield _counter(
        "rests",
        "Pauses of clients because their user published too fast",
        statistics.quota_pauses,
    )
    yield _counter(
        "repeated_publishes", "QoS 2 PUBLISH packets that were received again", statistics.repeated
    )
    yield _counter(
        "unknown_releases",
        "PUBREL packets for an unknown packet identifier",
        statistics.unknown_releases,
    )


def _clients(source: Source) -> Iterator[Metric]:
    broker = source.broker
    found = take_figures(broker)
    open_now = dict.fromkeys(
        [item.name for item in broker.config.listener]
        + [item.port for item in broker.config.serial],
        0,
    )
    open_now.update(Counter(connection.peer.listener for connection in broker.connections))
    yield _gauges("connections", "Network connections that are open", "listener", open_now)
    yield _counter(
        "connections_accepted", "Network connections accepted", broker.statistics.connections
    )
    ended = {reason.name.lower(): count for reason, count in broker.statistics.disconnects.items()}
    yield _counters("disconnects", "Connections ended by the gateway, by reason", "reason", ended)
    states = {"connected": found.connected, "away": found.sessions - found.connected}
    yield _gauges("sessions", "Sessions, by whether their client is connected", "state", states)
    yield _gauge("sessions_durable", "Sessions that outlive their connection", found.durable)
    yield _gauge("subscriptions", "Subscriptions of all sessions", broker.router.count)
    yield _gauge("retained_messages", "Retained messages", broker.retained.count)
    yield _gauge(
        "subscription_bytes", "Memory of all subscriptions' filters", broker.router.use.total
    )
    yield _gauge("retained_bytes", "Memory of all retained messages", broker.retained.size)
    yield _gauge("partial_packet_bytes", "Memory of incomplete packets", broker.partial)
    yield _gauge(
        "memory_limit_bytes",
        "Limit of the memory for queues. Filters have the same limit of their own, and so do"
        " incomplete packets",
        broker.limits.memory_bytes,
    )
    yield _gauge("queue_messages", "Messages in the queues of all sessions", found.queued)
    yield _gauge("queue_bytes", "Bytes in the queues of all sessions", broker.queued)
    yield _gauge("queue_longest_messages", "Messages in the longest queue", found.longest)
    yield _gauge(
        "inflight_messages", "Messages sent to clients and not yet acknowledged", found.inflight
    )


def _store(source: Source) -> Iterator[Metric]:
    times = source.times
    yield _histogram(
        "store_commit_seconds", "Time of a commit, from its first row to the disk", times.commit
    )
    yield _histogram(
        "store_fsync_seconds",
        "Time of a commit's last step: write the log, wait for fsync",
        times.sync,
    )
    yield _gauges(
        "job_age_seconds",
        "Time since a background job last succeeded, or since the start",
        "job",
        {job.name: job.age_s for job in source.jobs},
    )
    yield _counters(
        "job_failures",
        "Failures of a background job",
        "job",
        {job.name: job.failures for job in source.jobs},
    )
    yield _gauges(
        "job_overdue",
        "1 while a background job has not succeeded within its bound",
        "job",
        {job.name: int(job.problem is not None) for job in source.jobs},
    )
    holders = [name for job in source.jobs if isinstance(job, LogJob) for name in job.holders]
    yield _gauges(
        "store_log_held",
        "1 for each program that keeps the store's write-ahead log from being emptied",
        "by",
        dict.fromkeys(holders, 1),
    )
    yield _gauge(
        "clock_doubted", "1 while the system clock is not believed", source.doubt() is not None
    )
    yield _counter("store_failures", "Commits that failed and were tried again", times.failures)
    yield _gauge(
        "store_writable",
        "0 while commits fail, or the disk has no room for more messages",
        not source.broker.disk_lack,
    )
    path = source.folder / FILE
    sizes = {"database": _size(f"{path}"), "log": _size(f"{path}-wal")}
    yield _gauges("store_bytes", "Size of the store's files", "file", sizes)
    disk = os.statvfs(source.folder)
    yield _gauge(
        "store_free_bytes", "Free space on the store's disk", disk.f_bavail * disk.f_frsize
    )


def _spool(source: Source) -> Iterator[Metric]:
    spool = source.broker.spool
    yield _gauge("spool_messages", "Messages that wait for the uplink", spool.count)
    yield _gauge("spool_bytes", "Bytes that wait for the uplink", spool.size)
    yield _gauge("spool_limit_bytes", "Bytes at which new messages are refused", spool.limit)
    used = bool(source.broker.config.spooled)
    yield _gauge("spool_used", "1 while messages are kept for an uplink ([uplink])", used)
    full = used and spool.full
    yield _gauge("spool_full", "1 while messages are refused for lack of room", full)
    age = source.spool_age_s
    if age is not None:
        yield _gauge(
            "spool_oldest_seconds", "Time that the oldest message has waited for the uplink", age
        )


def _uplink(state: UplinkState) -> Iterator[Metric]:
    totals = state.totals
    yield _gauge("uplink_running", "1 while there is an uplink process", state.running)
    yield _gauge(
        "uplink_outage", "1 while the landing place cannot be reached or written", state.outage
    )
    yield _gauge(
        "uplink_batch_cut", "Number of the newest batch that was made from the spool", state.cut
    )
    yield _gauge("uplink_batch_landed", "Number of the newest batch that has landed", state.landed)
    if state.landed_at is not None:
        yield _gauge(
            "uplink_landed_timestamp_seconds",
            "Time of the newest landed batch, in seconds since 1970",
            state.landed_at / 1e6,
        )
    yield _counter("uplink_batches", "Batches that have landed", totals.batches)
    yield _counter("uplink_messages", "Messages that have landed", totals.messages)
    yield _counter("uplink_readings", "Older name of uplink_messages", totals.messages)
    yield _counter("uplink_sent_bytes", "Bytes of the batches that have landed", totals.bytes)
    yield _counter("uplink_held", "Damaged rows that were set aside and do not land", totals.held)
    yield _counter("uplink_failures", "Failed attempts to land a batch", totals.failures)


def _bridges(source: Source) -> Iterator[Metric]:
    bridges = {item.name: item for item in source.bridges()}
    yield _gauges(
        "bridge_connected",
        "1 while there is a connection to the other broker",
        "bridge",
        {name: item.error is None for name, item in bridges.items()},
    )
    for figure, text in _BRIDGE_GAUGES.items():
        values = {name: getattr(item, figure) or 0 for name, item in bridges.items()}
        name = figure.replace("oldest_s", "oldest_seconds").replace("differ", "retained_differ")
        yield _gauges(f"bridge_{name}", text, "bridge", values)
    for figure, text in _BRIDGE_COUNTERS.items():
        values = {name: getattr(item, figure) for name, item in bridges.items()}
        yield _counters(f"bridge_{figure}", text, "bridge", values)


def _site(source: Source) -> Iterator[Metric]:
    """Yield the metrics of a site, if the gateway belongs to one."""
    rows = source.site()
    if not rows:
        return
    figures = rows[0]["figures"]
    others = rows[1:]
    remaining = date.fromisoformat(rows[0]["until"]) - datetime.now(UTC).date()
    yield _gauge(
        "site_certificate_days", "Days until this gateway's certificate expires", remaining.days
    )
    yield _gauges(
        "site_member_connected",
        "1 while there is a link to another member of the site",
        "member",
        {row["name"]: row["connected"] for row in others},
    )
    yield _counters(
        "site_silent",
        "Session lookups that were decided while this member was silent",
        "member",
        {row["name"]: row["silent"] for row in others},
    )
    for figure, text in _SITE_COUNTERS.items():
        yield _counter(f"site_{figure}", text, figures[figure])
    for figure, text in _SITE_GAUGES.items():
        yield _gauge(f"site_{figure}", text, figures[figure])
    copies = rows[0]["copies"]
    yield _counter(
        "site_copies_landed",
        "Messages from replicas of other members' spools that this gateway has put into its own"
        " spool, to land them",
        copies["copies_landed"],
    )
    for figure, text in _COPIES_GAUGES.items():
        if figure in copies:
            yield _gauge(f"site_{figure}", text, copies[figure])


def _expected(source: Source) -> Iterator[Metric]:
    """Yield the number of registered boards in each state, and the boards with a problem."""
    if source.expected is None:
        return
    words: Counter[str] = Counter(state.word for state in source.expected.states.values())
    yield _gauges(
        "boards_expected",
        "Boards of the device registry, by state",
        "state",
        {str(word): words[word] for word in WORDS},
    )
    missing = GaugeMetricFamily(
        "onceway_board_problem",
        "1 for each board with a problem, by cause",
        labels=["device", "cause"],
    )
    for name, state in source.expected.problems[:MOST_PORTS]:
        missing.add_metric([name, state.word], 1)
    yield missing


def _links(source: Source) -> Iterator[Metric]:
    ports = {port.path: port for port in source.ports()[:MOST_PORTS]}
    links: dict[str, LinkStatistics] = {path: port.statistics for path, port in ports.items()}
    yield _gauges(
        "link_open",
        "1 while a serial port is open",
        "port",
        {path: port.is_open for path, port in ports.items()},
    )
    device = GaugeMetricFamily(
        "onceway_link_device",
        "1 for the device that is connected at a port",
        labels=["port", "device"],
    )
    for path, port in ports.items():
        if port.device is not None:
            device.add_metric([path, port.device], 1)
    yield device
    yield from _board_reports(source, ports)
    for name, text in _LINK_COUNTERS.items():
        yield _counters(
            f"link_{name}",
            text,
            "port",
            {path: getattr(link, name) for path, link in links.items()},
        )
    received = {path: link.bytes_received for path, link in links.items()}
    yield _counters("link_received_bytes", "Bytes received from the serial line", "port", received)
    yield _counters(
        "link_sent_bytes",
        "Bytes sent to the serial line",
        "port",
        {path: link.bytes_sent for path, link in links.items()},
    )
    trips = {path: link.round_trip for path, link in links.items() if link.round_trip is not None}
    yield _gauges(
        "link_round_trip_seconds",
        "Smoothed round-trip time of a frame and its acknowledgement",
        "port",
        trips,
    )


def _radios(source: Source) -> Iterator[Metric]:
    """Yield the metrics of LoRa radios, by port, and the metrics of the signals of boards, by
    board.
    """
    radios = source.radios()[:MOST_PORTS]
    for name, text, figure in _RADIO_FIGURES:
        yield _gauges(name, text, "port", {radio.path: figure(radio) for radio in radios})
    frames = CounterMetricFamily(
        "onceway_radio_frames",
        "Frames of a radio, by outcome",
        labels=["port", "result"],
    )
    for radio in radios:
        for result, count in radio.counts.items():
            frames.add_metric([radio.path, result], count)
    yield frames
    airtime = CounterMetricFamily(
        "onceway_radio_air_seconds",
        "Airtime since the start of the gateway, of frames heard (up) or sent (down)",
        labels=["port", "band", "direction"],
    )
    for radio in radios:
        airtime.add_metric([radio.path, radio.band, "up"], radio.heard_s)
        airtime.add_metric([radio.path, radio.band, "down"], radio.sent_s)
    yield airtime
    heard = {board.name: board for radio in radios for board in radio.boards}
    for name, text, figure_of in _SIGNAL_FIGURES:
        found = {board: figure_of(signal) for board, signal in heard.items()}
        known = {board: value for board, value in found.items() if value is not None}
        yield _gauges(name, text, "device", known)


def _board_reports(source: Source, ports: dict[str, PortStatus]) -> Iterator[Metric]:
    """Yield the figures that boards report, and counts of payload conflicts."""
    yield _counter(
        "board_contradictions",
        "Board publications that arrived again with another payload",
        0 if source.boards is None else source.boards.payload_conflicts,
    )
    statuses = {
        path: status
        for path, port in ports.items()
        if source.boards is not None
        and port.device is not None
        and (status := source.boards.status(port.device))
    }
    for name, figure, text in _BOARD_FIGURES:
        yield _gauges(
            name,
            text,
            "port",
            {path: status[figure] for path, status in statuses.items() if figure in status},
        )


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _gauge(name: str, text: str, value: float, labels: dict[str, str] | None = None) -> Metric:
    labels = labels or {}
    family = GaugeMetricFamily(f"onceway_{name}", text, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"onceway_{name}", text, value=value)


def _gauges(
    name: str, text: str, label: str, values: dict[str, float] | dict[str, int] | dict[str, bool]
) -> Metric:
    family = GaugeMetricFamily(f"onceway_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _counters(name: str, text: str, label: str, values: dict[str, int] | dict[int, int]) -> Metric:
    family = CounterMetricFamily(f"onceway_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([str(key)], value)
    return family


def _histogram(name: str, text: str, histogram: Histogram) -> Metric:
    buckets, seen = [], 0
    for bound, count in zip([*map(str, BOUNDS_S), "+Inf"], list(histogram.counts), strict=True):
        seen += count
        buckets.append((bound, float(seen)))
    return HistogramMetricFamily(
        f"onceway_{name}", text, buckets=buckets, sum_value=histogram.total
    )
