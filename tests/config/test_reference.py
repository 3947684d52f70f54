"""`onceway gateway config --reference` prints every key, with its default or its present value."""

import re
import tomllib

from pydantic import BaseModel

from gateway.config import Config, parse
from gateway.config.reference import as_toml, entries

NEEDED = {
    "certificate": '"/c.pem"',
    "key": '"/k.pem"',
    "port": '"/dev/x"',
    "landing": '"file:///l"',
    "members": '{ gateway = "10.0.0.1:8884" }',
}


def test_the_reference_is_a_file_that_changes_nothing() -> None:
    assert parse(tomllib.loads(as_toml()), "reference") == Config()


def test_defaults_of_the_reference_are_in_force() -> None:
    lines = []
    for line in as_toml().splitlines():
        key, equals, value = line.removeprefix("#").partition(" =")
        if line.startswith("#") and equals and key in NEEDED:
            lines.append(f"{key} = {NEEDED[key]}")
        elif re.match(r"#\w+ = ", line):
            lines.append(f"{key} ={value}")
        elif re.match(r"#?\[\w+\]$", line):  # tables that appear once
            lines.append(line.removeprefix("#"))
        elif re.match(r"#\[", line):
            lines.append("[skipped]" if "[skipped]" not in lines else "")
    found = tomllib.loads("\n".join(_without_skipped(lines)))
    config = parse(found, "reference").model_dump()
    expected = Config().model_dump()
    for name in ("uplink", "web", "page", "mirror", "home_assistant", "site"):
        expected[name] = config[name]
    expected["acl"] = parse({"mirror": {}}, "reference").model_dump()["acl"]
    assert config == expected
    assert config["uplink"]["batch_count"] == 500
    assert config["web"] == {"bind": "127.0.0.1:9464"}


def _without_skipped(lines: list[str]) -> list[str]:
    """Return the lines, but leave out tables that may appear several times."""
    kept, skip = [], False
    for line in lines:
        if line.startswith("["):
            skip = line == "[skipped]"
        elif not line:
            skip = True
        if not skip:
            kept.append(line)
    return kept


def test_every_key_has_its_meaning() -> None:
    shown = {entry.header.strip("[]"): entry for entry in entries()}
    assert shown.keys() == _sections("", Config).keys()
    for name, keys in _sections("", Config).items():
        assert [key.name for key in shown[name].keys] == keys
        assert shown[name].meaning.endswith(".")
        assert all(key.meaning.endswith(".") for key in shown[name].keys)


def _sections(above: str, section: type[BaseModel]) -> dict[str, list[str]]:
    """Return the keys of each table, by the table's name. above: name of the enclosing table, with
    a dot.
    """
    found: dict[str, list[str]] = {}
    for name, field in section.model_fields.items():
        kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                tables = _sections(f"{above}{name}.", kind)
                inner = {key.rpartition(".")[2] for key in tables}
                found[above + name] = [key for key in kind.model_fields if key not in inner]
                found |= tables
    return found
