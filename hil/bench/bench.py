"""A bench: the content of a run, in one TOML file. In: the tables of the file. Out: a checked
`Bench`. Errors name key and reason.
"""

from collections import Counter
from itertools import combinations
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from hil.bench.nemesis import Nemesis
from hil.bench.tables import (
    AirTable,
    BoardTable,
    BridgeTable,
    ClientTable,
    Commands,
    GatewayTable,
    Limits,
    SubscriberTable,
)
from hil.faults import AnyKind, Kind
from hil.faults.base import OF_ONE_GATEWAY
from hil.faults.line import LineTrace
from hil.faults.machine import ClockUnknown

LEAST_READINGS = 4  # fewest readings of each board
RUNS = 6
COVERING = tuple(combinations(range(1, RUNS), 3))
"""For each option, the three runs (seed modulo 6) in which it is set. Of any two options, both are
set in at least one run, and each is set in a run without the other. No option is set in run 0
(Kleitman and Spencer, 1973).
"""
LEAST_USED = 60  # publications, as many as a board's journal has slots
SWAPPED = "board-swapped"
CROWD = "crowd-moves"
DIES = "gateway-dies"
EACH_STEP = "gateway-kill-at-each-step"
RESTORED = "gateway-restored"
AT_RELEASE = "gateway-kill-at-release"
OTHER_RESTART = "other-broker-restart"
ONCE_A_LINE = ("line-bursts", "line-trace")


