"""hil/BENCH.md explains each key of a bench, with the model's default. The bench in hil/README.md
is valid.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from hil.bench.bench import Bench
from hil.bench.nemesis import Nemesis
from hil.bench.tables import (
    AirTable,
    BridgeTable,
    ClientTable,
    Commands,
    GatewayTable,
    Limits,
    SubscriberTable,
)

HIL = Path(__file__).parents[3] / "hil"
MODELS: dict[str, type[BaseModel]] = {
    "": Bench,
    "bridge": BridgeTable,
    "commands": Commands,
    "client": ClientTable,
    "subscriber": SubscriberTable,
    "air": AirTable,
    "gateway": GatewayTable,
    "limits": Limits,
    "nemesis": Nemesis,
}
ELSEWHERE = {
    "": {*MODELS, "board", "config", "fault", "options"},
    "commands": {"kind", "drawn", "table"},
}
"""Keys of each table that the guide's example lacks: keys that are tables themselves, and keys that
the rig fills in.
"""

_DEFAULT = re.compile(
    r'the default is ("?[\w.]+)|([\w."]+)(?:, the default| is the default|, which is the default)'
)


def block(guide: str, title: str) -> str:
    """Return the guide's indented block of code that begins with this title."""
    text = (HIL / guide).read_text()
    begin = text.index(f"    {title}")
    lines = []
    for line in text[begin:].splitlines():
        if line and not line.startswith("    "):
            break
        lines.append(line[4:])
    return "\n".join(lines)


def explained() -> dict[tuple[str, str], list[tuple[Any, str]]]:
    """Return, by table and key, each value in the guide's example, with its comment."""
    found: dict[tuple[str, str], list[tuple[Any, str]]] = {}
    table, key = "", ""
    for line in block("BENCH.md", "title =").splitlines():
        code, _, comment = line.partition(" # ")
        if head := re.match(r"\[\[?([a-z.]+)\]", code):
            table, key = head[1], ""
        elif "=" in code:
            ((key, value),) = tomllib.loads(code).items()
            found.setdefault((table, key), []).append((value, comment.strip()))
        elif comment and key:
            value, before = found[table, key][-1]
            found[table, key][-1] = (value, f"{before} {comment.strip()}")
    return found


EXPLAINED = explained()
STATED = [
    (table, key, value, comment)
    for (table, key), every in EXPLAINED.items()
    for value, comment in every
    if "default" in comment
]


@pytest.mark.parametrize("table", MODELS)
def test_each_key_of_a_bench_is_explained_and_no_other(table: str) -> None:
    keys = {key for where, key in EXPLAINED if where == table}
    assert keys == MODELS[table].model_fields.keys() - ELSEWHERE.get(table, set())


@pytest.mark.parametrize(("table", "key", "value", "comment"), STATED)
def test_default_in_the_guide_is_that_of_the_model(
    table: str, key: str, value: object, comment: str
) -> None:
    default = MODELS[table].model_fields[key].default
    if "this is the default" in comment:
        assert value == (list(default) if isinstance(value, list) else default)
    else:
        found = _DEFAULT.search(comment)
        assert found, comment
        assert str(default).removesuffix(".0") == (found[1] or found[2]).strip('".')


def test_the_guides_state_defaults() -> None:
    assert len(STATED) >= 13


def test_bench_of_the_readme_is_one() -> None:
    bench = Bench.model_validate(tomllib.loads(block("README.md", "title =")))
    assert [fault.kind for fault in bench.fault] == ["line-noise", "gateway-kill"]


def test_title_is_the_only_key_that_is_needed() -> None:
    assert Bench(title="one").until == "table"
    with pytest.raises(ValueError, match="title"):
        Bench.model_validate({"boards": 1})
