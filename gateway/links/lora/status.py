"""Status of a radio of a running gateway, for users. In: the state of `port.py`. Out: figures."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BoardSignal:
    """Signal of a board's last frame. age: seconds since the frame. rssi: dBm. snr: dB. airtime:
    total airtime of the frames that were received from the board within the last hour, in seconds.
    (The board's legal limit also counts frames that were not received.)
    """

    name: str
    age: float
    rssi: float | None
    snr: float | None
    airtime: float


@dataclass(frozen=True, slots=True)
class Overheard:
    """A frame that a radio has received, of any station. path: port of the radio. frame: hex.
    device: the name of the sender in this gateway's registry, or None. result: the outcome
    (`TurnLink.result`).
    """

    path: str
    frame: str
    rssi: float | None
    snr: float | None
    device: str | None
    result: str


@dataclass(frozen=True, slots=True)
class RadioStatus:
    """The status of a radio, for users. told: the modem's description of itself. problem: the last
    warning, until its cause is gone. rule: legal rule of the sub-band, in words. used, limit:
    airtime sent in the last hour, and its legal limit, in seconds. counts: number of frames by
    outcome. connected: names of boards in session. frequency: Hz. factor: spreading factor.
    numbers: names of all admitted boards by number. heard_s, sent_s: airtime since the gateway's
    start, in seconds, of received frames and of the radio's own frames. load, workable: seconds of
    received frames within an hour, and the largest number of seconds at which the channel still
    works. warnings: texts about limits that are near now.
    """

    path: str
    is_open: bool
    told: str  # prose: JSON key
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
