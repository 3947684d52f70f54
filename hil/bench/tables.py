"""Tables of a bench except those of faults: limits, boards, air, gateways, clients, subscribers and
commands to the boards. In: a table of the bench's file. Out: the checked table.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from hil.clients import IDENTIFIERS
from hil.clients.payloads import Form
from hil.faults.base import Kind
from hil.faults.fault import Evidence, Fault
from hil.faults.under_test import SystemUnderTest
from hil.observe.counters import wait_until
from hil.observe.history import COMMAND
from hil.traces import LONGEST_OUTAGE
from provisioning.boards import catalogue


class Limits(BaseModel):
    """Limits of a run. A missing key sets no limit. delay_*: longest time from sample to claim, in
    seconds. memory_mb: largest memory of the gateway and of the uplink, for each alone. growth_mb:
    its largest growth from the second to the last quarter of a life. written_per_reading: largest
    number of bytes that both together write to disk, per reading. readings_per_s, goodput: smallest
    numbers of readings and of payload bytes per second, of all boards together."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    delay_p99_s: float | None = Field(default=None, gt=0)
    delay_max_s: float | None = Field(default=None, gt=0)
    memory_mb: float | None = Field(default=None, gt=0)
    growth_mb: float | None = Field(default=None, gt=0)
    written_per_reading: float | None = Field(default=None, gt=0)
    readings_per_s: float | None = Field(default=None, gt=0)
    goodput: float | None = Field(default=None, gt=0)


class Power(BaseModel):
    """Switch of a board's power. labgrid: path of labgrid's environment file. target: name of the
    board's target in this file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    labgrid: str
    target: str = "main"


class BoardTable(BaseModel):
    """A board, given by one of three keys. port: port of a real board, best its name under
    /dev/serial/by-id. For a board with a radio, this is the port of its USB cable. sketch: HEX file
    for a simulated Uno; it must contain the library. sensor: kind of sensor; a simulated Uno runs
    the example for it. The other keys are for a real board. kind: see `onceway board list`. link:
    how the board communicates. power: switch of the board's power.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    port: str = ""
    sketch: str = ""
    sensor: Literal["", "ds18b20", "dht22", "tmp36"] = ""
    link: Literal["serial", "lora"] = "serial"
    kind: str = Field(default="uno", validate_default=True)
    power: Power | None = None

    @model_validator(mode="after")
    def _one_board(self) -> "BoardTable":
        if [self.port, self.sketch, self.sensor].count("") != 2:
            raise ValueError(
                "a board has either a `port`, if it is a real one, or a `sketch` or a `sensor`"
            )
        if not self.port and (self.link, self.kind, self.power) != ("serial", "uno", None):
            raise ValueError("a board without port is a simulated Uno; omit link, kind and power")
        return self

    @field_validator("kind")
    @classmethod
    def _known(cls, kind: str, info: ValidationInfo) -> str:
        link = info.data.get("link", "serial")
        known = [n for n, board in catalogue().items() if bool(board.radio) == (link == "lora")]
        if kind not in known:
            board = "radio board" if link == "lora" else "board"
            raise ValueError(f"there is no kind of {board} {kind!r}; there are {', '.join(known)}")
        return kind


class AirTable(BaseModel):
    """Simulated LoRa boards, and the air between them and the gateway's modem.

    trace: a recorded link; each direction of each board follows it from its own starting point.
    pace: seconds of the recording in one second of the air; without a pace, each sent frame has the
    fate of the recording's next frame. longest_outage: longer outages are shortened to this many
    seconds, or frames. foreign: the continuous attack of a foreign radio. foreign_frames: number of
    its frames that the gateway must hear. sent_before: seconds of airtime that the gateway's radio
    used before the start; after_s seconds after the start, they no longer count. apart_s: seconds
    between the starts of two boards. turns: number of publications that the longest session must
    have at least. modem: the port of a real KISS modem, for real boards; then no air is simulated.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    modem: str | None = None
    boards: int = Field(default=2, ge=1, le=30)
    spreading_factor: int = Field(default=7, ge=7, le=12)
    network: int = Field(default=7, ge=0, le=255)
    trace: str | None = None
    pace: float | None = Field(default=None, gt=0, le=1000)
    longest_outage: float = Field(default=LONGEST_OUTAGE, ge=1, le=3600)
    foreign: Literal["replay", "forge"] | None = None
    foreign_frames: int = Field(default=1, ge=1)
    sent_before: int = Field(default=0, ge=0, le=360)
    after_s: float = Field(default=60.0, ge=1, le=3600)
    apart_s: float = Field(default=0.0, ge=0, le=60)
    turns: int = Field(default=0, ge=0)


class GatewayTable(BaseModel):
    """A gateway of a site. name: `gateway.name` of its configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern="^[a-z][a-z0-9]{0,15}$")


