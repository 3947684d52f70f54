"""The board catalogue. In: boards.toml. Out: `Board` by name."""

import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from gateway.errors import OncewayError


class Board(BaseModel):
    """A kind of board. Sizes and addresses in bytes, `clock` in Hz; see boards.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    chip: str
    chip_title: str
    clock: int
    programmer: str
    baud: int
    flash: int
    eeprom: int
    application_end: int
    identity: int
    firmware: str
    link_baud: int
    usb: list[str]
    example: str = "sensor"
    radio: bool = False

    @property
    def hex_file(self) -> Path:
        """Path of the sensor example built for this board, relative to the source tree."""
        return Path("build/firmware") / self.firmware / f"{self.example}.hex"

    @property
    def packed(self) -> str:
        """File name of the firmware for this board in an installed package."""
        return f"{self.firmware}.hex" if self.example == "sensor" else f"{self.name}.hex"


@cache
def catalogue() -> dict[str, Board]:
    """Return all kinds of board by name."""
    entries = tomllib.loads(files("provisioning").joinpath("boards.toml").read_text())
    return {name: Board(name=name, **entry) for name, entry in entries.items()}


def board(name: str) -> Board:
    """Return the kind of board with this name. Raises OncewayError with the known names."""
    try:
        return catalogue()[name]
    except KeyError:
        raise OncewayError(
            f"no board is called {name!r}", hint=f"Known boards: {', '.join(catalogue())}"
        ) from None


def by_usb(vendor: int | None, product: int | None) -> list[Board]:
    """Return the boards that have these USB ids, the most likely one first; none without ids."""
    if vendor is None or product is None:
        return []
    ids = f"{vendor:04x}:{product:04x}"
    return [entry for entry in catalogue().values() if ids in entry.usb]
