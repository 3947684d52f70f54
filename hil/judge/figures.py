"""Compares what a gateway says of itself at the end of a run with the rig's counts: its metrics,
rows of its control socket, `onceway uplink status --json`, and rows that stay in its store.

In: a history. Out: a sentence for each figure outside its bounds. RULES has the bounds, from the
packets, files and processes that the rig has seen; figures.toml says which figure has which rule.
hil/OUTPUTS.md lists the figures without bounds, each with the reason.
"""

import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hil.judge import lists
from hil.judge.air import BUDGET, MODEM
from hil.judge.calm import is_calm
from hil.judge.links import RESTORED
from hil.judge.remains import dead_gateways, peers, whole_run
from hil.judge.senml import decode
from hil.observe.history import KEY, Event, taking

S = 1_000_000_000  # ns
LATE_S = 30.0  # s until the uplink must have recorded that a batch has landed, without faults
BUSY_S = 20.0  # s: tolerance of a process's age, on a busy machine
ROUND_TRIP_S = 10.0  # s
HANDSHAKES = 4  # frames for each session of a link, besides DATA and their answers
OWN_CLIENTS = 3  # the rig's client for commands, and clients of the gateway itself
PUBLISH = 5, 60  # least and most bytes of PUBLISH and PUBREL, beside topic and payload
PUBACK, ANSWERS = 4, 12  # bytes of the shortest answer to a PUBLISH, and of the longest two answers
CONNECTION = 400  # most bytes for a connection: CONNECT, SUBSCRIBE, PINGREQ, and their answers
STATUS, INSIDE = "/status", "onceway-"  # end of a topic; begin of the gateway's own clients
COPIES = ("batch", "backup", "dies")
"""Words in the kinds of faults after which files have landed that the gateway has not counted."""
REFUSING, AWAY = ("landing place refuses", "upload cut half-way"), "landing place unwritable"
"""Faults of the landing place, at a site of any gateway. REFUSING counts the failures."""
ANY, ZERO = float("inf"), (0.0, 0.0)
Bounds = tuple[float, float] | None
"""Lowest and highest right value; None if the run does not tell."""
Judge = Callable[["Life"], Bounds]


