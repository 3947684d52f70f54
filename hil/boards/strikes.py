"""Faults of a board, ordered in advance. The simulator counts the board's conversions, and causes
each fault at its place (firmware/sim, command `at`). In: commands, each with the number of the
conversion at which it runs. Out: the board's events by command; an event can also be read later.
"""

import asyncio
from contextlib import suppress

from hil.boards.simulator import BoardError, Event, EventStream, SimulatedBoard


class Strikes:
    """Faults against the successive boards with one name. A place is a number of conversions,
    counted from 1 over all these boards: a new board continues the count of the previous one.
    """

    def __init__(self) -> None:
        self._board: SimulatedBoard | None = None
        self._shift = 0
        """Conversions of the earlier boards. A place minus this is a place of the present board."""
        self._events: dict[str, asyncio.Queue[Event]] = {}
        self._waiting: dict[str, tuple[int, str]] = {}
        """Place and command of each fault that has not happened yet, by the fault's name."""
        self._delays: dict[str, str] = {}
        """For each late fault, the fault that stopped the previous board. A fault is late if its
        place had passed when the new board started.
        """
        self._under_way: str | None = None
        self._task: asyncio.Task[None] | None = None

    async def listen(self, board: SimulatedBoard) -> None:
        """Follow a new board instead of the previous one. Give the new board the commands that the
        previous board has not executed.
        """
        ahead = await self.samples() if self._board else 0
        await self.stop()
        self._board, died_of = board, self._under_way
        self._shift = ahead - (await board.stats()).samples
        self._task = asyncio.create_task(self._follow(await board.subscribe()))
        for name, (place, command) in self._waiting.items():
            if place <= ahead:
                self._delays[name] = str(died_of)
            await board.at(max(place, ahead + 1) - self._shift, name, command)

    async def samples(self) -> int:
        """Return the number of conversions so far, over all boards with this name."""
        return (await self._simulated.stats()).samples + self._shift

    async def order(self, name: str, place: int, command: str) -> None:
        """Order a command for a place. Raises BoardError if the place is in the past."""
        self._events[name] = asyncio.Queue()
        await self._simulated.at(place - self._shift, name, command)
        self._waiting[name] = (place, command)

    async def next(self, name: str, event: str) -> Event:
        """Return the next event of the kind `event` that the command `name` caused. The details of
        `struck` have the place (`sample`), and the fault for which the command had to wait
        (`behind`). Raises BoardError if the board refused the command.
        """
        while True:
            found = await self._events[name].get()
            if not found.details.get("taken", True):
                raise BoardError("the simulated board refused a command at its planned place", name)
            if found.name == event:
                return found

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    @property
    def _simulated(self) -> SimulatedBoard:
        assert self._board is not None  # noqa: S101 - listen comes first
        return self._board

    async def _follow(self, events: EventStream) -> None:
        try:
            async for event in events:
                if event.name == "struck":
                    self._under_way = name = str(event.details["id"])
                    self._waiting.pop(name, None)
                    event.details["sample"] += self._shift
                    event.details["behind"] = self._delays.pop(name, event.details["behind"])
                if self._under_way in self._events:
                    self._events[self._under_way].put_nowait(event)
        finally:
            events.close()