OF_RIG = (
    *("program", "kills", "hops", "payload", "payload_bytes"),
    *("in_flight", "identifiers", "first_identifier", "identity"),
)
"""Keys of a [[client]] that only the rig's own programs know."""


class ClientTable(BaseModel):
    """Programs that publish. count: number of programs. messages: number of each program's
    messages, at most per_s per second. payload: `text` of payload_bytes, or `senml` of many shapes.
    program: `paho`; `publisher`, the project's own, killed `kills` times; or `strict`, the rig's
    own, which follows the standard exactly. `strict` has up to in_flight messages in flight, and
    uses the `identifiers` packet identifiers from first_identifier on (after 65,535 comes 1).
    identity: whether the messages of a `strict` client have the user property `incarnation`.
    Without it, the gateway numbers them, and the rig knows them by topic and text. retain: whether
    a `strict` client retains its messages. hops: whether
    `strict` moves to the next gateway at once when it loses its connection. command: another
    program, with the line protocol of hil/clients/telling.py, instead of the rig's own.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    count: int = Field(default=1, ge=1, le=100)
    program: Literal["paho", "publisher", "strict"] = "paho"
    kills: int = Field(default=0, ge=0, le=1000)
    command: list[str] = []
    hops: bool = False
    qos: Literal[0, 1, 2] = 2
    messages: int = Field(default=100, ge=1)
    payload: Form = "text"
    payload_bytes: int = Field(default=100, ge=0, le=100_000)
    per_s: float = Field(default=5.0, gt=0, le=1000)
    in_flight: int = Field(default=1, ge=1, le=1000)
    identifiers: int = Field(default=IDENTIFIERS, ge=1, le=IDENTIFIERS)
    first_identifier: int = Field(default=1, ge=1, le=IDENTIFIERS)
    identity: bool = True
    retain: bool = False

    @model_validator(mode="after")
    def _own_program(self) -> "ClientTable":
        fields = type(self).model_fields
        if self.command and (
            alone := [key for key in OF_RIG if getattr(self, key) != fields[key].default]
        ):
            raise ValueError(f"{alone[0]} is for the rig's own programs; remove it, or `command`")
        return self

    @model_validator(mode="after")
    def _possible(self) -> "ClientTable":
        chosen = (self.in_flight, self.identifiers, self.first_identifier)
        if self.program != "strict" and chosen != (1, IDENTIFIERS, 1):
            raise ValueError(
                'in_flight, identifiers and first_identifier need program = "strict";'
                f" {self.program} chooses its packet identifiers by itself"
            )
        if not self.identity and (self.program, self.qos, self.payload) != ("strict", 2, "text"):
            raise ValueError('identity = false needs program = "strict", qos = 2, payload = "text"')
        if self.retain and (self.program != "strict" or self.payload != "text" or not self.qos):
            raise ValueError('retain needs program = "strict", payload = "text" and a QoS above 0')
        if self.program != "strict" and self.hops:
            raise ValueError(f'hops needs program = "strict"; {self.program} knows one gateway')
        if (self.program == "publisher" and self.qos != 2) or (
            self.program != "publisher" and self.kills
        ):
            raise ValueError('kills needs program = "publisher", which publishes at QoS 2')
        if self.in_flight > self.identifiers:
            raise ValueError(
                f"{self.in_flight} messages in flight need as many packet identifiers, not"
                f" {self.identifiers}"
            )
        return self


class BridgeTable(BaseModel):
    """A bridge from the gateway to a mosquitto. Readings and messages cross the bridge. At each
    end, a program sets and deletes retained messages. states: number of topics per end whose
    message is set first and deleted later; equally many others change repeatedly. changes: changes
    per end after the first messages, including deletions; at most per_s per second.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    states: int = Field(default=8, ge=1, le=100)
    changes: int = Field(default=100, ge=1)
    per_s: float = Field(default=5.0, gt=0, le=100)

    @model_validator(mode="after")
    def _changes_each(self) -> "BridgeTable":
        if self.changes < 2 * self.states:
            raise ValueError(f"changes must be at least {2 * self.states}: twice `states`")
        return self


