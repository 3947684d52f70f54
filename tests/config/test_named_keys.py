"""Log lines, error texts and alert rules mention only configuration keys that exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from gateway.config import Config

ROOT = Path(__file__).parents[2]


def _model(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a section from an annotation such as `list[Section]` or `Section
    | None`.
    """
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (list, Union, UnionType):
        return next(filter(None, map(_model, get_args(annotation))), None)
    return None


SECTIONS = {
    name: set(model.model_fields)
    for name, field in Config.model_fields.items()
    if (model := _model(field.annotation)) is not None
}
_DOTTED = re.compile(rf"(?<![\w./-])({'|'.join(SECTIONS)})\.([a-z_]+)(?![\w./(-])")
_BRACKETS = re.compile(rf"\[({'|'.join(SECTIONS)})\]{{1,2}} ([a-z]+_[a-z_]+)")


_FILES = {"gateway.toml", "gateway.db", "gateway.lock", "uplink.key", "uplink.env", "uplink.lock"}
_SQL = re.compile(r"\b(SELECT|FROM|WHERE|SET)\b")


def _texts(file: Path) -> Iterator[str]:
    """Yield the strings of a module with at least one space, except docstrings and SQL."""
    tree = ast.parse(file.read_text())
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    for text in (node.value for node in constants if id(node) not in documents):
        if isinstance(text, str) and " " in text and not _SQL.search(text):
            yield text


def _named() -> dict[tuple[str, str], str]:
    found = {}
    files = [file for file in ROOT.glob("gateway/**/*.py") if "config" not in file.parts]
    files += ROOT.glob("provisioning/**/*.py")
    texts = [(file, text) for file in files for text in _texts(file)]
    texts += [(file, file.read_text()) for file in ROOT.glob("gateway/**/*.yml")]
    for file, text in texts:
        for section, key in (*_DOTTED.findall(text), *_BRACKETS.findall(text)):
            is_column = "store" in file.parts and section in ("queue", "spool")
            if not is_column and f"{section}.{key}" not in _FILES:
                found[section, key] = str(file.relative_to(ROOT))
    return found


NAMED = _named()


def test_the_search_finds_the_bounds_of_the_broker() -> None:
    assert {("limits", "memory_bytes"), ("limits", "sessions")} <= NAMED.keys()
    assert len(NAMED) > 20


@pytest.mark.parametrize(("section", "key"), NAMED)
def test_a_named_key_exists(section: str, key: str) -> None:
    assert key in SECTIONS[section], NAMED[section, key]
