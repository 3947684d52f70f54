"""A read-only view of a running gateway for page, metrics and status. In: the gateway's parts. Out:
these parts, and figures that are computed from several parts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gateway.boards.expected import Expected
from gateway.boards.history import History
from gateway.bridge.status import BridgeStatus
from gateway.broker.broker import Broker
from gateway.links.lora.status import Overheard, RadioStatus
from gateway.links.serial_port import PortStatus
from gateway.payload.answers import Answer
from gateway.store.times import CommitTimes
from gateway.system.jobs import Job


class Boards(Protocol):
    """The boards' reports, and refused publications (`gateway/boards/reports.py`)."""

    @property
    def payload_conflicts(self) -> int: ...

    @property
    def answers(self) -> Mapping[str, Answer]: ...

    def problems(self, monotonic: int) -> list[tuple[str, str]]: ...

    def status(self, name: str) -> dict[str, float] | None: ...


@dataclass(frozen=True, slots=True)
class Source:
    """The parts of a running gateway. times: durations of commits. waits_s: returns how long the
    present commit has waited for the disk. ports: serial ports seen so far. folder: the data
    directory. restored: why the store is another generation, None if it is not. boards: reports of
    boards, and refusals of their publications. radios, bridges: return the status of each
    configured radio and bridge. site: returns a row for each member, no row without a site.
    overhearers: receivers of all frames that the radios hear. expected: the state of each board of
    the registry. untold: functions that return failed notifications. ways: names of the
    notification channels. history: the last readings of boards. restart: configuration keys that
    have changed and take effect at the next start. absent: functions that return a sentence for
    each listener whose address this machine does not have yet. jobs: background jobs of all parts.
    doubt: returns why the system clock is not believed, None while it is believed.
    """

    broker: Broker
    times: CommitTimes
    waits_s: Callable[[], float]
    ports: Callable[[], list[PortStatus]]
    folder: Path
    restored: str | None = None
    boards: Boards | None = None
    radios: Callable[[], list[RadioStatus]] = list
    bridges: Callable[[], list[BridgeStatus]] = list
    site: Callable[[], list[dict[str, Any]]] = list
    overhearers: set[Callable[[Overheard], None]] = field(default_factory=set)
    expected: Expected | None = None
    untold: list[Callable[[], list[str]]] = field(default_factory=list)
    ways: list[str] = field(default_factory=list)
    history: History | None = None
    restart: Sequence[str] = ()
    absent: list[Callable[[], list[str]]] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    doubt: Callable[[], str | None] = lambda: None

    @property
    def by_radio(self) -> set[str]:
        """Names of the radio boards. They receive a command only after they have sent."""
        return {name for radio in self.radios() for name in radio.numbers.values()}

    @property
    def spool_age_s(self) -> float | None:
        """Seconds since the oldest row of the spool was stored. 0 if the spool is empty, None if
        the time is not known.
        """
        broker = self.broker
        if not broker.spool.count:
            return 0.0
        return broker.spool.age(broker.monotonic, broker.utc)