class SubscriberTable(BaseModel):
    """Programs that subscribe. count: number of programs. there: whether they subscribe at the
    other broker of [bridge], not at the gateway. clean: whether each connection begins a new
    session, for which no message waits. stays_s: seconds until a subscriber disconnects; 0: it
    stays. away_s: seconds until it reconnects. expiry_s: Session Expiry Interval; 0: a day, or none
    if `clean`. keep_alive_s: Keep Alive of a subscriber at QoS 0.
    It sends nothing after its SUBSCRIBE, so the gateway must end its connection.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    count: int = Field(default=1, ge=1, le=100)
    filter: str = Field(default="sensors/#", min_length=1)
    there: bool = False  # prose: key of a bench
    qos: Literal[0, 1, 2] = 2
    clean: bool = False
    stays_s: float = Field(default=0.0, ge=0)
    away_s: float = Field(default=1.0, ge=0, le=60)
    receive_maximum: int = Field(default=65_535, ge=1, le=65_535)
    keep_alive_s: int = Field(default=0, ge=0, le=60)
    expiry_s: int = Field(default=0, ge=0, le=60)

    @model_validator(mode="after")
    def _silent(self) -> "SubscriberTable":
        if self.keep_alive_s and (self.qos or self.stays_s or self.there):
            raise ValueError("keep_alive_s needs qos = 0, and neither stays_s nor there")
        return self

    @field_validator("filter")
    @classmethod
    def _well_formed(cls, filter: str) -> str:
        """Refuse an invalid filter: the gateway would refuse it, and the run would never end."""
        levels = filter.split("/")
        if levels[0] == "$share":
            name, levels = levels[1:2], levels[2:]
            if not levels or not levels[0] or not name[0] or "#" in name[0] or "+" in name[0]:
                raise ValueError("a shared filter is $share/NAME/FILTER, without + and # in NAME")
        if "#" in "".join(levels[:-1]) or any(
            len(level) > 1 and ("#" in level or "+" in level) for level in levels
        ):
            raise ValueError("a # must be the whole last level, and a + a whole level")
        return filter


class Commands(Kind):
    """Commands `interval N force` to each board, planned like faults: each has a place. Each has a
    different N, in milliseconds or seconds, so that EEPROM and samples of the board show which
    commands it obeyed. The verdict is *holds* only if all were sent. count: number of commands to
    each board.
    """

    text: ClassVar[str] = COMMAND
    part: ClassVar[str] = "board"
    kind: Literal["command"] = Field(default="command", exclude=True)
    count: int = Field(default=1, ge=1, le=1000)
    between: tuple[float, float] = (0.2, 0.9)

    @field_validator("kind")
    @classmethod
    def _no_key(cls, _: str) -> str:
        """Refuse the key `kind`: there is only one kind of command."""
        raise PydanticCustomError("extra_forbidden", "there is no such key")

    def faults(self, seed: int, readings: dict[str, int]) -> Iterator[Fault]:
        for device, total in readings.items():
            yield from self._on(
                device, f"{device} commands", f"sampled {device}", total - 2, seed, readings
            )

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        device = system.device(fault)
        # the gateway has answered a publication, and the board subscribes before it publishes
        await wait_until(lambda: device.journalled > device.waiting)
        interval = device.next_interval()
        system.history.add("rig", "command", device=device.name, interval=interval)
        text = f"{interval // 1000} s" if interval % 1000 == 0 else str(interval)
        system.commander.send(device.name, f"interval {text} force")
        return Evidence(f"interval {text}", {"interval": interval})