class Bench(BaseModel):
    """A bench.

    until: the hop at which the readings must arrive; `batch` leaves Spark out. boards: number of
    simulated boards; by default 2, or 0 with a table [[board]]. board: real boards, and simulated
    boards with a sketch. air: boards with a radio. gateway: the gateways of a site, over which
    boards and clients are distributed in turn; if empty, there is one gateway.

    firmware: a HEX file for all boards instead of the sensor example's, with the same journal and
    payload. readings: total of all boards.

    first_sequence: sequence of the first publication of the simulated boards; if it is above 1,
    their EEPROM is a used one. first_row, first_batch: first row and batch of the gateway's spool;
    if given, its store is a used one.

    interval_ms: time between two samples of a board. stall_s: longest time without progress, in
    seconds.

    bridge: a bridge of the gateway to another broker.

    commands: commands to the boards, through the gateway. client: programs that publish over TCP in
    addition to the boards. subscriber: programs that subscribe at the gateway. walk: whether
    clients try each option of MQTT before the first fault (`hil/clients/walk.toml`).

    config: settings of gateway and uplink that differ from the rig's own, by section of
    gateway.toml. options: other values of some keys (`section.key`), of which each seed sets some.
    Seeds 0 to 5 try each pair of options with both, one and neither set. nemesis: random faults, in
    addition to the faults in `fault`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    until: Literal["batch", "table"] = "table"
    boards: int = Field(default=2, ge=0, le=20)
    board: list[BoardTable] = []
    air: AirTable | None = None
    gateway: list[GatewayTable] = []
    firmware: str | None = None
    readings: int = Field(default=400, ge=1)
    first_sequence: int = Field(default=1, ge=1, le=0xFFFF_0000)
    first_row: int = Field(default=1, ge=1, le=1 << 53)
    first_batch: int = Field(default=1, ge=1, le=10**11)
    interval_ms: int = Field(default=200, ge=20, le=60_000)
    seed: int = 1
    stall_s: float = Field(default=180, gt=0)
    bridge: BridgeTable | None = None
    commands: Commands | None = None
    client: list[ClientTable] = []
    subscriber: list[SubscriberTable] = []
    walk: bool = False
    config: dict[str, dict[str, str | int | float | bool | list[str]]] = {}
    options: dict[str, str | int | float | bool] = Field(default={}, max_length=len(COVERING))
    fault: list[AnyKind] = []
    nemesis: Nemesis | None = None
    limits: Limits = Limits()

    @field_validator("board", mode="before")
    @classmethod
    def _tables(cls, board: Any) -> Any:
        if not isinstance(board, list):
            raise ValueError(
                "real boards are tables, [[board]]; `boards` is the number of simulated boards"
            )
        return board

    @field_validator("first_sequence")
    @classmethod
    def _identified(cls, first: int) -> int:
        if first != 1 and (first <= LEAST_USED or first & 0xFFFF == 0):
            raise ValueError(
                f"it must be 1 (a new board) or above {LEAST_USED} (a used one), and its low 16"
                " bits must not all be 0"
            )
        return first

    @model_validator(mode="before")
    @classmethod
    def _real_ones_alone(cls, data: Any) -> Any:
        return {"boards": 0, **data} if isinstance(data, dict) and data.get("board") else data

    @model_validator(mode="after")
    def _chosen(self) -> "Bench":
        """Set the options that this seed chooses (COVERING), in `config`."""
        config = {section: dict(keys) for section, keys in self.config.items()}
        for (key, value), runs in zip(self.options.items(), COVERING, strict=False):
            if self.seed % RUNS in runs:
                section, _, name = key.partition(".")
                config.setdefault(section, {})[name] = value
        object.__setattr__(self, "config", config)
        return self

    @model_validator(mode="after")
    def _drawn(self) -> "Bench":
        """Draw the faults of [nemesis], unless this bench has drawn faults already. Number the
        tables of each kind.
        """
        tables: list[Kind] = list(self.fault)
        if self.nemesis and not any(kind.drawn for kind in tables):
            boards = self.devices[: self.boards]
            drawn = self.nemesis.tables(self.seed, self.readings, boards, self.until == "table")
            tables += [kind for kind in drawn if not (self.commands and kind.kind == SWAPPED)]
        counted: Counter[str] = Counter()
        for place, kind in enumerate(tables):
            counted[kind.kind] += 1
            if kind.table == 1 and counted[kind.kind] > 1:
                tables[place] = kind.model_copy(update={"table": counted[kind.kind]})
        object.__setattr__(self, "fault", tables)
        return self

    @model_validator(mode="after")
    def _possible(self) -> "Bench":
        self._possible_number_of_boards()
        if self.board:
            self._possible_with_real_boards()
        if self.air:
            self._possible_by_air()
        self._possible_tables()
        if self.used_store and (self.until == "table" or self.gateway):
            raise ValueError(
                "first_row, first_batch and synchronised can be set only with one gateway and"
                ' until = "batch": an ingest would wait for the batches before first_batch'
            )
        if self.gateway:
            self._possible_at_several_gateways()
        self._possible_faults()
        if self.until == "batch" and (
            behind := [kind.kind for kind in self.fault if kind.needs_ingest]
        ):
            raise ValueError(
                f'{behind[0]} needs an ingest, but a bench with until = "batch" has none'
            )
        return self

    @property
    def used_store(self) -> bool:
        return (self.first_row, self.first_batch) != (1, 1) or self.has_known_time

    @property
    def has_known_time(self) -> bool:
        """Whether the gateway has run before, with the right time, and now starts with another."""
        return any(isinstance(kind, ClockUnknown) and kind.synchronised for kind in self.fault)

    def _possible_number_of_boards(self) -> None:
        devices = len(self.devices)
        if not devices:
            raise ValueError("there is no board: boards is 0, and there is no table [[board]]")
        if self.readings < LEAST_READINGS * devices:
            raise ValueError(
                f"{devices} boards need at least {LEAST_READINGS * devices} readings, not"
                f" {self.readings}"
            )
        by_radio = any(table.link == "lora" for table in self.board)
        if by_radio != bool(self.air and self.air.modem):
            raise ValueError(
                'a [[board]] with link = "lora" needs a real modem, and a real modem needs such a'
                " board: set `modem` in [air], or leave out both"
            )

    def _possible_faults(self) -> None:
        kinds = [kind.kind for kind in self.fault]
        if self.commands and SWAPPED in kinds:
            raise ValueError(
                "a new board has not obeyed the commands of the board that it replaced: leave out"
                " commands or board-swapped"
            )
        others = [
            kind.kind for kind in self.fault if kind.part == "gateway" and kind.kind != EACH_STEP
        ]
        if of_site := [k.kind for k in self.fault if k.gateways == "several" and not self.gateway]:
            raise ValueError(f"{of_site[0]} needs a site of several gateways: add [[gateway]]")
        if alone := [kind.kind for kind in self.fault if kind.air == "only" and not self.air]:
            raise ValueError(f"{alone[0]} is for radio boards; add a table [air]")
        for kind in self.fault:
            if kind.sensors and not any(self.may_break(kind, name) for name in self.devices):
                able = " or ".join(f'"{name}"' for name in sorted(kind.sensors))
                raise ValueError(f"{kind.kind} needs a [[board]] with sensor = {able}")
            if kind.sensors and (unfit := [n for n in kind.on if not self.may_break(kind, n)]):
                raise ValueError(f"{kind.kind} cannot happen to {unfit[0]!r}; name others in `on`")
        if RESTORED in kinds and (
            self.client or self.subscriber or len(self.by_air) < len(self.devices)
        ):
            raise ValueError(
                f"after {RESTORED} the rig can judge neither clients nor boards on lines;"
                f" leave them out, or {RESTORED}"
            )
        if EACH_STEP in kinds and others:
            raise ValueError(
                "gateway-kill-at-each-step counts the steps of a gateway that nothing else breaks;"
                f" leave out {others[0]}"
            )
        far = [OTHER_RESTART] * (OTHER_RESTART in kinds)
        far += ["[[subscriber]] with there = true"] * any(one.there for one in self.subscriber)
        if far and not self.bridge:
            raise ValueError(f"{far[0]} needs another broker; add a table [bridge]")
        if AT_RELEASE in kinds and not any(table.qos == 2 for table in self.subscriber):
            raise ValueError(f"{AT_RELEASE} needs a table [[subscriber]] with qos = 2")

    def _possible_tables(self) -> None:
        numbers = [(kind.kind, kind.table) for kind in self.fault]
        if len(set(numbers)) < len(numbers):
            raise ValueError("two tables [[fault]] of one kind have the same `table`; leave it out")
        for kind in self.fault:
            by_gateway = self.gateway and kind.part in OF_ONE_GATEWAY
            at_some = kind.of_device or by_gateway or kind.part == "client"
            if kind.on and not (at_some or kind.kind == EACH_STEP):
                raise ValueError(f"{kind.kind} breaks no board, so `on` has no meaning")
            clients = [name for name, table in self.clients.items() if table.qos]
            names = self.devices + (clients if kind.kind == EACH_STEP else [])
            names = self.gateways if by_gateway else names
            names = clients if kind.part == "client" else names
            if strange := [name for name in kind.on if name not in names]:
                raise ValueError(
                    f"{kind.kind} is for {strange[0]!r}, which is not one of {', '.join(names)}"
                )
        for name in self.devices:
            once = [k.kind for k in self.fault if k.kind in ONCE_A_LINE and k.breaks(name)]
            if len(set(once)) < len(once):
                raise ValueError(
                    f"two {once[0]} faults are for the line of {name}; name other boards in `on`"
                )

    def _possible_at_several_gateways(self) -> None:
        names = self.gateways
        if len(set(names)) < len(names):
            raise ValueError("two tables [[gateway]] have the same name")
        if len(names) < 2:
            raise ValueError(
                "a site has at least two gateways; for a single gateway, leave out [[gateway]]"
            )
        if "name" in self.config.get("gateway", {}):
            raise ValueError(
                "each [[gateway]] has its own name; leave out gateway.name of [config]"
            )
        beyond = {
            "[[board]]": self.board,
            "[commands]": self.commands,
            "[[subscriber]]": self.subscriber,
            "[bridge]": self.bridge,
            "walk": self.walk,
        }
        if present := [name for name, table in beyond.items() if table]:
            raise ValueError(
                f"several gateways are possible only with simulated boards and [[client]]; leave"
                f" out {present[0]} or [[gateway]]"
            )
        keys = ("modem", "trace", "foreign", "sent_before")
        if set_keys := [key for key in keys if self.air and getattr(self.air, key)]:
            raise ValueError(
                f"[air]: {set_keys[0]} is for a single gateway; leave out this key, or [[gateway]]"
            )
        if self.air and DIES in [kind.kind for kind in self.fault]:
            raise ValueError(
                "the rig can tell which publications died with a gateway only for boards on lines;"
                f" leave out {DIES}, or [air]"
            )
        if alone := [kind.kind for kind in self.fault if kind.gateways == "one"]:
            raise ValueError(f"{alone[0]} is for one gateway; leave it out, or [[gateway]]")
        remaining = len(names) - sum(kind.count for kind in self.fault if kind.kind == DIES)
        if remaining < self.copies:
            raise ValueError(
                f"{DIES}: at least {'two gateways' if self.copies > 1 else 'one gateway'} must"
                " remain"
            )
        for kind in self.fault:
            if kind.part != "client" and kind.kind != CROWD:
                continue
            movers = [t for name, t in self.clients.items() if not kind.on or name in kind.on]
            if not movers or any((t.program, t.qos) != ("strict", 2) for t in movers):
                named = "" if kind.of_all else "; name such clients in `on`"
                raise ValueError(
                    f'{kind.kind} is only for a [[client]] with program = "strict" and'
                    f" qos = 2{named}"
                )

    def _possible_by_air(self) -> None:
        if self.commands:
            raise ValueError(
                "a radio board gets a command only in its next turn: the judge of commands makes no"
                " allowance for that; leave out [commands] or [air]"
            )
        if self.firmware or self.first_sequence != 1:
            raise ValueError(
                "radio boards have the bundled firmware and a new EEPROM; leave out firmware and"
                " first_sequence, or [air]"
            )
        if self.subscriber:
            raise ValueError(
                "publications of a radio board are encrypted on the air, so the rig cannot know"
                " which ones a subscriber must get; leave out [[subscriber]] or [air]"
            )
        if self.air and self.air.foreign and self.air.trace:
            raise ValueError(
                "[air]: where frames are lost, the rig cannot tell which boards a foreign radio has"
                " disconnected; leave out foreign or trace"
            )
        if self.air and self.air.modem is not None:
            keys = ("boards", "trace", "foreign", "sent_before", "apart_s")
            default = AirTable()
            if alone := [key for key in keys if getattr(self.air, key) != getattr(default, key)]:
                raise ValueError(f"[air]: with a real `modem`, {alone[0]} has no meaning")
        if self.air and self.air.pace and not self.air.trace:
            raise ValueError("[air]: pace needs a recorded link; name one with trace")
        for kind in self.fault:
            boards = "radio boards" if kind.air == "only" else "boards on lines"
            if beyond := [name for name in kind.on if not self.may_break(kind, name)]:
                raise ValueError(f"{kind.kind} is for {boards}; {beyond[0]} is not one of them")
            if kind.of_device and not any(self.may_break(kind, name) for name in self.devices):
                raise ValueError(f"{kind.kind} is for {boards}, but this bench has none")

    def _possible_with_real_boards(self) -> None:
        if self.commands:
            raise ValueError(
                "the rig cannot see whether a real board has obeyed, nor which commands a sketch"
                " obeys; leave out [commands] or [[board]]"
            )
        ours = [kind for kind in self.fault if kind.part == "board" and not kind.sensors]
        if blind := [kind.kind for kind in ours if not kind.on_real]:
            raise ValueError(
                f"{blind[0]} is only for simulated boards with the project's sensor firmware; a"
                " [[board]] can have board-reset and, if simulated or with a power switch,"
                " board-switched-off"
            )
        without = [name for name, table in self.real.items() if table.power is None]
        if without and any(kind.kind == "board-switched-off" for kind in self.fault):
            raise ValueError(
                f"board-switched-off needs a power switch, but {without[0]} has none: add"
                " `power` to its [[board]]"
            )

    @property
    def real(self) -> dict[str, BoardTable]:
        tables = [table for table in self.board if table.port]
        return {f"real-{number}": table for number, table in enumerate(tables, 1)}

    @property
    def sketches(self) -> dict[str, str]:
        """Return the HEX file of each simulated board with its own sketch, by the board's name."""
        files = [table.sketch for table in self.board if table.sketch]
        return {f"sketch-{number}": file for number, file in enumerate(files, 1)}

    @property
    def sensors(self) -> dict[str, str]:
        """Return the sensor of each simulated board that has one, by the board's name."""
        kinds = [table.sensor for table in self.board if table.sensor]
        return {f"{kind}-{kinds[: at + 1].count(kind)}": kind for at, kind in enumerate(kinds)}

    @property
    def devices(self) -> list[str]:
        """Return the names of all boards."""
        on_lines = [f"uno-{number + 1}" for number in range(self.boards)]
        return list(
            dict.fromkeys([*on_lines, *self.by_air, *self.real, *self.sketches, *self.sensors])
        )

    @property
    def gateways(self) -> list[str]:
        """Return the names of all gateways; [""] for a single gateway."""
        return [table.name for table in self.gateway] or [""]

    @property
    def copies(self) -> int:
        """Return on how many gateways' disks an acknowledged publication must be."""
        return 2 if self.config.get("site", {}).get("copies") == 2 else 1

    @property
    def names_of_gateways(self) -> list[str]:
        """Return the names of the gateways, as they are written in rows of the table."""
        if self.gateway:
            return self.gateways
        return [str(self.config.get("gateway", {}).get("name", "site"))]

    @property
    def homes(self) -> dict[str, str]:
        """Return the name of the gateway at which each board and client begins."""
        names = self.gateways
        return {
            name: names[number % len(names)]
            for group in (self.devices, list(self.clients))
            for number, name in enumerate(group)
        }

    @property
    def by_air(self) -> dict[str, int]:
        """Return each radio board's number in the radio network, by the board's name."""
        if self.air and self.air.modem is None:
            return {f"lora-{number}": number for number in range(1, self.air.boards + 1)}
        real = [name for name, table in self.real.items() if table.link == "lora"]
        return {name: number for number, name in enumerate(real, 1)}

    def may_break(self, kind: Kind, device: str) -> bool:
        """Return whether a kind of fault can happen to this board."""
        if kind.sensors or (device in self.sensors and kind.part == "board" and not kind.on_real):
            return self.sensors.get(device) in kind.sensors
        return kind.air != "no" if device in self.by_air else kind.air != "only"

    @property
    def clients(self) -> dict[str, ClientTable]:
        tables = [table for table in self.client for _ in range(table.count)]
        return {f"client-{number}": table for number, table in enumerate(tables, 1)}

    @property
    def subscribers(self) -> dict[str, SubscriberTable]:
        tables = [table for table in self.subscriber for _ in range(table.count)]
        return {f"subscriber-{number}": table for number, table in enumerate(tables, 1)}

    @property
    def listens(self) -> bool:
        """Whether any program connects to the gateway over TCP."""
        programs = self.commands or self.client or self.subscriber or self.walk
        return bool(programs or self.real or self.bridge)

    @property
    def kinds(self) -> list[Kind]:
        """Return the tables of all faults, and the table of commands if there is one."""
        return [*self.fault, *([self.commands] if self.commands else [])]

    @property
    def replays(self) -> bool:
        """Whether a recorded link is replayed."""
        return bool(self.air and self.air.trace) or any(
            isinstance(kind, LineTrace) for kind in self.fault
        )