class Life:
    """The rig's counts for one gateway, from the start of its process to a report of its figures.
    alone: whether it is the only gateway. calm: whether nothing gave cause for trouble. struck:
    parts that faults have struck. is_told: whether clients tell each message that they send, also
    again. retains: whether clients leave retained messages.
    spool: size of the spool, if the bench sets it. counts: packets and messages, by kind. files,
    rows: file of each landed batch, and the positions of its rows, by origin and number. last:
    highest stored sequence by device and incarnation. readings: last stored reading by board.
    """

    def __init__(self, event: Event, run: dict[str, Any], events: Sequence[Event]) -> None:
        self.t, self.began = event.t, int(event.data.get("began", 0))
        self.bench = run["bench"]
        self.alone = not self.bench.get("gateway")
        self.name = event.hop.partition("-")[2] or str(run["gateway"])
        self.boards = set(run["plan"]["readings"])
        self.peers = peers(run["bench"], run["plan"])
        self.by_air = int((self.bench.get("air") or {}).get("boards", 0))
        self.wired = len(self.boards) - self.by_air
        self.size, self.free = event.data.get("size", 0), event.data.get("free", 0)
        self.happened = happened = [one.data for one in events if one.event == "happened"]
        self.struck = {one.hop for one in events if one.event == "happened"}
        self.calm = is_calm(run) and not happened
        self.copied = any(word in one["kind"] for one in happened for word in COPIES)
        self.cloned = any("clone" in one["kind"] or RESTORED in one["kind"] for one in happened)
        self.counts: Counter[str] = Counter()
        self.age = (self.t - self.began) / S
        self.bridged = bool(self.bench.get("bridge"))
        clients, walks = self.bench.get("client", ()), self.bench.get("walk", False)
        self.is_told = not walks and all(one.get("program") == "strict" for one in clients)
        self.retains = walks or any(one.get("retain") for one in clients)
        self.spool = self.bench.get("config", {}).get("spool", {}).get("max_bytes")
        self.offset, self.airtime = 0, 0.0
        self.files: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
        self.rows: dict[tuple[str, int], set[int]] = defaultdict(set)
        self.last: dict[tuple[str, int], int] = defaultdict(int)
        self.readings: dict[str, list[tuple[str, float | None, str | None]]] = {}
        self._lines: dict[str, list[tuple[int, Counter[str]]]] = defaultdict(list)
        stored: dict[Any, tuple[int, int]] = {}
        sent: set[Any] = set()
        self._spooled: list[dict[str, Any]] = []
        self._landed: list[dict[str, Any]] = []
        for one in events:
            with taking(one):
                self._take(one, sent)
        if not self.copied:  # the rig may miss a row of the spool, and see the next
            missed = {tuple(data[name] for name in KEY): data for data in self._landed}
            for data in self._spooled:
                missed.pop(tuple(data[name] for name in KEY), None)
            self._spooled += missed.values()
            origins = list(dict.fromkeys(data["origin"] for data in self._spooled))
            self._spooled.sort(key=lambda data: (origins.index(data["origin"]), data["position"]))
        for data in self._spooled:
            self._store(data, stored)
        self.counts["stored"] = len(stored.keys() & sent)
        self.sent = self.counts["publish down"] + self.counts["received"]
        self.again = self.counts["resent"] + self.counts["again"]
        self.again += self.on_lines("up publishes_again")[1]
        self.counts["payload"] = sum(stored[key][0] for key in stored.keys() & sent)
        self.counts["topics"] = sum(stored[key][1] for key in stored.keys() & sent)

    def _take(self, event: Event, sent: set[Any]) -> None:
        data = event.data
        in_life = self.began <= event.t <= self.t
        match event.hop, event.event:
            case "rig", "clock":
                self.offset = self.offset or data["utc"] - event.t
            case "landing", "landed":
                self.files[data["origin"]][data["batch"]] = data
            case "batch", "publication" if "batch" in data:
                self.rows[data["origin"], data["batch"]].add(data["position"])
                self._landed.append(data)
            case "wire", "count":
                found = Counter[str]()
                for way in ("up", "down"):
                    both = {**data.get(way, {}), **data.get("link", {}).get(way, {})}
                    found.update({f"{way} {name}": count for name, count in both.items()})
                self._lines[data["line"]].append((event.t, found))
            case "spool", "publication":
                self._spooled.append(data)
            case "board", "publication" if in_life:
                sent.add(tuple(data[name] for name in KEY))
                self.counts["messages"] += data["kind"] == "message"
            case "wire" | "air", "publish" if in_life:
                self.counts[f"publish {data['direction']}"] += 1
            case "air", "radio" if data["line"] == MODEM:
                self.airtime = data["airtime"]
            case "wire" | "air" as way, "connack" | "welcome" if in_life:
                self.counts[event.event] += 1
                self.counts[f"{way} {event.event}"] += 1
            case _, "received" | "again" | "resent" | "command" if in_life:
                self.counts[event.event] += 1

    def _store(self, data: Mapping[str, Any], stored: dict[Any, tuple[int, int]]) -> None:
        """Count a publication that has been in the spool."""
        device, incarnation, sequence = (data[name] for name in KEY)
        stored[device, incarnation, sequence] = len(data["payload"]) // 2, len(data["topic"])
        self.counts["lists"] += data["topic"] == lists.TOPIC
        last = self.last[device, incarnation]
        self.last[device, incarnation] = max(last, sequence or 0)
        if (sequence or 0) >= last:
            self._show(data)

    def _show(self, row: Mapping[str, Any]) -> None:
        """Note the readings of a stored row: name, value and unit of each record."""
        if row["device"] in self.boards and not row["topic"].endswith(STATUS):
            found = decode(bytes.fromhex(row["payload"])) or ()
            readings = [(one.name.rpartition(":")[2], one.value, one.unit) for one in found]
            self.readings[row["device"]] = readings

    def on_lines(self, name: str) -> tuple[int, int]:
        """Return the least and most by which a count of the wires has grown, over all lines. A wire
        reports its counts twice a second.
        """
        low = high = 0
        for counts in self._lines.values():
            before = [count[name] for t, count in counts if t <= self.began][-1:] or [0]
            later = [count[name] for t, count in counts if self.began < t <= self.t] or before
            after = [count[name] for t, count in counts if t > self.t][:1] or later[-1:]
            low += later[-1] - (later[0] if before[0] else 0)
            high += after[0] - before[0]
        return low, high

    @property
    def batches(self) -> list[dict[str, Any]]:
        """Return the files of the gateway's batches."""
        feeds = [of for origin, of in self.files.items() if self._owns(origin)]
        return [file for of in feeds for file in of.values()]

    def _owns(self, origin: str) -> bool:
        return origin.partition("/")[0] == self.name

    def total(self, key: str) -> Bounds:
        """Return the bounds of a total of the uplink."""
        if key == "failures":
            failing = [one.get("times", 0) for one in self.happened if one["kind"] in REFUSING]
            away = sum(one["kind"] == AWAY for one in self.happened)
            parts = self.struck & {"uplink", "gateway", "landing"}
            only = not parts or len(failing) == len(self.happened)
            return (len(failing) + away) * self.alone, sum(failing) if only else ANY
        if self.copied:
            return None
        rows = [of for (origin, _), of in self.rows.items() if self._owns(origin)]
        sizes = sum(file["bytes"] for file in self.batches)
        values = {"batches": len(self.batches), "readings": sum(map(len, rows)), "bytes": sizes}
        return _exactly(values[key])

    def near(self, us: float, since: float, until: float) -> bool:
        """Whether a time of day (µs UTC) lies between two moments (monotonic ns)."""
        return since - S // 2 <= us * 1000 - self.offset <= until + S // 2


