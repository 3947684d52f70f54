"""The reference of all configuration keys, for people. In: the source code of the sections. Out: an
`Entry` for each table, or a TOML file that shows each key with its default.
"""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType
from typing import Any, get_args

from pydantic import BaseModel

from gateway.config.sections import Config

_WIDTH = 98
_TOP = """\
# Every key of the configuration file. A line that begins with # and a key shows the default; a key
# without a value has none. Tables in [[ ]] may stand in the file any number of times.
"""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table. default: the default as TOML; empty if there is none. needed: whether the
    key must be given. meaning: its description.
    """

    name: str
    default: str
    needed: bool
    meaning: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One table. header: its first line in a file, such as `[page]` or `[[acl]]`. in_force: whether
    the table has an effect even if the file does not contain it.
    """

    header: str
    in_force: bool
    meaning: str
    keys: list[Key]


def entries() -> Iterator[Entry]:
    """Yield all tables in the order in which `Config` declares them."""
    for name, field in Config.model_fields.items():
        yield from _table(name, field.annotation)


def as_toml() -> str:
    """Return all tables as a TOML file. Each key is a comment with its default, so the file changes
    no setting.
    """
    parts = [_TOP]
    for entry in entries():
        lines = _comment(entry.meaning)
        lines.append(entry.header if entry.in_force else f"#{entry.header}")
        for key in entry.keys:
            lines += _comment(key.meaning + (" Must be given." if key.needed else ""))
            lines.append(f"#{key.name} = {key.default}".rstrip())
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _table(name: str, annotation: Any) -> Iterator[Entry]:
    section = _section(annotation)
    several = getattr(annotation, "__origin__", None) is list
    below, keys = [], []
    meanings = _meanings(section)
    schema = section.model_json_schema()["properties"]
    for key, field in section.model_fields.items():
        if _section(field.annotation) is not None:
            below.append((f"{name}.{key}", field.annotation))
            continue
        default = "" if field.is_required() else _toml(field.get_default())
        meaning = " ".join(filter(None, [meanings[key], _choice(schema[key])]))
        keys.append(Key(key, default, field.is_required(), meaning))
    header = f"[[{name}]]" if several else f"[{name}]"
    always = not several and NoneType not in get_args(annotation)
    yield Entry(header, always, " ".join((section.__doc__ or "").split()), keys)
    for inner, kind in below:
        yield from _table(inner, kind)


def _section(annotation: Any) -> Any:
    """Return the model in an annotation such as `list[ListenerSection]`; None if there is none."""
    kinds = (annotation, *get_args(annotation))
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)


def _meanings(section: type[BaseModel]) -> dict[str, str]:
    """Return the description of each key, by name: the docstring under the key in the code."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(tree, ast.ClassDef)  # noqa: S101 - the source of a class
    found = {}
    for line, text in zip(tree.body, tree.body[1:], strict=False):
        match line, text:
            case ast.AnnAssign(target=ast.Name(key)), ast.Expr(ast.Constant(str(meaning))):
                found[key] = " ".join(meaning.split())
    return found


def _choice(schema: dict[str, Any]) -> str:
    """Return a sentence with the allowed values or the range of a key; empty if the type alone
    limits the values.
    """
    for kind in (schema, *schema.get("anyOf", ())):
        if "enum" in kind:
            *first, last = (json.dumps(word) for word in kind["enum"])
            return f"{', '.join(first)} or {last}."
        if "maximum" in kind:
            if "exclusiveMinimum" in kind:
                return f"More than {kind['exclusiveMinimum']}, at most {kind['maximum']}."
            return f"From {kind.get('minimum')} to {kind['maximum']}."
    return ""


def _toml(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool() | float() | list() | str():
            return json.dumps(value, ensure_ascii=False)
        case int():
            return f"{value:_}" if value >= 10_000 else str(value)
        case dict():
            return "{}"
        case _:
            return json.dumps(str(value))


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")
