"""The sensor sketch for radio boards: its driver on the model of the chip, with a gateway's half of
the turn link in memory. Then the whole way, through the ether to a gateway.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from intelhex import IntelHex

from gateway.links.lora import turns
from gateway.links.lora.airtime import Modulation
from gateway.links.lora.frames import Hello
from gateway.links.lora.turns import TurnLink
from gateway.mqtt.packets import PacketType
from hil.boards.simulator import BUILD, HZ, Event, EventStream, SimulatedBoard
from provisioning.boards import board as kind
from provisioning.identity import Identity
from provisioning.radio_plan import LONGEST_FRAME, RadioPlan, radio_page
from tests.firmware.eeprom import with_interval

pytestmark = pytest.mark.sim

KEY = bytes(range(1, 17))
PLAN = RadioPlan(network=7, device=3, factor=7, power=10)
MS = HZ // 1000
ANSWERS_MS = 40


def provisioned(folder: Path) -> Path:
    """Return the HEX file of the sensor, with name, key and channel."""
    image = IntelHex(str(BUILD / "uno" / "sensor-lora.hex"))
    image.puts(kind("uno").identity, radio_page(Identity("roof-1", KEY), PLAN))
    image.write_hex_file(str(folder / "roof-1.hex"))
    return folder / "roof-1.hex"


@dataclass
class Far:
    """A gateway's half of the link, at the other end of the air. It answers after ANSWERS_MS, as a
    modem does.
    """

    board: SimulatedBoard
    events: EventStream
    link: TurnLink = field(default_factory=lambda: TurnLink(7, {3: KEY}.get))
    heard: int = 0

    async def silence(self, seconds: float) -> bool:
        """Run the board for this time. Return whether its radio has sent nothing."""
        await self.board.run(round(seconds * HZ))
        return (await self.board.stats()).frames == self.heard

    async def frame(self, seconds: float = 30) -> Event:
        """Run the board until its next frame has ended. Return the event."""
        for _ in range(round(seconds * 100)):
            if (await self.board.stats()).frames > self.heard:
                break
            await self.board.run(10 * MS)
        event = await self.events.wait_for("radio", 1)
        self.heard += 1
        length = len(event.details["frame"]) // 2
        end = event.cycle + round(Modulation(PLAN.factor).airtime(length) * HZ) + 2 * MS
        await self.board.run(max(end - self.board.cycle, 0))
        return event

    async def answer(self, *, good: bool = True) -> tuple[bytes, list[turns.Event]]:
        """Answer the board's next frame. good: whether the board receives the answer intact. Return
        the frame, and the link's events.
        """
        frame = bytes.fromhex((await self.frame()).details["frame"])
        found = self.link.receive(frame, self.board.cycle / HZ)
        await self.board.run(ANSWERS_MS * MS)
        for out in self.link.take(self.board.cycle / HZ):
            await self.board.hear(out.frame, good=good)
        return frame, found


@pytest.fixture
async def far(tmp_path: Path) -> AsyncIterator[Far]:
    folder = tmp_path / "board"
    folder.mkdir()
    (folder / "eeprom.bin").write_bytes(with_interval(500))
    firmware = provisioned(tmp_path)
    async with SimulatedBoard(folder, firmware=firmware, speed="step", radio=True) as board:
        yield Far(board, await board.subscribe())


async def test_a_board_sends_as_its_identity_page_says(far: Far) -> None:
    sent = (await far.frame()).details
    assert abs(sent["frequency"] - PLAN.frequency) <= 61 / 2 + 1, "a step of the chip is 61 Hz"
    assert (sent["factor"], sent["power"], sent["bandwidth"]) == (7, 10, 125_000)
    assert (sent["coding"], sent["preamble"], sent["usual"]) == (1, 8, True)
    hello = Hello.from_frame(bytes.fromhex(sent["frame"]))
    assert (hello.network, hello.device) == (7, 3)
    assert hello.proves(KEY)


async def test_a_board_listens_as_the_errata_note_wants_it(far: Far) -> None:
    """Semtech's errata note for the SX1276/77/78, section 2.3: a reset sets AutomaticIFOn, with
    which the receiver also accepts strong signals on other channels. So the board must clear it.
    """
    for again in (False, True):
        if again:
            await far.board.radio(False)
            await far.board.radio(True)
        await far.frame()
        told = (await far.board.command("registers"))["registers"]
        of = bytes.fromhex(told)
        assert of[0x01] == 0x85, "it listens"
        assert of[0x1D] >> 4 == 7, "125 kHz"
        assert of[0x31] & 0x80 == 0, "AutomaticIFOn"
        assert of[0x31] & 0x07 == 3, "SF7 to SF12"
        assert (of[0x2F], of[0x30]) == (0x40, 0x00), "the intermediate frequency"
        assert of[0x0C] & 0x03 == 3, "LnaBoostHf"
        assert of[0x0C] >> 5 == 1, "gain"


async def test_a_board_hears_its_answer_and_goes_on(far: Far) -> None:
    await far.answer()
    _, events = await far.answer()
    started, received = events
    assert isinstance(started, turns.SessionStarted)
    assert isinstance(received, turns.Received)
    assert received.data[0] >> 4 == PacketType.CONNECT


@pytest.mark.parametrize("step", ["sends", "sent", "listens", "heard"])
async def test_power_can_be_cut_at_each_step_of_a_turn(far: Far, step: str) -> None:
    await far.answer()
    await far.board.run(20 * MS)  # the board has read the answer
    await far.board.command(f"cut {step} 1")
    if step == "sends":
        await far.board.run(2 * HZ)
    else:
        await far.frame()
        await far.board.hear(bytes(10))
        await far.board.run(MS)
    cut = await far.events.wait_for("cut", 1)
    assert cut.details["armed"] == step
    stats = await far.board.stats()
    assert (stats.power, stats.frames) == (False, 2)


async def test_answer_with_a_wrong_crc_is_ignored(far: Far) -> None:
    attempts = []
    for good in (False, True):
        hello, _ = await far.answer(good=good)
        attempts.append(Hello.from_frame(hello).attempt)
    assert attempts == [0, 1]
    _, events = await far.answer()
    assert isinstance(events[0], turns.SessionStarted)


async def test_a_radio_that_loses_its_supply_is_set_up_again(far: Far) -> None:
    await far.answer()
    await far.board.run(20 * MS)  # the board has read the answer
    await far.board.radio(False)
    await far.board.radio(True)
    await far.board.run(20 * MS)
    _, events = await far.answer()
    assert isinstance(events[0], turns.SessionStarted)


async def test_a_radio_that_does_not_answer_stops_neither_the_board_nor_its_journal(
    far: Far,
) -> None:
    await far.board.radio(False)
    assert await far.silence(20)
    stats = await far.board.stats()
    assert stats.boots == 1, "the watchdog"
    assert stats.samples >= 39, "one each half second"
    assert stats.writes >= stats.samples * 12, "a slot of the journal for each"
    await far.board.radio(True)
    _, events = await far.answer()
    assert events == []
    _, events = await far.answer()
    assert isinstance(events[0], turns.SessionStarted)


async def test_the_law_keeps_a_board_silent_after_a_start(far: Far) -> None:
    """After a start, the board does not know the length of its previous frame. So it is silent for
    as long as after the longest frame.
    """
    longest = Modulation(PLAN.factor).airtime(LONGEST_FRAME)
    first = await far.frame()
    assert first.cycle / HZ > longest * PLAN.silence
