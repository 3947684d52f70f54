"""Times of readings from a board whose clock is wrong by half a percent."""

import asyncio
import time
from pathlib import Path

import pytest

from gateway.links.greeter import Greeter
from gateway.links.roles import GatewayLink
from hil.boards.adc_log import AdcLog
from hil.boards.exchange import INCARNATION, Gateway, converse
from hil.boards.simulator import BUILD, HZ, SimulatedBoard
from hil.judge.senml import Record, decode
from tests.firmware.eeprom import with_interval
from tests.sim.monitor import eventually

pytestmark = pytest.mark.sim

EPOCH = 1_767_225_600.25  # UTC at cycle 0 of the board
INTERVAL_S = 30
MOST_DRIFT = 0.005


class Drifting(Gateway):
    """A gateway whose clock gains `drift` seconds a second on the board's clock. Its cable is
    unplugged from `gone` until `back`, in seconds of board time.
    """

    drift, gone, back, now = 0.0, 0.0, 0.0, 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        greeter = Greeter(1, utc=lambda: self.utc(self.now), incarnation=lambda: INCARNATION)
        self.link = GatewayLink(greeter, 115_200)

    def utc(self, now: float) -> float:
        return EPOCH + now * (1 + self.drift)

    def receive(self, data: bytes, now: float) -> bytes:
        self.now = now
        return b"" if self.gone <= now < self.back else super().receive(data, now)


def readings(gateway: Gateway) -> list[Record]:
    packs = [decode(delivery.payload) or () for delivery in gateway.deliveries]
    return [records[0] for records in packs if records[0].unit == "V"]


@pytest.mark.few(1)
@pytest.mark.parametrize("drift", [-MOST_DRIFT, MOST_DRIFT])
async def test_a_time_is_right_within_what_it_says(tmp_path: Path, drift: float) -> None:
    """The gateway sends the time several times, is away for ten minutes, and comes back."""
    gateway = Drifting()
    gateway.drift, gateway.gone, gateway.back = drift, 300, 900
    (tmp_path / "board").mkdir()
    (tmp_path / "board" / "eeprom.bin").write_bytes(with_interval(INTERVAL_S * 1000))
    board = SimulatedBoard(tmp_path / "board", firmware=BUILD / "uno" / "sensor.hex", speed="step")
    async with board:
        await converse(board, gateway, completed=40, seconds=1300)
    found = readings(gateway)
    log = AdcLog(board.adc_log)
    log.look()
    errors = []
    for record, conversion in zip(found, log.conversions, strict=False):
        assert record.time is not None
        assert record.error is not None
        truth = gateway.utc(conversion.cycle / HZ)
        assert abs(record.time - truth) <= record.error
        errors.append(record.error)
    assert len(errors) >= 38
    assert min(errors) <= 4, "it has just been told"
    assert max(errors) >= 6, "it had not been told for ten minutes"
    assert errors[-1] <= 4, "and was told again"


async def test_a_board_that_drifts_passes_more_time_than_this_machine(tmp_path: Path) -> None:
    async with SimulatedBoard(tmp_path / "board", drift=100_000) as board:
        await eventually(board, lambda stats: stats.cycle > 0)
        first, before, second = time.monotonic(), await board.stats(), time.monotonic()
        await asyncio.sleep(1)
        third, after, fourth = time.monotonic(), await board.stats(), time.monotonic()
    passed = (after.cycle - before.cycle) / HZ  # the answer belongs to some moment of the call
    assert after.slipped > 0 or 1.05 * (third - second) < passed < 1.15 * (fourth - first)
