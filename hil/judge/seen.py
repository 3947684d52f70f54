"""A history, sorted for the verdict. In: its events, in any order. Out: the sightings of each
publication by hop, and the other events.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hil.judge import columns, copied, links, lists, readings
from hil.judge.clocks import Clocks
from hil.judge.nameless import Nameless
from hil.judge.publication import Key, Sighting
from hil.judge.senml import Record, decode, of_link, says
from hil.judge.silences import Silences
from hil.observe.history import COMMAND, HOPS, READINGS, Event

COLUMNS = ("topic", "client", "received", "boot", "monotonic", "batch", "undecodable", "written")
TAKEN = ("landed", "ingested")
"""Columns of a row that the judge keeps in addition to COLUMNS."""
FOR_GOOD = (0x87, 0x90, 0x95, 0x99)
"""Reason codes after which a board sets a publication aside and continues (firmware/README.md)."""
Landed = tuple[Key, bytes | None, str, Any]
"""Key, payload, origin and batch of a landed row."""
DENIES = "publication refused for good"
"""The kind of fault that makes a gateway refuse a publication for good."""
SLOTS = 60
"""Number of publications that a board's journal can keep (firmware/JOURNAL.md)."""


@dataclass(slots=True)
class Seen:
    """A history, sorted for the verdict."""

    ways: dict[Key, dict[str, list[Sighting]]] = field(
        default_factory=lambda: defaultdict(lambda: {hop: [] for hop in HOPS})
    )
    listed: dict[tuple[str, int], lists.Way] = field(default_factory=lambda: defaultdict(lists.way))
    """Lists of devices that the gateways publish, by origin and position in a store."""
    landed_lists: list[tuple[Key, Sighting]] = field(default_factory=list)
    """Key and row of each list of devices that landed in a batch."""
    waiting: set[tuple[str, Key]] = field(default_factory=set)
    died: dict[Key, int] = field(default_factory=dict)
    """Time when a gateway was gone for good, for each publication that it had not landed."""
    acknowledged: dict[Key, int] = field(default_factory=dict)
    """Time of the last acknowledgement of each publication of a client."""
    released: dict[tuple[str, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    """Times of a board's PUBRELs, by line and packet identifier."""
    departed: set[Key] = field(default_factory=set)
    again: Counter[Key] = field(default_factory=Counter)
    resent: dict[Key, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Times at which a client has sent a PUBLISH again, with DUP, in the same QoS exchange."""
    refused: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Number of refusals by the gateway: PUBCOMPs with 0x92, and PUBRECs with a reason code of 0x80
    or above. Key: line and packet identifier."""
    aside: set[tuple[str, int]] = field(default_factory=set)
    """PUBLISH packets that were refused for good, by line and packet identifier."""
    published: dict[tuple[str, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    """Times of a board's PUBLISH packets, by line and packet identifier."""
    fresh: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Times at which the gateway has begun a new session (Session Present 0), by line."""
    resumed: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Times at which the gateway has continued a session (Session Present 1), by line."""
    silences: Silences = field(default_factory=Silences)
    clients: set[str] = field(default_factory=set)
    places: dict[tuple[str, int], set[Key]] = field(default_factory=lambda: defaultdict(set))
    """Publications seen at each place of a gateway's store. A place is origin and position."""
    copies: set[tuple[str, int]] = field(default_factory=set)
    """Places with a replica of another gateway's row (`copied.py`)."""
    replicated: bool = False
    """Whether the bench's gateways replicate publications (`copies = 2`)."""
    alive_until: dict[str, int] = field(default_factory=dict)
    """Last moment in ns at which each gateway was alive whose copies others must land, by name."""
    silent_ns: int = 0
    """Silence of a gateway in ns after which others land their copies (`copies_silent_s`)."""
    expected_copies: int = 0
    """Number of rows that dead gateways had not landed, and of which other gateways must have
    copies."""
    stores: set[str] = field(default_factory=set)
    """Origins of rows seen in a gateway's store."""
    decoded: dict[Key, readings.Seen] = field(default_factory=lambda: defaultdict(readings.Seen))
    clocks: Clocks = field(default_factory=Clocks)
    gateways: set[str] = field(default_factory=set)
    """Names of the gateways; empty for a system other than Onceway."""
    first_batch: int = 1
    """Number of the first batch, above 1 for a used store."""
    batch_count: int = columns.FAR
    """Largest number of rows of a batch."""
    batch_bytes: int = columns.FAR
    """Largest size of a batch with several rows: characters of topics plus bytes of payloads."""
    batch_age_s: float = 0.0
    """Age in seconds of a batch's oldest row at which the batch is cut, even if it is not full."""
    nameless: Nameless = field(default_factory=Nameless)
    sent: dict[Key, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    """Payloads sent by clients and real boards. A board may repeat a key with another payload."""
    quarantined: list[Event] = field(default_factory=list)
    """The batches in quarantine."""
    conflicts: list[tuple[Landed, Event]] = field(default_factory=list)
    """The payloads that were set aside, each with its landed row."""
    landed: dict[Landed, Sighting] = field(default_factory=dict)
    """The landed rows."""
    files: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    """Path, bytes and time (µs UTC) of each landed batch, by origin and number."""
    reworded: set[str] = field(default_factory=set)
    """Origins whose batches a fault has made: copies of other batches, with changed payloads."""
    second: set[tuple[Key, bytes]] = field(default_factory=set)
    """Key and payload of each row whose origin is in `reworded`."""
    unexpected_answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of answers to packets that were not sent on that connection. Key: the end that
    answered, and the kind of the answer."""
    unread: list[str] = field(default_factory=list)
    complete: set[str] = field(default_factory=set)
    planned: dict[str, str] = field(default_factory=dict)
    impossible: dict[str, str] = field(default_factory=dict)
    happened: Counter[str] = field(default_factory=Counter)
    fired: set[str] = field(default_factory=set)
    contradictions: list[str] = field(default_factory=list)
    commands: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """Time and interval (ms) of commands, by device."""
    obeyed: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """Board time and interval (ms) of obeyed commands, by device."""
    samples: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """For each device and reading: board time in cycles, and number of conversions since the
    previous reading or start."""
    starts: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Board times of all starts, by device."""
    deaths: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    last_words: dict[str, list[str]] = field(default_factory=dict)
    claim: str = "table"
    hops: tuple[str, ...] = HOPS
    reads: bool = False
    """Whether the table of readings is judged, too."""
    devices: list[str] = field(default_factory=list)
    provisioned: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    """Registry entries of each board that the rig has provisioned, the newest last."""
    real: set[str] = field(default_factory=set)
    """Real boards, whose ledger cannot be read."""
    plan: dict[str, int] = field(default_factory=dict)
    """Planned number of readings or messages, by device or client."""
    stalled: bool = False
    begun: bool = False
    began: int = -columns.FAR
    """Start of the run, in monotonic nanoseconds."""
    ours: bool = True
    """Whether the system under test is Onceway, and not the common setup of `onceway hil glue`."""
    armed: bool = False
    welcomed: Counter[str] = field(default_factory=Counter)
    reported: Counter[str] = field(default_factory=Counter)
    announced: set[str] = field(default_factory=set)
    """Faults of the plan that the rig has announced."""
    met: set[str] = field(default_factory=set)
    """Boards to which the gateway has sent a WELCOME."""
    by_air: set[str] = field(default_factory=set)
    counted: set[str] = field(default_factory=set)
    """Lines that have reported their final counts."""
    restores: int = 0
    """Number of times that a backup replaced the store. Each time, a publication may land once
    more: from a row of the backup, or because the board has not released it."""
    forgotten: list[tuple[int, Key]] = field(default_factory=list)
    """Times when a client learned that an exchange was forgotten, each with the message's key."""
    ended: bool = False

    def take(self, event: Event) -> None:
        self.clocks.take(event)
        self._take_shared_event(event)
        for take in _TAKERS.get(event.hop, ()):
            take(self, event)

    def _take_shared_event(self, event: Event) -> None:
        """Handle an event of a kind that several hops or programs record."""
        data = event.data
        match event.hop, event.event:
            case hop, "publication" if data.get("topic") == lists.TOPIC:
                row = _at_hop(event)
                self.listed[row.origin, row.position][hop].append(row)
                self.nameless.count(hop, data, row)
                if hop == "batch":
                    self.landed_lists.append((_key(data), row))
            case hop, "publication" if hop in HOPS and hop != "board":
                self._take_sighting(event)
            case hop, "waiting":
                self.waiting.add((hop, _key(data)))
            case hop, "complete":
                self.complete.add(hop)
            case _, "planned":
                self.planned[data["fault"]] = data["kind"]
                self.announced.add(data["fault"])
            case _, "happened":
                self.restores += links.is_restore(event)
                self.fired.add(data["fault"])
                self.happened[data["kind"]] += data["kind"] != COMMAND
                self.expected_copies += data.get("copied", 0)
                if "copied" in data:
                    self.alive_until[data["gateway"]] = data["since"]
            case program, "ended":
                self.deaths.append(f"{program} ended by itself ({data['how']})")
                self.last_words[program] = data["last_words"]
            case hop, "contradiction" if hop != "board":
                self.contradictions.append(data["text"])
            case program, "erred":
                self.errors.append(f"{program} met an internal error: {data['error']}")

    def _take_sighting(self, event: Event) -> None:
        row = _at_hop(event)
        if event.hop == "spool":
            self.stores.add(event.data["origin"])
            if self.clocks.unknown and row.columns.get("received", 0) is None:
                del row.columns["received"]  # the gateway fills it in before the row lands
        if not self.nameless.keeps(event.hop, event.data, row):
            self.ways[_key(event.data)][event.hop].append(row)
            self.places[row.origin, row.position].add(_key(event.data))

    def _take_board_event(self, event: Event) -> None:
        data = event.data
        match event.hop, event.event:
            case "board", "publication":
                self.ways[_key(data)]["board"].append(self._at_board(event))
            case "board", "acknowledged":
                self.acknowledged[_key(data)] = event.t
            case "board", "left":
                self.departed.add(_key(data))
            case "board", "provisioned":
                self.provisioned[data["device"]].append({"name": data["device"], **data["entry"]})
            case "board", "again":
                self.again[_key(data)] += 1
            case "board", "resent":
                self.resent[_key(data)].append(event.t)
            case "board", "forgotten":
                self.forgotten.append((event.t, _key(data)))
            case "board", "sent":
                self.sent[_key(data)].add(bytes.fromhex(data["payload"]))
            case "board", "obeyed":
                self.obeyed[data["device"]].append((data["cycle"], data["interval"]))
            case "board", "start":
                self.starts[data["device"]].append(data["cycle"])
            case "board", "contradiction":
                self.contradictions.append(
                    f"the ledger of {data['device']} contradicts itself: {data['text']}"
                )

    def _take_packet_event(self, event: Event) -> None:
        """Add a packet that was read on a line or in the air."""
        data = event.data
        match event.hop, event.event:
            case "wire", "pubrel" if data["direction"] == "up":
                self.released[data["line"], data["id"]].append(event.t)
            case "board" | "wire" | "air", "unasked":
                self.unexpected_answers[_end_of(data), data["packet"]] += 1
            case "wire" | "air", "publish" if data["direction"] == "up" and "id" in data:
                self.published[data["line"], data["id"]].append(event.t)
            case "wire" | "air", "connack" if not data["reason"]:
                begun = self.resumed if data["session_present"] else self.fresh
                begun[data["line"]].append(event.t)
            case "wire" | "air", "unread":
                end = links.ENDS[data["direction"]]
                self.unread.append(
                    f"what left {end} on the line of {data['line']} is not MQTT: {data['why']}"
                )
            case "wire" | "air", "refused" if data["direction"] == "down":
                self.refused[data["line"], data["id"]] += 1
                if data.get("packet") == "pubrec" and data["reason"] in FOR_GOOD:
                    self.aside.add((data["line"], data["id"]))

    def _take_session_event(self, event: Event) -> None:
        data = event.data
        match event.hop, event.event:
            case "wire", "welcome":
                self.welcomed[data["line"]] += 1
                self.met.add(data["line"])
            case "air", "welcome":
                self.met.add(data["line"])
            case "wire", "session":
                self.reported[data["line"]] += 1
            case "wire", "count" if data["final"]:
                self.counted.add(data["line"])
            case "air", "radio":
                self.counted.add(data["line"])
                self.by_air.add(data["line"])

    def _take_rig_event(self, event: Event) -> None:
        data = event.data
        match event.hop, event.event:
            case "rig", "armed":
                self.armed = True
            case "rig", "command":
                self.commands[data["device"]].append((event.t, data["interval"]))
            case "rig", "impossible":
                self.impossible[data["fault"]] = f": {data['why']}"
            case "rig", "broken":
                self.broken.append(f"the rig broke: {data['why']}")
                self.last_words[data["why"]] = data["last_words"]
            case "rig", "run":
                self._begin(data["bench"], data["plan"], data.get("hops", (*HOPS, READINGS)))
                named = data.get("gateway") or ()
                self.gateways = {named} if isinstance(named, str) else set(named)
                self.batch_count = data.get("batch_count") or columns.FAR
                self.batch_bytes = data.get("batch_bytes") or columns.FAR
                self.batch_age_s = data.get("batch_age_s", 0.0)
                self.ours = "hops" not in data
                self.began = event.t
            case "rig", "stalled":
                self.stalled = True
            case "rig", "end":
                self.ended = True

    def _take_row_event(self, event: Event) -> None:
        data = event.data
        match event.hop, event.event:
            case "spool", "died":
                self.died[_key(data)] = event.t
            case "landing", "reworded":
                self.reworded.add(data["origin"])
            case "table", "quarantined":
                self.quarantined.append(event)
            case "table", "conflict":
                origin = f"{data['gateway']}/{data['epoch']}"
                of = (_key(data), bytes.fromhex(data["payload"]), origin, data["batch"])
                self.conflicts.append((of, event))
            case "landing", "landed":
                self.files[data["origin"], data["batch"]] = data
            case "readings", "reading":
                self.decoded[_key(data)].take(data)
            case "batch", "changed":
                self.contradictions.append(f"batch {data['batch']} had landed, but {data['how']}")

    def sort(self) -> None:
        """Derive data from several events. Call this once, after all events were added."""
        self.clocks.sort()
        self.nameless.give(self.ways)
        self.copies = copied.places(self.ways.values()) if self.replicated else set()
        landed = [(key, row) for key, way in self.ways.items() for row in way["batch"]]
        landed += self.landed_lists
        self.landed = {(key, row.payload, *_batch(row)): row for key, row in landed}
        self.second = {
            (key, row.payload) for key, row in landed if row.origin in self.reworded and row.payload
        }
        for way in self.ways.values():
            way["batch"] = [row for row in way["batch"] if row.origin not in self.reworded]

    def _begin(self, bench: dict[str, Any], plan: dict[str, Any], hops: Sequence[str]) -> None:
        self.claim = HOPS[HOPS.index(bench["until"])]
        self.reads = self.claim == "table" and READINGS in hops
        self.hops = tuple(hop for hop in HOPS[: HOPS.index(self.claim) + 1] if hop in hops)
        tables = [table for table in bench.get("client", ()) for _ in range(table.get("count", 1))]
        self.nameless.clients = {
            f"client-{number}"
            for number, table in enumerate(tables, 1)
            if not table.get("identity", True)
        }
        self.devices = list(plan["readings"])
        self.first_batch = bench.get("first_batch", 1)
        site = bench.get("config", {}).get("site", {})
        self.replicated = site.get("copies") == 2
        self.silent_ns = int(site.get("copies_silent_s", 0) * 1e9)
        real = [table for table in bench.get("board", ()) if table["port"]]
        self.real = {f"real-{number}" for number, _ in enumerate(real, 1)}
        self.plan = {
            **plan["readings"],
            **{f"client-{number}": table["messages"] for number, table in enumerate(tables, 1)},
        }
        for fault in plan.get("faults", ()):
            self.planned.setdefault(fault["id"], fault["text"])
        self.begun = True

    def _at_board(self, event: Event) -> Sighting:
        data = event.data
        if data.get("payload") is None:
            records, payload = tuple(Record(*record) for record in data["records"]), None
        else:
            payload = bytes.fromhex(data["payload"])
            records = decode(payload) or ()
            self.sent[_key(data)].add(payload)
        if data["kind"] == "message":
            self.clients.add(data["device"])
        elif data["kind"] == "reading" and "cycle" in data:
            missed = sum(record.value or 0 for record in records if record.name.endswith(":missed"))
            self.samples[data["device"]].append((data["cycle"], 1 + int(missed)))
        return Sighting(
            event.t,
            records,
            payload,
            data["kind"] == "status",
            data.get("qos", 2),
            sampled=data.get("sampled"),
            columns={name: data[name] for name in ("topic",) if name in data},
        )

    def received(self) -> Iterator[dict[str, list[Sighting]]]:
        """Yield each publication's sightings by hop. At the hop `spool`, copies of another
        gateway's rows are left out.
        """
        for way in self.ways.values():
            own = [row for row in way["spool"] if (row.origin, row.position) not in self.copies]
            yield {**way, "spool": own}

    def hasty(self) -> list[str]:
        """Return a sentence for each batch that was cut too early. A batch is not judged if it has
        a list of devices, or another row that no publisher of the run has sent.
        """
        lists_in = {
            (row.origin, row.columns.get("batch"))
            for way in self.listed.values()
            for row in way["batch"]
        }
        ways = [
            {**way, "batch": [row for row in way["batch"] if _batch(row) not in lists_in]}
            for way in self.ways.values()
        ]
        most = self.batch_count, self.batch_bytes
        return columns.hasty(ways, *most, self.batch_age_s, self.clocks)

    def times(self) -> Iterator[tuple[str, float, int]]:
        """Yield device and two times of each publication whose times are known: the sample's time
        in its row at the hop of the claim (UTC seconds), and its real time (monotonic ns).
        """
        for key, way in self.ways.items():
            if not way["board"] or way["board"][0].sampled is None:
                continue
            for found in way[self.claim][:1]:
                for record in (found.records or ())[:1]:
                    if record.time is not None:
                        yield key.device, record.time, way["board"][0].sampled

    def lost_after_acknowledgement(self, key: Key) -> bool:
        """Return whether a publication was lost with a gateway after its publisher had the
        acknowledgement. (Without an acknowledgement, the publisher publishes again.)
        """
        if key not in self.died:
            return False
        if key.device in self.clients:
            return self.acknowledged.get(key, self.died[key]) < self.died[key]
        released = self.released[key.device, key.sequence & 0xFFFF]
        return any(t < self.died[key] for t in released)

    def set_aside(self, key: Key) -> bool:
        """Return whether the gateway refused a publication for good, in its PUBREC."""
        return (key.device, key.sequence & 0xFFFF) in self.aside

    def gave_way(self, key: Key) -> bool:
        """Return whether the board needed the slot of a publication that the gateway refused for
        good, as a fault of the plan demands.
        """
        denied = DENIES in self.planned.values() and self.set_aside(key)
        return denied and any(
            (other.device, other.incarnation) == (key.device, key.incarnation)
            and other.sequence >= key.sequence + SLOTS
            for other, way in self.ways.items()
            if way["board"]
        )

    def holds(self, hop: str, key: Key) -> bool:
        """Return whether a row may still be missing without a fault: the hop `hop` still has to
        deliver the publication, or the rig did not read all rows at the claim's hop."""
        return self.claim not in self.complete or (hop, key) in self.waiting

    def allowed(self, key: Key, qos: int) -> int:
        """Return how many rows a publication may have at the hop of the claim. The table may have
        one. The landing place may have more, for example one for each PUBLISH of a client at QoS 1.
        """
        return 1 if self.claim == "table" else self._may_land(key, qos)

    def too_often(self, key: Key, qos: int) -> bool:
        """Return whether a publication has too many rows, at the claim's hop or where it landed."""
        rows = self.ways[key][self.claim]
        places = {(row.origin, row.position) for row in rows}
        copies = places & self.copies if self.claim == "batch" else ()
        if len(rows) - len(copies) > self.allowed(key, qos):
            return True
        return self.claim == "table" and self.ours and self._doubled_on_the_way(key, qos)

    def _doubled_on_the_way(self, key: Key, qos: int) -> bool:
        """Return whether one row of a publication landed twice. Return True also if more of its
        rows landed than `_may_land` allows, and the rig saw at least one in no spool. Two rows in a
        spool are allowed, because the ingest takes one. Copies made by a fault do not count: no
        store of the run has their epoch.
        """
        way = self.ways[key]
        landed = [(row.origin, row.position) for row in way["batch"]]
        own = {place for place in landed if place[0] in self.stores} - self.copies
        strange = own - {(row.origin, row.position) for row in way["spool"]}
        many = len(own) > self._may_land(key, qos)
        return len(set(landed)) < len(landed) or bool(strange and many)

    def _may_land(self, key: Key, qos: int) -> int:
        again = self.again[key] + sum(
            qos == 1 or self.silences.excuse(key.device, t) for t in self.resent[key]
        )
        if key.device not in self.clients:  # a board may repeat only what the gateway asked for
            on_line = key.device, key.sequence & 0xFFFF
            sent = self.published.get(on_line, [])
            fresh, resumed = self.fresh[key.device], self.resumed[key.device]
            if key.device in self.by_air:
                # the board has proved its key: a gateway with the other gateways' data drops a
                # repeated publication by its anti-replay window
                fresh, resumed, again = [], fresh + resumed, 0
            in_doubt = [at for at in resumed if self.silences.excuse(key.device, at)]
            lost = sum(
                any(t < at for t in sent) and any(t > at for t in sent) for at in fresh + in_doubt
            )
            again = min(again, self.refused[on_line]) + lost
        return 1 + again + self.restores

    def altered(self, key: Key, hop: str) -> str:
        """Return the first mistake in a publication's rows at a hop, in words, or ""."""
        way = self.ways[key]
        before = HOPS[1 : HOPS.index(hop)]
        for found in way[hop]:
            why = (
                self._payload_differs(key, found)
                or columns.wrong(
                    *(key, found, way["board"][0], self.clocks, self.gateways),
                    nameless=key.device in self.nameless.clients,
                )
                or next(filter(None, (columns.moved(found, way, at) for at in before)), None)
                or self._shares_place(key, found)
            )
            if why:
                return why
        return ""

    def _shares_place(self, key: Key, found: Sighting) -> str | None:
        others = {one for one in self.places[found.origin, found.position] if one.device} - {key}
        if not others:  # rows without identity are judged by nameless.py
            return None
        return f"{min(others)} has the same place: {found.origin} position {found.position}"

    def _payload_differs(self, key: Key, found: Sighting) -> str | None:
        way = self.ways[key]
        board = way["board"][0]
        if key in self.sent:
            sent = found.payload in self.sent[key]
            return None if sent else "its payload differs from the sent one"
        wanted = board.records or ()
        if found.records is None or not says(found.records, wanted):
            return f"its payload says {_records_text(found.records)}, not {_records_text(wanted)}"
        if board.sampled is None:
            return None
        # a payload sent later may lack the time, so each form has its own time of arrival
        same = [one for hop in HOPS[1:] for one in way[hop] if one.payload == found.payload]
        arrived = min(one.t for one in same)
        times = {record.time for record in found.records if not of_link(record)}
        for time in times:
            if why := self.clocks.time_fault(key.device, time, board.sampled, arrived):
                return why
        if board.status:
            return None
        return self.clocks.unsure(key.device, found.records[0], board.sampled, arrived)


_TAKERS: dict[str, tuple[Callable[[Seen, Event], None], ...]] = {
    "board": (Seen._take_board_event, Seen._take_packet_event),
    "wire": (Seen._take_packet_event, Seen._take_session_event),
    "air": (Seen._take_packet_event, Seen._take_session_event),
    "rig": (Seen._take_rig_event,),
    **dict.fromkeys(("spool", "landing", "table", "readings", "batch"), (Seen._take_row_event,)),
}
"""Methods that take the events of each hop, in this order."""


def _key(data: dict[str, Any]) -> Key:
    """Return the identity of a row. A row without identity gets its position as sequence, with an
    empty device name, which no publisher has.
    """
    if data["device"] is None:
        return Key("", 0, int(data["position"] if "position" in data else data["index"]))
    return Key(str(data["device"]), int(data["incarnation"]), int(data["sequence"]))


def _batch(row: Sighting) -> tuple[str, Any]:
    return row.origin, row.columns.get("batch")


def _end_of(data: dict[str, Any]) -> str:
    """Return the end that sent an unexpected answer, in words."""
    if "line" in data:
        return f"{links.ENDS[data['direction']]} on the line of {data['line']}"
    return f"the gateway on a connection of {data['device']}"


def _at_hop(event: Event) -> Sighting:
    payload = bytes.fromhex(event.data["payload"])
    return Sighting(
        event.t,
        decode(payload),
        payload,
        origin=event.data["origin"],
        position=event.data["position"],
        columns={name: event.data[name] for name in (*COLUMNS, *TAKEN) if name in event.data},
    )


def _records_text(records: Sequence[Record] | None) -> str:
    if records is None:
        return "no SenML"
    return ", ".join(
        f"{one.name}={one.content} {one.unit or ''}".rstrip() for one in records if not of_link(one)
    )
