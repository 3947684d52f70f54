"""The sensor's firmware, as it is flashed: wherever its power is cut, nothing is lost, duplicated
or renumbered.
"""

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from hil.boards.adc_log import AdcLog
from hil.boards.exchange import INCARNATION, Delivery, Gateway, converse
from hil.boards.ledger import ERASED, Ledger, Write, read_log
from hil.boards.measure import measure
from hil.boards.simulator import BUILD, HZ, SimulatedBoard
from hil.judge.senml import decode, expected, says
from tests.firmware.eeprom import with_interval

pytestmark = pytest.mark.sim

FIRMWARE = Path(__file__).parents[2] / "firmware"
SENSOR = BUILD / "uno" / "sensor.hex"
INTERVAL_MS = 250
STARTED = 3 * HZ  # the boot loader waits for a second
READINGS = 2  # completed in each run


def fresh_eeprom() -> bytes:
    return with_interval(INTERVAL_MS)


def board_in(folder: Path, eeprom: bytes, seed: int = 1, firmware: Path = SENSOR) -> SimulatedBoard:
    folder.mkdir()
    (folder / "eeprom.bin").write_bytes(eeprom)
    return SimulatedBoard(folder, firmware=firmware, speed="step", seed=seed)


def check(board: SimulatedBoard, gateway: Gateway, eeprom: bytes, waiting: int = 3) -> None:
    """Check that each publication that became done was delivered once and unaltered, each other one
    at most once, and nothing else.

    eeprom: the board's content when it first connected to this gateway. waiting: largest number of
    publications that may be undelivered.
    """
    before, after = (
        Ledger.from_image(eeprom),
        Ledger.read(board.eeprom_log, board.eeprom_image, eeprom),
    )
    assert after.contradictions == []
    assert set(after.incarnations) <= {INCARNATION}
    truth = {publication.sequence: publication for publication in after.publications}
    settled = {
        publication.sequence
        for publication in before.publications
        if before.state(publication.sequence)[1]
    }
    delivered = [delivery.sequence for delivery in gateway.deliveries]
    assert len(delivered) == len(set(delivered)), "doubled"
    assert not settled.intersection(delivered), "doubled"
    for delivery in gateway.deliveries:
        assert delivery.incarnation == INCARNATION
        assert says(decode(delivery.payload), expected("", truth[delivery.sequence].source))
    undelivered = [
        sequence for sequence in truth if sequence not in settled and sequence not in delivered
    ]
    assert not [sequence for sequence in undelivered if after.state(sequence)[1]], "lost"
    assert len(undelivered) <= waiting, "nothing waits for ever"


async def cut_and_recover(
    folder: Path, eeprom: bytes, cut: str, seed: int, gateway: Gateway | None = None
) -> None:
    gateway = gateway or Gateway()
    async with board_in(folder, eeprom, seed) as board:
        await board.adc(0, 1000)
        await board.command(f"cut {cut}")
        await converse(board, gateway, completed=READINGS)
        assert (await board.stats()).armed == "none", "the cut did not fire"
        await board.adc(0, 4000)
        await board.power(True)
        await converse(board, gateway, completed=gateway.completed + READINGS)
        assert gateway.completed >= READINGS
    check(board, gateway, eeprom)


async def used_eeprom(folder: Path) -> bytes:
    """Return the EEPROM of a board that has filled each slot of its journal."""
    gateway = Gateway()
    async with board_in(folder, fresh_eeprom()) as board:
        await converse(board, gateway, completed=61, seconds=60)
    assert gateway.completed == 61
    return board.eeprom_image.read_bytes()


async def uncut(folder: Path, eeprom: bytes) -> tuple[int, int]:
    """Run a board until READINGS readings are complete, without a power cut. Return the number of
    EEPROM cells that it wrote, and of bytes that it sent.
    """
    gateway = Gateway()
    async with board_in(folder, eeprom) as board:
        await converse(board, gateway, completed=READINGS)
        stats = await board.stats()
    check(board, gateway, eeprom)
    return stats.writes, stats.tx


async def test_power_cut_at_every_eeprom_write_of_a_first_start(tmp_path: Path, step: int) -> None:
    """The board writes boot counter, incarnation, journal and marks. The power fails in the middle
    of each write, and after it.
    """
    eeprom = fresh_eeprom()
    writes, _ = await uncut(tmp_path / "uncut", eeprom)
    assert writes > 40
    for number in range(1, writes + 1, step):
        await cut_and_recover(
            tmp_path / f"torn-{number}", eeprom, f"eeprom {number} torn", seed=number
        )
        await cut_and_recover(tmp_path / f"whole-{number}", eeprom, f"eeprom {number}", seed=number)


