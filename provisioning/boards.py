"""The board catalogue. In: boards.toml. Out: `Board` by name."""

import tomllib
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, ConfigDict

from gateway.errors import OncewayError


class Board(BaseModel):
    """A kind of board. Sizes and addresses are in bytes of flash; `identity` is the address of the identity page."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    chip: str
    chip_title: str
    programmer: str
    baud: int
    flash: int
    application_end: int
    identity: int
    usb: list[str]


@cache
def catalogue() -> dict[str, Board]:
    """All boards by name."""
    entries = tomllib.loads(files("provisioning").joinpath("boards.toml").read_text())
    return {name: Board(name=name, **entry) for name, entry in entries.items()}


def board(name: str) -> Board:
    """The board of that name, or an OncewayError that lists the known ones."""
    try:
        return catalogue()[name]
    except KeyError:
        raise OncewayError(f"no board is called {name!r}", hint=f"Known boards: {', '.join(catalogue())}") from None


def by_usb(vendor: int | None, product: int | None) -> Board | None:
    """The board that an adapter with these USB ids most likely belongs to, or None."""
    if vendor is None or product is None:
        return None
    ids = f"{vendor:04x}:{product:04x}"
    return next((entry for entry in catalogue().values() if ids in entry.usb), None)
