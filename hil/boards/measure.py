"""Measure the stack of a firmware, and the life of the EEPROM, by running the firmware.

In: a HEX file for the Uno that publishes readings, the number of readings, and `--radio` if the
firmware uses an SX1276. Out: one JSON object on standard output.

    python -m hil.boards.measure build/firmware/uno/sensor.hex --readings 20000
    python -m hil.boards.measure build/firmware/uno/sensor-lora.hex --radio
"""

import argparse
import asyncio
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from hil.boards.by_radio import RadioGateway, converse_by_radio, provisioned
from hil.boards.exchange import Gateway, converse
from hil.boards.ledger import ERASED
from hil.boards.simulator import HZ, SimulatedBoard

CELL_LIFE = 100_000
"""Number of writes that an EEPROM cell survives (ATmega328P data sheet, features)."""
MINUTES_A_YEAR = 365.25 * 24 * 60
_SECONDS_A_READING = 5


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of `measure`. readings: number of complete QoS 2 deliveries. seconds: board
    time. stack: largest number of bytes in use. wear: number of writes to the most written EEPROM
    cell. eeprom_years: years until this cell has had 100,000 writes, at one reading per minute.
    """

    readings: int
    seconds: float
    stack: int
    wear: int
    eeprom_years: float


async def measure(
    firmware: Path, readings: int, eeprom: bytes = ERASED, *, radio: bool = False
) -> Measurement:
    """Run the firmware in a simulated board until the gateway has completed `readings`
    publications. With a radio, run until the gateway has received them, because the last PUBREL
    waits for the next publication. eeprom: content of the EEPROM at the first start. Raises
    TimeoutError if this takes more board time than _SECONDS_A_READING allows.
    """
    gateway = RadioGateway() if radio else Gateway()
    with tempfile.TemporaryDirectory() as folder:
        if radio:
            firmware = provisioned(firmware, Path(folder, "radio.hex"))
        board = SimulatedBoard(Path(folder), firmware=firmware, speed="step", radio=radio)
        board.eeprom_image.write_bytes(eeprom)
        async with board:
            seconds = _SECONDS_A_READING * readings + 10
            if isinstance(gateway, RadioGateway):
                await converse_by_radio(board, gateway, arrived=readings, seconds=seconds)
            else:
                await converse(board, gateway, completed=readings, seconds=seconds)
            done = len(gateway.deliveries) if radio else gateway.completed
            if done < readings:
                raise TimeoutError(
                    f"{done} of {readings} readings in {board.cycle / HZ:.0f} s of board time"
                )
            stats, wear = await board.stats(), max(await board.wear())
    years = CELL_LIFE / (wear / readings) / MINUTES_A_YEAR if wear else float("inf")
    return Measurement(readings, round(board.cycle / HZ, 1), stats.stack, wear, round(years, 1))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m hil.boards.measure", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("firmware", type=Path, help="Intel HEX file")
    parser.add_argument(
        "--readings", type=int, default=1200, help="number of readings (default 1200)"
    )
    parser.add_argument("--radio", action="store_true", help="the firmware uses an SX1276 radio")
    arguments = parser.parse_args()
    found = asyncio.run(measure(arguments.firmware, arguments.readings, radio=arguments.radio))
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    main()
