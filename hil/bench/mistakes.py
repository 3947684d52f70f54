"""Mistakes in a bench, explained to its author. In: pydantic's errors, and the text of the bench.
Out: a sentence for each mistake, with its line, key, value, reason, and a suggestion.
"""

import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from hil.faults import KINDS

Location = tuple[int | str, ...]
TABLES = {
    "air": "[air]",
    "board": "[[board]]",
    "bridge": "[bridge]",
    "client": "[[client]]",
    "commands": "[commands]",
    "config": "[config]",
    "fault": "[[fault]]",
    "gateway": "[[gateway]]",
    "limits": "[limits]",
    "nemesis": "[nemesis]",
    "subscriber": "[[subscriber]]",
}
"""Keys of a bench that are tables, in TOML form. A list has double brackets."""
TABLE = re.compile(r"\s*\[+\s*([\w.-]+)\s*\]+")
KEY = re.compile(r"\s*([\w-]+)\s*=")


def explain(
    error: ValidationError, model: type[BaseModel], text: str, elsewhere: Collection[str] = ()
) -> list[str]:
    """Return a sentence for each mistake in a bench, in the order of lines. text: the bench's TOML.
    elsewhere: keys whose values come from another place, such as command-line options.
    """
    found: list[dict[str, Any]] = [
        {**one, "loc": _table_of(one["type"], one["loc"])} for one in error.errors()
    ]
    problems = sorted(found, key=lambda one: line_of(text, one["loc"]) or 0)
    return list(dict.fromkeys(_sentence(one, model, text, elsewhere) for one in problems))


def _table_of(kind: str, loc: Location) -> Location:
    """Return the location of the whole list if one of its entries is not a table, else `loc`."""
    no_table = kind in ("model_type", "model_attributes_type") and len(loc) == 2
    return loc[:1] if no_table and loc[0] in TABLES else loc


def text_of(found: Sequence[str]) -> str:
    """Return the text for mistakes: one mistake as its sentence, several with one line each."""
    if len(found) == 1:
        return found[0]
    return "\n".join([f"the bench has {len(found)} mistakes:", *(f"    {one}" for one in found)])


def _sentence(
    problem: dict[str, Any], model: type[BaseModel], text: str, elsewhere: Collection[str]
) -> str:
    loc: Location = problem["loc"]
    table, key = _named(loc)
    line = None if not loc or loc[0] in elsewhere else line_of(text, loc)
    where = (f"line {line}: " if line else "") + (f"{table}: " if table else "")
    return where + _reason(problem, key, _known(loc, model))


def _named(loc: Location) -> tuple[str, str]:
    """Return the names of the table and the key at a location, for an error text."""
    if loc[:1] == ("fault",) and len(loc) > 1 and isinstance(loc[1], int):
        return " ".join(
            ["[[fault]]", f"number {loc[1] + 1}", *(f"({kind})" for kind in loc[2:3])]
        ), str(loc[3] if len(loc) > 3 else "kind")
    if len(loc) > 1 and isinstance(loc[1], int):
        return f"[[{loc[0]}]] number {loc[1] + 1}", ".".join(map(str, loc[2:]))
    return (
        (f"[{loc[0]}]", ".".join(map(str, loc[1:])))
        if len(loc) > 1
        else ("", ".".join(map(str, loc)))
    )


def _reason(problem: dict[str, Any], key: str, known: Collection[str]) -> str:
    match problem["type"]:
        case "extra_forbidden":
            return f"there is no key {key!r}{meant(key, known)}"
        case "missing":
            return f"{key} is missing"
        case "union_tag_not_found":
            return f'it has no kind, such as kind = "gateway-kill"; {_all(known)}'
        case "union_tag_invalid":
            kind = problem["ctx"]["tag"]
            return f"there is no kind {kind!r}{meant(kind, known) or '; ' + _all(known)}"
        case "list_type" | "model_type" | "model_attributes_type" if key in TABLES:
            brackets = TABLES[key]
            return f"{key} is a table of its own: write a line {brackets}, and its keys below it"
    reason = problem["msg"].removeprefix("Value error, ")
    return (
        f"{key} = {problem['input']!r}: {reason[:1].lower()}{reason[1:]}"
        if key not in ("", "kind")
        else reason
    )


def _all(known: Collection[str]) -> str:
    return f"there are {', '.join(sorted(known))}"


def meant(name: str, known: Collection[str]) -> str:
    """Return a suggestion for an unknown name, or "" if no known name is similar."""
    near = get_close_matches(name, set(known) - {name}, 1)
    return f" (was {near[0]!r} meant?)" if near else ""


def _known(loc: Location, model: type[BaseModel]) -> Collection[str]:
    """Return the valid names at this location: kinds of faults, or keys of the table."""
    if loc[:1] == ("fault",) and len(loc) > 1:
        return KINDS[str(loc[2])].model_fields if len(loc) > 2 else KINDS
    inner = model.model_fields[str(loc[0])].annotation if len(loc) > 1 else None
    for kind in (inner, *get_args(inner)):  # an optional table is a union with None
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind.model_fields
    return model.model_fields


def line_of(text: str, loc: Location) -> int | None:
    """Return the number of the line of a key, or of its table if the key is missing. None for a
    missing key of the top level.
    """
    if loc[:1] == ("config",) and len(loc) > 1:
        return _line_of_setting(text, *map(str, loc[1:3]))
    in_fault = loc[:1] == ("fault",) and len(loc) > 1
    wanted, number = (
        (str(loc[0]), loc[1] if isinstance(loc[1], int) else 0) if len(loc) > 1 else ("", 0)
    )
    key = str(loc[3] if len(loc) > 3 else "kind") if in_fault else str(loc[-1]) if loc else ""
    table, seen, head = "", dict[str, int](), None
    for line, content in enumerate(text.splitlines(), 1):
        if begins := TABLE.match(content):
            table = begins[1]
            seen[table] = seen.get(table, -1) + 1
            if (table, seen[table]) == (wanted, number) or (not wanted and table == key):
                head = line
        elif (
            table == wanted
            and seen.get(table, 0) == number
            and (found := KEY.match(content))
            and found[1] == key
        ):
            return line
    return head


def _line_of_setting(text: str, section: str, setting: str = "") -> int | None:
    """Return the line of a setting in [config.SECTION], else the line of the section, else None."""
    table, head = "", None
    for line, content in enumerate(text.splitlines(), 1):
        key = KEY.match(content)
        if begins := TABLE.match(content):
            table = begins[1]
            head = line if table in ("config", f"config.{section}") else head
        elif key and (table, key[1]) == (f"config.{section}", setting):
            return line
        elif key and (table, key[1]) == ("config", section):
            head = line
    return head
