"""Two gateways of a site hear the same board over one air, in which two frames at the same time are
lost. Only one gateway answers. Every reading arrives once, whichever gateway hears the board.
"""

from __future__ import annotations

import heapq
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from gateway.boards.admission import Registry
from gateway.config import parse
from gateway.links.lora.turns import Others, Session
from gateway.runtime.engine import Engine
from gateway.service.listeners import _Lora
from tests.links.lora.test_turns import is_greeting
from tests.links.lora.world import DEVICE, RADIO, Board, Gateway, Ledger


class One(Gateway):
    """One of the two gateways. heard: whether the board is in range and the gateway's radio works.
    marks: sequences in the table.
    """

    def __init__(self, random: Random, ledger: Ledger, rank: int, site: Roaming) -> None:
        super().__init__(random, ledger)
        self.others = Others(2, rank, lambda number: number == DEVICE and self.session_present)
        self.heard = True
        self._site = site

    def _commit(self, session: Session, data: bytes) -> None:
        if data[0] == 0x10:
            self._site.move(self)
        super()._commit(session, data)


class Roaming:
    """A board, two gateways, and the site that moves the board's MQTT session between them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.ledger = Ledger()
        self.now = 100.0
        self.lost = 0.0
        self.collisions = 0
        self.answers: list[int] = []
        """Number of the sending gateway, for each frame from a gateway."""
        self._air: list[tuple[float, float, int, bytes]] = []
        """Frames in the air: end, begin, sender (-1 is the board), and bytes."""
        self.board = Board(self.random, self.ledger)
        self.gateways = [One(self.random, self.ledger, rank, self) for rank in (0, 1)]
        for gateway in self.gateways:
            gateway.start()
        self.board.start(self.now)

    def move(self, here: One) -> None:
        """Move the board's session to the gateway `here`, as `gateway/site` does. `here` also gets
        the anti-replay windows of the other gateway.
        """
        for other in self.gateways:
            if other is not here and other.session_present:
                here.session_present, other.session_present = True, False
                here.held, other.held = other.held, set()
                if other.session is not None:
                    other.link.close(other.session)
                    other.session = None
            here.marks |= other.marks

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self._step()
            moments = [end, *(gateway.deadline for gateway in self.gateways)]
            moments.append(self.board.sending_until or self.now + self.board.wait)
            if self._air:
                moments.append(self._air[0][0])
            self.now = max(min(moments), self.now + 0.01)
        self.ledger.check()

    def _step(self) -> None:
        while self._air and self._air[0][0] <= self.now:
            end, begin, sender, frame = heapq.heappop(self._air)
            if self.random.random() < self.lost:
                continue
            if sender < 0:
                for gateway in self.gateways:
                    if gateway.heard:
                        gateway.receive(frame, self.now)
            elif any(at < end and until > begin for until, at, who, _ in self._air if who >= 0):
                self.collisions += 1
            else:
                self.board.receive(frame, self.now)
        if (frame := self.board.step(self.now)) is not None:
            self._send(-1, frame)
        for rank, gateway in enumerate(self.gateways):
            for frame in gateway.step(self.now):
                if gateway.heard:
                    self.answers.append(rank)
                    self._send(rank, frame)

    def _send(self, sender: int, frame: bytes) -> None:
        self.ledger.air.append((sender < 0, frame))
        heapq.heappush(self._air, (self.now + RADIO.airtime(len(frame)), self.now, sender, frame))

    def readings(self, count: int) -> None:
        for _ in range(count):
            self.board.sample()
            self.run(60.0)

    def settled(self) -> bool:
        self.lost = 0.0
        for _ in range(60):
            self.run(60.0)
            if all(self.board.journal.values()):
                break
        return {sequence for sequence, _ in self.ledger.delivered} == set(self.ledger.readings)


@pytest.mark.parametrize("seed", range(4))
def test_the_one_that_has_the_board_answers_and_the_other_is_quiet(seed: int) -> None:
    world = Roaming(seed)
    world.readings(1)
    assert len(world.ledger.delivered) == 1, "it gets in within a minute"
    (had,) = set(world.answers)
    world.readings(10)
    assert set(world.answers) == {had}
    assert world.collisions == 0
    # after a power cut, the board is with the same gateway
    world.board.start(world.now)
    world.readings(5)
    assert set(world.answers) == {had}
    assert world.settled()


@pytest.mark.parametrize("seed", range(4))
def test_the_other_steps_in_when_it_falls_silent_and_keeps_the_board(seed: int) -> None:
    world = Roaming(seed)
    world.readings(3)
    had = world.answers[-1]
    world.gateways[had].heard = False
    before = len(world.ledger.delivered)
    world.readings(5)
    assert len(world.ledger.delivered) == before + 5
    world.gateways[had].heard = True
    at = len(world.answers)
    world.readings(10)
    assert set(world.answers[at:]) == {1 - had}, "the board is the other one's now"
    assert world.collisions == 0
    assert world.settled()


@pytest.mark.parametrize("seed", range(4))
def test_a_board_that_roams_over_bad_air_loses_and_doubles_nothing(seed: int) -> None:
    world = Roaming(seed)
    world.lost = 0.2
    for _ in range(60):
        world.board.sample()
        world.run(world.random.uniform(1, 60))
        match world.random.randrange(8):
            case 0:
                for gateway in world.gateways:
                    gateway.heard = True
            case 1 | 2:
                gone = world.random.choice(world.gateways)
                gone.heard = False
            case 3:
                world.random.choice(world.gateways).start()
            case 4:
                world.board.start(world.now)
    for gateway in world.gateways:
        gateway.heard = True
    assert world.settled()
    assert set(world.answers) == {0, 1}


def test_greeting_is_left_to_the_last_gateway_of_the_board() -> None:
    world = Roaming(1)
    world.readings(1)
    greetings = [frame for up, frame in world.ledger.air if up and is_greeting(frame)]
    assert len(greetings) <= 3
    assert sum(gateway.link.counts["greetings"] for gateway in world.gateways) == 1


def test_radio_knows_its_site_and_its_local_sessions(tmp_path: Path) -> None:
    """The radio learns the number of gateways from the configuration. From the broker, it learns
    which boards have a session here. A single gateway never waits for others.
    """
    lora = {"port": "/dev/radio", "modem": "kiss", "boards": {"roof-7": 3}}
    values = {"gateway": {"name": "barn", "data": str(tmp_path)}, "lora": [lora]}
    alone = parse(values, "test")
    members = {"attic": "10.0.0.1:1", "barn": "10.0.0.2:1", "cellar": "10.0.0.3:1"}
    config = parse(values | {"site": {"members": members}}, "test")
    sessions = {"roof-7": SimpleNamespace(ended=False)}
    engine = cast(Engine, SimpleNamespace(broker=SimpleNamespace(sessions=sessions)))
    radio = _Lora(engine, config.lora[0], Registry(tmp_path))
    assert radio.others(alone) is None
    others = radio.others(config)
    assert others is not None
    assert others[:2] == (3, 1)
    assert (others.holds(3), others.holds(4)) == (True, False)
    sessions.clear()
    assert not others.holds(3)
