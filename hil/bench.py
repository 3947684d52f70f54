"""A bench: what a run is made of, in one TOML file.

In: a file, or the name of one that ships with the project (hil/benches). Out: a checked `Bench`.
A bad file is refused with key, value and reason.
"""

import tomllib
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gateway.errors import OncewayError


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Faults(Section):
    """How often what is broken. noise: share of the bytes of each line harmed in each direction. *_in_exchange count among board_cuts."""

    noise: float = Field(default=0.0, ge=0, le=0.1)
    board_cuts: int = Field(default=0, ge=0, description="power cuts per board")
    board_cuts_in_exchange: int = Field(default=0, ge=0, description="of these, in the middle of a QoS 2 exchange")
    gateway_kills: int = Field(default=0, ge=0)
    uplink_kills: int = Field(default=0, ge=0)
    landing_outages: int = Field(default=0, ge=0)
    repeated_batches: int = Field(default=0, ge=0, description="landed a second time under another epoch")
    ingest_kills: int = Field(default=0, ge=0, description="in the middle of a micro-batch")

    @model_validator(mode="after")
    def _within(self) -> "Faults":
        if self.board_cuts_in_exchange > self.board_cuts:
            raise ValueError("board_cuts_in_exchange must not exceed board_cuts")
        return self


class Bench(Section):
    """readings: of all boards together. interval_ms: between two samples of a board. stall_s: for how long nothing may move."""

    title: str
    boards: int = Field(default=2, ge=1, le=20)
    readings: int = Field(default=400, ge=1)
    interval_ms: int = Field(default=200, ge=20, le=60_000)
    seed: int = 1
    stall_s: float = Field(default=180, gt=0)
    faults: Faults = Faults()

    @model_validator(mode="after")
    def _enough(self) -> "Bench":
        least = self.boards * (self.faults.board_cuts + 1)
        if self.readings < least:
            raise ValueError(
                f"{self.boards} boards with {self.faults.board_cuts} power cuts each need at least {least} readings, not {self.readings}"
            )
        return self


def shipped() -> dict[str, Traversable]:
    """Benches that come with the project, by name."""
    return {item.name.removesuffix(".toml"): item for item in files("hil").joinpath("benches").iterdir() if item.name.endswith(".toml")}


def load(name: str, **changes: object) -> Bench:
    """A shipped bench by its name, or any by its path; `changes` replace top-level keys. Raises OncewayError."""
    source = shipped().get(name) or Path(name)
    try:
        data = tomllib.loads(source.read_text(encoding="utf-8"))
        return Bench.model_validate({**data, **changes})
    except OSError as error:
        known = ", ".join(sorted(shipped()))
        raise OncewayError(f"cannot read the bench ({error.strerror})", name, f"Benches that come with the project: {known}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OncewayError(f"the bench is not TOML ({error})", name) from error
    except ValidationError as error:
        problems = "; ".join(_problem(item["loc"], item["input"], item["msg"]) for item in error.errors())
        raise OncewayError(problems, name) from error


def _problem(loc: tuple[int | str, ...], value: object, reason: str) -> str:
    reason = reason.removeprefix("Value error, ")
    return f"{'.'.join(map(str, loc))} = {value!r}: {reason}" if loc else reason