def wrong(events: Sequence[Event]) -> list[str]:
    if (run := whole_run(events)) is None:
        return []
    dead = dead_gateways(events)
    with_figures = {event.hop for event in events if event.event == "figures"}
    found: list[str] = []
    for event in events:
        if event.event in ("figures", "remains") and event.hop not in dead:
            with taking(event):
                if "metrics" in event.data:
                    found += _figures(event, Life(event, run, events))
                elif "meta" in event.data:
                    found += _kept(event, Life(event, run, events))
                    found += [f"{event.hop} gives no figures"] * (event.hop not in with_figures)
    return found


def _figures(event: Event, life: Life) -> Iterator[str]:
    """Yield a sentence for each figure outside its bounds."""
    found = numbers(event.data)
    for name, judge in BOUNDS.items():
        if (bounds := judge(life)) is not None and not bounds[0] <= found[name] <= bounds[1]:
            yield f"{event.hop} says {name} is {found[name]:g}, but it must be {_text(bounds)}"
    for request in ("status", "everything"):
        row = event.data[request][0]
        if row["gateway"] != life.name:
            yield f"{event.hop} says that its name is {row['gateway']}"
        # a board that has sampled all its readings sends no more
        if life.calm and (parts := {one["part"] for one in row["problems"]} - {"boards"}):
            yield f"{event.hop} says that it has problems with {', '.join(sorted(parts))}"
    uplink = event.data["uplink"]
    if life.batches and f"{uplink['gateway']}/{uplink['epoch']}" not in life.files:
        yield f"{event.hop} says that its batches are of {uplink['gateway']}/{uplink['epoch']}"
    if life.alone:
        yield from _named(event, life)


def _named(event: Event, life: Life) -> Iterator[str]:
    """Yield a sentence for wrong boards, sessions, and last readings of boards."""
    boards = {row["name"]: row["last"] for row in event.data["everything"][0]["boards"]}
    if boards.keys() != life.boards:
        yield f"{event.hop} shows the boards {', '.join(sorted(boards))}"
    for name, last in boards.items():
        due = life.readings.get(name, [])
        if due and (last is None or (last["name"], last["value"], last["unit"]) not in due):
            yield f"{event.hop} shows {last} as the last reading of {name}, not {due[0]}"
    strange = {row["client"] for row in event.data["sessions"]} - life.peers
    if strange := {name for name in strange if not name.startswith(INSIDE)}:
        yield f"{event.hop} shows a session of {', '.join(sorted(strange))}"


def numbers(data: Mapping[str, Any]) -> dict[str, float]:
    """Return all numbers of an event `figures` by name: sums of series and rows, lengths of lists.
    An unknown name has 0.
    """
    found: dict[str, float] = defaultdict(float)
    for series, value in data["metrics"].items():
        found[series.partition("{")[0]] += value
    for name in ("status", "everything", "uplink", "sessions", "radios", "site"):
        _flatten(name, data[name], found)
    return found


def _flatten(name: str, value: Any, into: dict[str, float]) -> None:
    if isinstance(value, dict):
        for key, part in value.items():
            _flatten(f"{name}.{key}", part, into)
    elif isinstance(value, list):
        into[name] += len(value)
        for part in value:
            _flatten(name, part if isinstance(part, dict) else {}, into)
    elif isinstance(value, int | float):
        into[name] += value


