"""Explanations of configuration errors: a pydantic finding in; line, key, value and reason out."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from gateway.config.between import Misfit, failed_checks, model_of
from gateway.config.lines import Lines, Place
from gateway.config.sections import Config
from gateway.errors import NotAllowed, OncewayError


class Mistake(NamedTuple):
    """One mistake in a configuration file. place: key path of the value. what: the mistake in
    words. line: its line number in the file, or None.
    """

    place: Place
    what: str  # prose: JSON key
    line: int | None = None


class ConfigError(OncewayError):
    """Error: the configuration file cannot be used. mistakes: the mistakes in it, if the file could
    be read.
    """

    exit_code = 2

    def __init__(
        self,
        text: str,
        where: str | None = None,
        hint: str | None = None,
        mistakes: Sequence[Mistake] = (),
    ) -> None:
        super().__init__(text, where, hint)
        self.mistakes = mistakes

    @classmethod
    def of(cls, mistakes: Sequence[Mistake], where: str, text: str = "") -> "ConfigError":
        """Return one error for all mistakes, in the order of their lines. where: the file's name.
        text: the content of the file, in which missing line numbers are found.
        """
        lines = Lines(text)
        found = [item._replace(line=item.line or lines.of(item.place)) for item in mistakes]
        found.sort(key=lambda item: item.line or 0)
        return cls("; ".join(item.what for item in found), where, mistakes=found)

    @property
    def lines(self) -> list[str]:
        """Lines for the command line, one for each mistake."""
        return [
            f"{self.where}: {text}" if line is None else f"{self.where}:{line}: {text}"
            for _, text, line in self.mistakes
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
    """Error: this account may not read the configuration file."""

    exit_code = NotAllowed.exit_code


def mistakes(values: dict[str, Any], error: ValidationError) -> list[Mistake]:
    """Return the mistakes that pydantic found, and those that the checks between keys found
    (`between.py`). values: the content of the file.
    """
    found: list[Any] = error.errors()
    for place, failed in failed_checks(Config, values, [item["loc"] for item in found]):
        mine = {"type": "value_error", "loc": place, "input": {}, "msg": str(failed)}
        found.append(mine | {"ctx": {"error": failed}})
    places = {explain(item): (*item["loc"], *_within(item)) for item in found}
    return [Mistake(place, text) for text, place in places.items()]


def _within(problem: Any) -> Place:
    """Return the path of the wrong key in its section if one of our checks failed (`Misfit`).
    Return () for any other problem.
    """
    error = problem.get("ctx", {}).get("error")
    return error.place if isinstance(error, Misfit) else ()


def explain(problem: Any) -> str:
    """Return one finding of pydantic as `key = value: reason`."""
    key = "".join(
        f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]
    ).lstrip(".")
    if problem["type"] == "extra_forbidden":
        return f"{key}: there is no such key{_meant(problem['loc'])}"
    if problem["type"] == "missing":
        return f"{key}: is missing"
    if problem["type"] == "path_type":
        return f"{key}{_shown(problem['loc'], problem['input'])}: input should be a path, in quotes"
    reason = _what_to_write(problem) or problem["msg"].removeprefix("Value error, ")
    reason = reason[:1].lower() + reason[1:]
    if key and (
        isinstance(problem["input"], dict)
        or problem["type"] in ("list_type", "model_type", "dict_type")
    ):
        return f"{key}: {reason}"  # a whole table is useless in a sentence
    return f"{key}{_shown(problem['loc'], problem['input'])}: {reason}" if key else reason


def _what_to_write(problem: Any) -> str | None:
    """Return advice for a common mistake, or None."""
    kind, value, name = problem["type"], problem["input"], problem["loc"][-1:]
    if kind == "list_type" and isinstance(value, dict):
        return f"write [[{name[0]}]], in double brackets: there may be several"
    if kind in ("model_type", "dict_type") and isinstance(value, list):
        return f"write [{name[0]}], in single brackets: only one such section is allowed"
    if kind in ("model_type", "dict_type"):
        section = ".".join(part for part in problem["loc"] if isinstance(part, str))
        return f"write the section [{section}], on a line of its own"
    if kind == "list_type":
        return "write a list, in square brackets"
    if kind == "string_type":
        return "write a text in quotes"
    if kind == "int_type" and isinstance(value, str):
        number = _size(value)
        return f"write a number without quotes{f': {number:_}' if number else ''}"
    if kind in ("literal_error", "enum") and str(value).lower() in ("tls", "ssl", "mqtts"):
        return "for TLS write a section [listener.tls] with certificate and key"
    if kind == "bool_type" and isinstance(value, str | int):
        return "write true or false, without quotes"
    return None


def _size(text: str) -> int | None:
    """Return the number of bytes that a text such as `1GB`, `500 kB` or `2GiB` stands for; None for
    any other text.
    """
    found = re.fullmatch(r"([\d._]+)\s*(?:([kMGT])(i)?B?)?", text.strip(), re.IGNORECASE)
    if found is None:
        return None
    step = 1024 if found[3] else 1000
    try:
        return int(float(found[1]) * step ** " kmgt".index((found[2] or " ").lower()))
    except ValueError:
        return None


def _shown(path: tuple[int | str, ...], value: Any) -> str:
    """Return ` = VALUE` for an error message, which may be logged. Return an empty text if the
    value may contain a password: storage options, and URLs with a login. path: the value's key
    path.
    """
    url = str(value)
    return (
        ""
        if path[:2] == ("uplink", "options") or ("://" in url and "@" in url)
        else f" = {value!r}"
    )


def _meant(path: tuple[int | str, ...]) -> str:
    """Return `. Did you mean 'KEY'?` with the known key that is most like an unknown key, or an
    empty text if no key is like it. path: the unknown key's path.
    """
    section: type[BaseModel] = Config
    for name in path[:-1]:
        if isinstance(name, str):
            section = model_of(section.model_fields[name].annotation) or section
    near = get_close_matches(str(path[-1]), section.model_fields, 1)
    return f". Did you mean {near[0]!r}?" if near else ""
