"""What is wrong with a configuration file, each mistake with its line."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from gateway.config.lines import Lines, Place
from gateway.errors import NotAllowed, OncewayError


class Mistake(NamedTuple):
    """One mistake. place: of the value. line: of the file, if it is known."""

    place: Place
    what: str
    line: int | None = None


class ConfigError(OncewayError):
    """The configuration file cannot be used. text: of the file, if the mistakes are known by their
    place.
    """

    exit_code = 2

    def __init__(
        self,
        what: str,
        where: str | None = None,
        hint: str | None = None,
        mistakes: Sequence[Mistake] = (),
    ) -> None:
        super().__init__(what, where, hint)
        self.mistakes = mistakes

    @classmethod
    def of(cls, mistakes: Sequence[Mistake], where: str, text: str = "") -> "ConfigError":
        """Return the error for these mistakes, in the order of the file. text: of the file."""
        lines = Lines(text)
        found = [item._replace(line=item.line or lines.of(item.place)) for item in mistakes]
        found.sort(key=lambda item: item.line or 0)
        return cls("; ".join(item.what for item in found), where, mistakes=found)

    @property
    def lines(self) -> list[str]:
        """One for each mistake."""
        return [
            f"{self.where}: {what}" if line is None else f"{self.where}:{line}: {what}"
            for _, what, line in self.mistakes
        ] or super().lines

    @property
    def as_json(self) -> dict[str, Any]:
        rows = [{"line": item.line, "what": item.what} for item in self.mistakes]
        return super().as_json | ({"mistakes": rows} if rows else {})

    def __str__(self) -> str:
        if any(item.line is not None for item in self.mistakes):
            return "; ".join(self.lines)
        return super().__str__()


class MayNotRead(ConfigError):
    """The configuration file is not for this account."""

    exit_code = NotAllowed.exit_code