def _text(bounds: tuple[float, float]) -> str:
    low, high = bounds
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _kept(event: Event, life: Life) -> Iterator[str]:
    """Yield a sentence for each mistake in the rows about batches, boards and filters that stay in
    a gateway's store, and in the uplink's totals.
    """
    meta, rows, hop = event.data["meta"], event.data["rows"], event.hop
    for key in ("batches", "readings", "bytes", "failures"):
        bounds, value = life.total(key), int(meta.get(f"uplink.{key}", 0))
        if bounds is not None and not bounds[0] <= value <= bounds[1]:
            yield f"{hop} counts {value} {key} of its uplink, but it must be {_text(bounds)}"
    if meta.keys() & TROUBLES:
        yield f"{hop} keeps {', '.join(meta.keys() & TROUBLES)}, but all has landed"
    if meta["gateway"] != life.name:
        yield f"{hop} keeps the name {meta['gateway']}, but is called {life.name}"
    yield from _batches(f"{meta['gateway']}/{meta['epoch']}", rows["batch"], life, hop)
    for device, incarnation, last in rows["mark"] if life.alone and not life.copied else ():
        if last != (due := life.last.get((device, incarnation), last)):
            yield f"{hop} keeps {last} as the last number of {device}, but that is {due}"
    for client, filter in rows["subscription"]:
        if client in life.boards and filter != f"commands/{client}":
            yield f"{hop} keeps a subscription of {client} to {filter}"


TROUBLES = {"uplink.outage", "uplink.held"}  # rows that must be gone when all has landed


def _batches(origin: str, rows: Sequence[Any], life: Life, hop: str) -> Iterator[str]:
    """Yield a sentence for the first row of the table `batch` that differs from its file."""
    files = life.files[origin]
    if missing := [number for number in files if number not in {row[0] for row in rows}]:
        yield f"{hop} has forgotten batch {missing[0]} of {origin}, which has landed"
    for number, begin, end, count, size, sha256, cut, landed in rows:
        if (file := files.get(number)) is None:
            continue
        of, written = life.rows[origin, number], file["written"] * 1000 - life.offset
        late = life.t if life.struck else written + LATE_S * S
        wrong = {
            f"rows {begin} to {end}": (begin, end) != (min(of), max(of)) if of else False,
            f"{count} rows": count != len(of),
            f"{size} bytes": size != file["bytes"],
            f"the checksum {sha256}": sha256 != file["sha256"],
            "another time of its cut": not life.near(cut, 0, written),
            "another time of its landing": not life.near(landed or 0, written, late),
        }
        if mistakes := ", ".join(mistake for mistake, so in wrong.items() if so):
            yield f"{hop} keeps for batch {number} of {origin} {mistakes}"
            return


def _exactly(count: float) -> tuple[float, float]:
    return count, count


def _landed_at(life: Life, unit: float) -> Bounds:
    """Return the bounds of the time when the last batch landed. unit: in seconds."""
    if life.copied or not life.batches:
        return None
    written = max(file["written"] for file in life.batches) / 1e6
    until = (life.t + life.offset) / S if life.struck else written + LATE_S
    return (written - 0.5) / unit, until / unit


def _received(life: Life) -> Bounds:
    """Return the bounds of the number of PUBLISH packets received. A client of another kind than
    `strict` may send a message again without telling the rig.
    """
    names = ("publish up", "messages", "again", "resent", "command", "lists")
    most = sum(life.counts[name] for name in names)
    sole = "mirror" not in life.bench.get("config", {})  # else the gateway publishes, too
    least = most if life.calm and life.is_told and sole else life.counts["stored"]
    return least, most if life.is_told and sole else ANY


def _bytes_received(life: Life) -> Bounds:
    """Return the bounds of the bytes of MQTT received. A topic may be replaced by an alias."""
    packets = life.counts["messages"] + life.counts["publish up"] + life.counts["lists"]
    beside = PUBLISH[1] * packets + CONNECTION * (life.counts["connack"] + len(life.peers))
    high = life.counts["payload"] + life.counts["topics"] + beside
    return life.counts["payload"] + PUBLISH[0] * life.counts["stored"], high if life.calm else ANY


def _line(life: Life, name: str, answered: str = "") -> Bounds:
    """Return the bounds of a count of the serial lines, by the wires' count `name`. answered: the
    count of what the frames may answer. Each connection has HANDSHAKES frames more.
    """
    low, high = life.on_lines(name)
    if name.partition(" ")[2] not in ("sent", "arrived"):
        high += life.on_lines(answered)[1] + HANDSHAKES * (life.counts["welcome"] + 1)
    return (low, high) if life.calm else None  # a fault may have lost bytes on their way


def _has(life: Life) -> int:
    return len(life.boards) + len(life.peers) + OWN_CLIENTS