async def test_power_cut_at_every_eeprom_write_of_a_later_start(tmp_path: Path, step: int) -> None:
    """The journal's slots are in use for the second time, so each write replaces older content."""
    eeprom = await used_eeprom(tmp_path / "used")
    writes, _ = await uncut(tmp_path / "uncut", eeprom)
    for number in range(1, writes + 1, step):
        await cut_and_recover(
            tmp_path / f"torn-{number}", eeprom, f"eeprom {number} torn", seed=number
        )


async def cut_at_every_byte_sent(folder: Path, step: int, gateway: type[Gateway]) -> None:
    eeprom = fresh_eeprom()
    _, sent = await uncut(folder / "uncut", eeprom)
    assert sent > 150
    for number in range(sent, 0, -step):
        await cut_and_recover(folder / str(number), eeprom, f"tx {number}", number, gateway())


@pytest.mark.soak
async def test_power_cut_at_every_byte_sent(tmp_path: Path, step: int) -> None:
    await cut_at_every_byte_sent(tmp_path, step, Gateway)


class Forgetful(Gateway):
    """A gateway that says Session Present 1 at each connection, although it has forgotten the
    packet identifiers.
    """

    def connected(self) -> None:
        super().connected()
        self.ids = set()


class Hollow(Gateway):
    """A gateway that acknowledges the third publication, but does not store it."""

    def deliver(self, delivery: Delivery) -> None:
        if delivery.sequence != 3:
            super().deliver(delivery)


@pytest.mark.parametrize(("gateway", "verdict"), [(Forgetful, "doubled"), (Hollow, "lost")])
async def test_these_checks_can_fail(tmp_path: Path, gateway: type[Gateway], verdict: str) -> None:
    with pytest.raises(AssertionError, match=verdict):
        await cut_at_every_byte_sent(tmp_path, 1, gateway)


COMMANDS = (b"interval 500", b"reboot")


async def obey(folder: Path, cut: str, seed: int) -> tuple[int, int]:
    """Give a new board all COMMANDS, and cut its power once, as `cut` says. Return the number of
    EEPROM cells written, and of bytes sent, until the first readings are complete.
    """
    eeprom, gateway = fresh_eeprom(), Gateway(commands=COMMANDS)
    async with board_in(folder, eeprom, seed) as board:
        await board.command(f"cut {cut}")
        await converse(board, gateway, completed=READINGS)
        stats = await board.stats()
        if stats.armed == "none":
            await board.power(True)
        await converse(board, gateway, completed=gateway.completed + READINGS)
        interval = int.from_bytes((await board.eeprom())[0x020:0x022])
        reboots = board.eeprom_log.read_text().count("start watchdog")
    assert gateway.obeyed == len(COMMANDS)
    assert interval == 500
    assert reboots <= 1, "obeyed twice"
    assert reboots == 1 or stats.armed == "none", "not obeyed"
    check(board, gateway, eeprom, waiting=12)
    return stats.writes, stats.tx


async def test_power_cut_at_every_eeprom_write_and_byte_sent_while_it_obeys(
    tmp_path: Path, step: int
) -> None:
    """Each command takes effect exactly once. If the command is a reboot, a power cut counts as the
    reboot.
    """
    writes, sent = await obey(tmp_path / "uncut", "eeprom 1000000", 1)
    for number in range(1, writes + 1, step):
        await obey(tmp_path / f"torn-{number}", f"eeprom {number} torn", number)
    for number in range(1, sent + 1, step):
        await obey(tmp_path / f"tx-{number}", f"tx {number}", number)


async def test_a_build_without_a_watchdog_reboots_too(tmp_path: Path) -> None:
    """The build is for old boot loaders, which would reset the board in a loop after a reset by
    the watchdog. So the build jumps to address 0 to reboot.
    """
    eeprom, gateway = fresh_eeprom(), Gateway(commands=COMMANDS)
    async with board_in(
        tmp_path / "board", eeprom, firmware=BUILD / "nano-old" / "sensor.hex"
    ) as board:
        await converse(board, gateway, completed=READINGS)
        await converse(board, gateway, completed=gateway.completed + READINGS)
        boots = Ledger.from_image(await board.eeprom()).boots
        resets = board.eeprom_log.read_text().count("start ")
    assert gateway.obeyed == len(COMMANDS)
    assert (boots, resets) == (2, 1), "one start more than resets, and no more than one"
    check(board, gateway, eeprom)


