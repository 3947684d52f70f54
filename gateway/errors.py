"""The base class of all expected errors: each names the failure, its place and the remedy."""

from typing import Any


class OncewayError(Exception):
    """An expected failure. The command line prints it without a traceback and exits with
    `exit_code`.

    text, what: the failure, one sentence without a full stop. where: file, port, key or URL, if
    any. hint: what the reader can do, if known.
    """

    exit_code = 1

    def __init__(self, text: str, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(text)
        self.what = text  # prose: the word of the JSON keys, see the glossary
        self.where = where
        self.hint = hint

    @property
    def lines(self) -> list[str]:
        """Lines for the command line, which prints `error:` before each."""
        return [str(self)]

    @property
    def as_json(self) -> dict[str, Any]:
        """The error as the command line prints it with --json."""
        return {"error": self.what, "where": self.where, "hint": self.hint}

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}. {self.hint}" if self.hint else text


class UsageError(OncewayError):
    """Error: the command line, or a value in it, cannot be used."""

    exit_code = 2


class NotAllowed(OncewayError):
    """Error: this account may not do this, but another account may."""

    exit_code = 6


class Unknown(OncewayError):
    """Error: the session or device that a command names does not exist."""

    exit_code = 5
