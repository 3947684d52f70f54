"""The history of a run in the rig's format, for the rig's own judge.

In: reports of taps, stores and boards' logs. Out: events. The rig's own `LedgerWatch` reports a
board's publications from the EEPROM's content and the ADC's input.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

from hil.devices.ledger_watch import LedgerWatch
from hil.devices.simulated import interval_record
from hil.observe.history import Event, History
from tests.sim.whole.board import INTERVAL_MS, Board
from tests.sim.whole.clock import Time

UTC = 1_700_000_000
"""Unix time at the beginning of the run, in seconds."""
UNTIL = "batch"
"""The last hop that is judged. Rows of a gateway's spool land unchanged, some time later."""


class Truth:
    """The history of a run: all events up to now."""

    def __init__(self, time: Time) -> None:
        self.events: list[Event] = []
        self._time = time

    def add(self, hop: str, event: str, t: int | None = None, **data: Any) -> None:
        self.events.append(Event(self._time.ns if t is None else t, hop, event, data))

    def read_board(self, board: Board, *, swapped: bool = False) -> None:
        """Record all publications of a board. swapped: the board is about to be replaced by
        `renew`. If such a board has no incarnation yet, it has sent nothing, and cannot be
        distinguished from the next board. Then only its starts are recorded.
        """
        outside, before = board.outside, len(self.events)
        logs = {
            "eeprom_log": bytes(outside.writes)[: outside.writes_end],
            "adc_log": bytes(outside.conversions)[: outside.conversions_end],
            "eeprom_image": bytes(outside.eeprom),
        }
        with TemporaryDirectory() as folder:
            files = SimpleNamespace(**{name: Path(folder) / name for name in logs})
            for name, log in logs.items():
                (Path(folder) / name).write_bytes(log)
            history = cast(History, self)
            watch = LedgerWatch(
                board.name,
                files,  # type: ignore[arg-type]
                history,
                interval_record(INTERVAL_MS),
                board.before,
            )
            watch.look()
            watch.close(swapped=swapped)
        if swapped and not board.incarnation:
            found = self.events[before:]
            self.events[before:] = [event for event in found if "incarnation" not in event.data]

    def close(
        self,
        boards: list[str],
        clients: dict[str, int],
        gateways: list[str],
        copies: int,
        stalled: bool,
    ) -> list[Event]:
        """Add the events that the rig adds itself, and return all events. clients: number of
        messages by client. copies: number of gateways that have an acknowledged publication on
        disk. stalled: the system did not come to rest.
        """
        several = [{"name": name} for name in gateways] if len(gateways) > 1 else []
        bench: dict[str, Any] = {"title": "whole", "until": UNTIL, "gateway": several}
        bench["config"] = {"site": {"copies": copies}}
        bench["client"] = [{"messages": messages} for messages in clients.values()]
        plan = {"seed": 0, "readings": dict.fromkeys(boards, 1)}
        run = {"version": "1", "bench": bench, "plan": plan, "gateway": gateways}
        self.add("rig", "run", 0, **run)
        self.add("rig", "clock", 0, utc=UTC * 1_000_000_000)
        self.add("rig", "armed", 0, held=[])
        if stalled:
            self.add("rig", "stalled")
        for hop in ("board", "spool", "batch"):
            self.add(hop, "complete")
        self.add("rig", "end")
        return self.events
