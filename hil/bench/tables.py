"""The tables of a bench, but for those of faults: limits, boards, air, gateways, clients and
subscribers.

In: a table as it stands in the file. Out: a checked one.
"""

from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from hil.clients.flows import IDENTIFIERS
from hil.clients.payloads import Form
from hil.traces.replay import LONGEST_OUTAGE
from provisioning.boards import catalogue


class Limits(BaseModel):
    """What a run must keep to. delay_*: at most, seconds from sample to claim; memory_mb,
    growth_mb: at most, of the gateway and of the uplink each, and by how much they may grow in the
    second half of the run; written_per_reading: at most, bytes to disk by both; readings_per_s,
    goodput: at least, of all boards together, and bytes of payload per second. What is not named is
    not limited.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    delay_p99_s: float | None = Field(default=None, gt=0)
    delay_max_s: float | None = Field(default=None, gt=0)
    memory_mb: float | None = Field(default=None, gt=0)
    growth_mb: float | None = Field(default=None, gt=0)
    written_per_reading: float | None = Field(default=None, gt=0)
    readings_per_s: float | None = Field(default=None, gt=0)
    goodput: float | None = Field(default=None, gt=0)


class Power(BaseModel):
    """labgrid: an environment file; target: the one in it whose power is the board's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    labgrid: str
    target: str = "main"


class BoardTable(BaseModel):
    """A real board, or a simulated Uno with a sketch of its own. port: of a real one, best its name
    under /dev/serial/by-id. sketch: a HEX file with the library in it. The other keys are for a
    real one. kind: as in `onceway board list`. link: by what it speaks; the port of one with a
    radio is its cable. power: its switch, if it has one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    port: str = ""
    sketch: str = ""
    link: Literal["serial", "lora"] = "serial"
    kind: str = Field(default="uno", validate_default=True)
    power: Power | None = None

    @model_validator(mode="after")
    def _one_board(self) -> "BoardTable":
        if bool(self.port) == bool(self.sketch):
            raise ValueError("a board has either a `port`, if it is a real one, or a `sketch`")
        if self.sketch and (self.link, self.kind, self.power) != ("serial", "uno", None):
            raise ValueError("a sketch runs on a simulated Uno; leave out link, kind and power")
        return self

    @field_validator("kind")
    @classmethod
    def _known(cls, kind: str, info: ValidationInfo) -> str:
        link = info.data.get("link", "serial")
        known = [n for n, board in catalogue().items() if bool(board.radio) == (link == "lora")]
        if kind not in known:
            by = " by radio" if link == "lora" else ""
            raise ValueError(
                f"there is no kind of board{by} {kind!r}; there are {', '.join(known)}"
            )
        return kind


class AirTable(BaseModel):
    """LoRa boards, simulated ones, and the air between them and the gateway's modem. trace: a
    recorded link; each way of each board loses what it lost, from elsewhere in it. pace: so many
    seconds of it go by in one; without it goes by frame by frame. longest_outage: what lasts longer
    is shortened to so many seconds, or frames. foreign: what an attacker's radio does all the
    while; foreign_frames: so many of its frames the gateway must have heard. sent_before: so many
    seconds the gateway's radio has sent in the hour before; they leave the hour after_s seconds
    after the beginning. apart_s: so many seconds after one board the next one gets its power.
    modem: the port of a real KISS modem, for real boards; then there is no other air.
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


class GatewayTable(BaseModel):
    """One gateway of a site of several. name: as in its configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern="^[a-z][a-z0-9]{0,15}$")


OF_RIG = (
    *("program", "hops", "payload", "payload_bytes"),
    *("in_flight", "identifiers", "first_identifier"),
)
"""Keys of a [[client]] that only the rig's own programs know."""


class ClientTable(BaseModel):
    """count: so many such programs. messages: of each, at most per_s of them per second. payload:
    `text` of payload_bytes, or `senml` of many shapes. program: `paho`, or `strict`, the rig's own,
    which keeps to the letter of the standard, has up to in_flight messages under way, and uses so
    many packet identifiers, from first_identifier on (after 65,535 comes 1). hops: `strict` goes to
    the next gateway at once when it loses its connection. command: another program, which speaks
    the line protocol (hil/clients/telling.py), in the place of the rig's own.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    count: int = Field(default=1, ge=1, le=100)
    program: Literal["paho", "strict"] = "paho"
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

    @model_validator(mode="after")
    def _own_program(self) -> "ClientTable":
        fields = type(self).model_fields
        if self.command and (
            alone := [key for key in OF_RIG if getattr(self, key) != fields[key].default]
        ):
            raise ValueError(f"{alone[0]} is for the rig's own programs; leave it out, or command")
        return self

    @model_validator(mode="after")
    def _possible(self) -> "ClientTable":
        told = (self.in_flight, self.identifiers, self.first_identifier)
        if self.program == "paho" and told != (1, IDENTIFIERS, 1):
            raise ValueError(
                'in_flight, identifiers and first_identifier need program = "strict"; paho chooses'
                " its packet identifiers by itself"
            )
        if self.program == "paho" and self.hops:
            raise ValueError('hops needs program = "strict"; paho knows one gateway')
        if self.in_flight > self.identifiers:
            raise ValueError(
                f"{self.in_flight} messages in flight need as many identifiers, not"
                f" {self.identifiers}"
            )
        return self


class SubscriberTable(BaseModel):
    """count: the number of such programs. clean: a new session with each connection, in which
    nothing waits. stays_s: seconds after which it goes away; 0: it stays. away_s: for how long.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    count: int = Field(default=1, ge=1, le=100)
    filter: str = Field(default="sensors/#", min_length=1)
    qos: Literal[0, 1, 2] = 2
    clean: bool = False
    stays_s: float = Field(default=0.0, ge=0)
    away_s: float = Field(default=1.0, ge=0, le=60)
    receive_maximum: int = Field(default=65_535, ge=1, le=65_535)

    @field_validator("filter")
    @classmethod
    def _well_formed(cls, filter: str) -> str:
        """A gateway would refuse it at each connection, and the run would wait for nothing."""
        levels = filter.split("/")
        if levels[0] == "$share":
            name, levels = levels[1:2], levels[2:]
            if not levels or not levels[0] or not name[0] or "#" in name[0] or "+" in name[0]:
                raise ValueError("a shared one is $share/NAME/FILTER, without + and # in NAME")
        if "#" in "".join(levels[:-1]) or any(
            len(level) > 1 and ("#" in level or "+" in level) for level in levels
        ):
            raise ValueError("a # must be the whole last level, and a + a whole level")
        return filter
