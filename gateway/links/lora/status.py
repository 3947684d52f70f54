"""A radio of a running gateway as people see it. In: what `port.py` knows. Out: figures."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BoardSignal:
    """How a board was heard last. age: seconds. rssi: dBm. snr: dB. airtime: seconds of its frames
    that were heard within an hour; what it sent and nobody heard counts for the law, too.
    """

    name: str
    age: float
    rssi: float | None
    snr: float | None
    airtime: float


@dataclass(frozen=True, slots=True)
class Overheard:
    """A frame that a radio has heard, of anybody. frame: hex. device: whose number it bears
    here. result: what became of it.
    """

    path: str
    frame: str
    rssi: float | None
    snr: float | None
    device: str | None
    result: str


@dataclass(frozen=True, slots=True)
class RadioStatus:
    """A radio as people see it. told: what the modem says it is. problem: what the log said last,
    while it lasts. rule: of the sub-band. used, limit: seconds of the hour. counts: frames, by what
    became of them. frequency: Hz. factor: spreading factor. numbers: of all boards that may speak.
    heard_s, sent_s: airtime since the gateway's start, of frames of anybody and of its own. load,
    workable: seconds of anybody's frames that were heard within an hour, and that may be where the
    channel still works. warnings: what is near its limit now.
    """

    path: str
    is_open: bool
    told: str
    problem: str | None
    rule: str
    used: float
    limit: float
    counts: dict[str, int]
    connected: list[str]
    boards: list[BoardSignal]
    region: str = "EU868"
    frequency: int = 0
    factor: int = 0
    network: int = 0
    numbers: dict[int, str] = field(default_factory=dict)
    band: str = ""
    heard_s: float = 0.0
    sent_s: float = 0.0
    load: float = 0.0
    workable: float = 0.0
    warnings: list[str] = field(default_factory=list)