def statuses(gateway: Gateway) -> list[dict[str, float]]:
    """Return the values of each status message, by the last part of their SenML names."""
    packs = [decode(delivery.payload) or () for delivery in gateway.deliveries]
    return [
        {record.name.rpartition(":")[2]: record.value for record in records}
        for records in packs
        if records[0].name.endswith(":boot")
    ]


async def test_an_interval_that_leaves_less_than_a_year_must_be_forced(tmp_path: Path) -> None:
    gateway = Gateway(commands=(b"interval 3000", b"interval 6000 force", b"interval 7000"))
    async with board_in(tmp_path / "board", ERASED) as board:
        await converse(board, gateway, completed=4, seconds=120)
        assert int.from_bytes((await board.eeprom())[0x020:0x022]) == 7000
    told = [(status["life"], status.get("denied")) for status in statuses(gateway)]
    assert (11.3, 0.5) in told, "a reading a minute, as before; it would have been half a year"
    assert told[-1] == (1.3, None), "a longer one is no harm"


@pytest.mark.parametrize(
    ("command", "seconds", "life"),
    [(b"interval 90 s", 90, 17.0), (b"interval 2 min", 120, 22.7), (b"interval 1440 min", 0, 100)],
)
async def test_an_interval_may_be_minutes_or_days_long(
    tmp_path: Path, command: bytes, seconds: int, life: float
) -> None:
    """The interval survives a power cut. A count of milliseconds in 16 bits would end at 65.5 s.
    After a start, the board samples at once.
    """
    gateway = Gateway(commands=(command,))
    async with board_in(tmp_path / "board", ERASED) as board:
        await converse(board, gateway, completed=3)
        await board.power(False)
        await board.power(True)
        await converse(board, gateway, completed=gateway.completed + 4, seconds=300)
        log = AdcLog(board.adc_log)
        log.look()
    assert statuses(gateway)[-1]["life"] == life
    sampled = [one.cycle / HZ for one in log.conversions]
    assert [round(b - a) for a, b in pairwise(sampled[1:])] == [seconds] * (2 if seconds else 0)


@pytest.fixture
def sensor_of_short_days(tmp_path: Path) -> Path:
    """Return a build of the sensor whose day has ten seconds."""
    command = ["make", "-s", "-C", FIRMWARE, f"BUILD={tmp_path}", f"{tmp_path}/uno/sensor.hex"]
    subprocess.run([*command, "DEFINES=-DSENSOR_STATUS_EVERY_S=10"], check=True)
    return tmp_path / "uno" / "sensor.hex"


async def test_a_status_comes_each_day(tmp_path: Path, sensor_of_short_days: Path) -> None:
    gateway = Gateway()
    async with board_in(
        tmp_path / "board", with_interval(0xFFFF), firmware=sensor_of_short_days
    ) as board:
        await converse(board, gateway, completed=4, seconds=31)
    assert [status["boot"] for status in statuses(gateway)] == [1, 1, 1, 1]


async def test_a_loop_of_resets_spares_the_cells_of_the_boot_counter(tmp_path: Path) -> None:
    resets = 40
    async with board_in(tmp_path / "board", ERASED) as board:
        await board.run(STARTED)
        for _ in range(resets):
            await board.command("reset")
            await board.run(STARTED)
        boots = [
            entry
            for entry in read_log(board.eeprom_log)
            if isinstance(entry, Write) and 0x010 <= entry.address < 0x020
        ]
        assert len(boots) <= 4 * 7, "seven of 41 starts wrote a cell of four bytes"
        assert Ledger.from_image(await board.eeprom()).boots >= resets + 1


async def test_eeprom_of_the_sensor_lives_ten_years(tmp_path: Path) -> None:
    """The board takes a reading a minute. With 480 readings, each slot is used eight times. An
    erased mark may need one more write.
    """
    measurement = await measure(SENSOR, 479, fresh_eeprom())
    assert measurement.eeprom_years >= 10
    assert 0 < measurement.stack <= 400


async def test_a_full_journal_skips_samples_and_the_next_reading_counts_them(
    tmp_path: Path,
) -> None:
    """The gateway is away for 400 samples. No slot that still waits is overwritten. The count of
    missed samples stops at 255.
    """
    gateway = Gateway()
    async with board_in(tmp_path / "board", with_interval(100)) as board:
        await board.run(40 * HZ)
        await converse(board, gateway, completed=70, seconds=60)
    assert [one.sequence for one in gateway.deliveries] == [*range(1, 71)]
    records = [record for one in gateway.deliveries for record in decode(one.payload) or ()]
    missed = [record.value for record in records if record.name.endswith("missed")]
    assert missed[0] == 255
