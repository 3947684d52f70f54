"""What can be looked at of a running gateway. In: its parts. Out: figures that several of them give
together.
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
from gateway.store.times import CommitTimes


class Boards(Protocol):
    """What boards tell of themselves, and what they are refused (`gateway/boards/reports.py`)."""

    @property
    def contradictions(self) -> int: ...

    @property
    def answers(self) -> Mapping[str, str]: ...

    def troubles(self, monotonic: int) -> list[str]: ...

    def status(self, name: str) -> dict[str, float] | None: ...


@dataclass(frozen=True, slots=True)
class Source:
    """times: of commits. waits_s: for how long the present commit has waited for the disk. ports:
    serial ports seen so far. folder: the data directory. restored: why the store is another life
    of the one that ran here before, None when it is not. boards: what they tell, and are refused.
    radios, bridges: of the configuration. site: rows of its members, none without a site.
    overhearers: take the frames that the radios hear. expected: how each board of the registry is.
    untold: say which notifications could not be sent. ways: by which people are told of problems.
    history: the last readings of boards. restart: keys of the configuration that have changed and
    count from the next start only.
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

    @property
    def by_radio(self) -> set[str]:
        """Boards that hear a command when they have spoken, and not before."""
        return {name for radio in self.radios() for name in radio.numbers.values()}

    @property
    def spool_age_s(self) -> float | None:
        """Seconds since the oldest row of the spool came; 0 when there is none, None when its time
        is not known.
        """
        broker = self.broker
        if not broker.spool.count:
            return 0.0
        return broker.spool.age(broker.monotonic, broker.utc)