def _most(life: Life, more: int, name: str) -> float:
    return life.counts[name] + more if life.calm else ANY


def _newest(life: Life) -> Bounds:
    newest = [file["batch"] for file in life.batches]
    return _exactly(max(newest)) if newest and not life.copied and len(life.files) == 1 else None


def _bytes_sent(life: Life) -> Bounds:
    answers = ANSWERS * (life.counts["messages"] + life.counts["publish up"])
    most = answers + CONNECTION * (life.counts["connack"] + len(life.peers))
    quiet = life.calm and not life.bench.get("subscriber")
    silent = any(table.get("qos") == 0 for table in life.bench.get("client", ()))
    return 0 if silent else PUBACK * life.counts["stored"], most if quiet else ANY


RULES: dict[str, Judge] = {
    "none": lambda life: ZERO,
    "retained": lambda life: None if life.retains else ZERO,
    "one": lambda life: (1, 1),
    "one if calm": lambda life: (1, 1) if life.calm else None,
    "trouble": lambda life: ZERO if life.calm else None,
    "trouble of its machine": lambda life: None if "gateway" in life.struck else ZERO,
    "none, without a copy": lambda life: None if life.cloned else ZERO,
    "none, except by air": lambda life: None if life.by_air else ZERO,
    "batches": lambda life: life.total("batches"),
    "messages landed": lambda life: life.total("readings"),
    "bytes landed": lambda life: life.total("bytes"),
    "failures": lambda life: life.total("failures"),
    "newest batch": _newest,
    "landed at, in s": lambda life: _landed_at(life, 1),
    "landed at, in us": lambda life: _landed_at(life, 1e-6),
    "size of the spool": lambda life: _exactly(life.spool) if life.spool else None,
    "its age": lambda life: (life.age - BUSY_S, life.age),
    "twice its age": lambda life: (0, 2 * life.age),
    "received": _received,
    "bytes received": _bytes_received,
    "bytes sent": _bytes_sent,
    "sent": lambda life: (life.sent, life.sent if life.calm else ANY),
    "again": lambda life: (0, life.again if life.calm and life.is_told else ANY),
    "peers": lambda life: (len(life.boards) if life.calm else 0, _has(life)),
    "away": lambda life: (0, _has(life)),
    "connections": lambda life: (life.counts["connack"], _most(life, _has(life), "connack")),
    "boards": lambda life: _exactly(len(life.boards)),
    "boards if calm": lambda life: _exactly(len(life.boards)) if life.calm else None,
    "boards by cable": lambda life: _exactly(life.wired) if life.calm else None,
    "bytes up": lambda life: _line(life, "up arrived"),
    "bytes down": lambda life: _line(life, "down sent"),
    "frames up": lambda life: _line(life, "up frames", "down frames"),
    "frames down": lambda life: _line(life, "down frames", "up frames"),
    "frames down again": lambda life: _line(life, "down frames_again"),
    "frames up again": lambda life: _line(life, "", "up frames_again"),
    "strange frames": lambda life: _line(life, ""),
    "sessions": lambda life: (life.counts["wire connack"] * life.calm, _most(life, 0, "welcome")),
    "starts": lambda life: (0, life.counts["welcome"]),
    "round trips": lambda life: (0, ROUND_TRIP_S * len(life.boards)),
    "bridges": lambda life: _exactly(life.bridged),
    "sent by bridge": lambda life: (life.counts["stored"], ANY) if life.bridged else ZERO,
    "radios": lambda life: _exactly(life.by_air > 0),
    "boards by air": lambda life: (life.by_air if life.calm else 0, life.by_air),
    "legal airtime": lambda life: (0, BUDGET * (life.by_air > 0)),
    "airtime": lambda life: (life.airtime * 0.95, life.airtime * 1.01) if life.calm else None,
    "size": lambda life: (life.size / 2, life.size * 2),
    "free": lambda life: (life.free * 0.8, life.free * 1.2),
}
"""The bounds of figures, by rule."""


def _alone(judge: Judge) -> Judge:
    return lambda life: judge(life) if life.alone and not life.bridged else None


def _bounds() -> Iterator[tuple[str, Judge]]:
    for part, rules in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items():
        for rule, names in rules.items():
            judge = _alone(RULES[rule]) if part == "alone" else RULES[rule]
            for begin, *ends in map(str.split, names):
                yield from ((begin + end, judge) for end in ends or ("",))


BOUNDS = dict(_bounds()) | {"status.figures.retained messages/count": _alone(RULES["retained"])}
"""The bounds of each figure, by name."""
