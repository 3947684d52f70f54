"""The tree of commands. Each command has a purpose and an example in its help. Each command that
prints facts also prints them as JSON. A wrong command line ends with exit code 2 and a hint.
"""

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import typer

from gateway.commands import exit_codes
from gateway.commands import main as script

sys.path.insert(0, str(Path(__file__).parents[2] / ".setup"))

import manual

SERVICES = {"gateway run", "uplink run"}
"""Commands that print only their log. With --log-format, the log is JSON."""
SPARK = {f"ingest {name}" for name in ("run", "release", "compact", "summarise", "expire")}
"""Commands that start Spark in their place and print only its log."""
RIG = {"hil run", "hil demo", "hil replay"}
"""Commands that print the progress of a run instead of JSON. `hil report --json` and report.json
have the facts of the run.
"""
WITHOUT_JSON = SERVICES | SPARK | RIG

Run = Callable[..., tuple[int, str, str]]


def leaves(words: list[str], command: Any) -> Iterator[tuple[list[str], Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from leaves([*words, name], inner)
    if not hasattr(command, "commands"):
        yield words, command


def _load(point: Any) -> Any:
    app = point.load()
    script.unwrap(app)
    return app


@cache
def _build(wanted: str | None) -> Any:
    """Return the root command with its groups. wanted: name of the only group to load; None: all
    groups.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(script, "_load", _load)
        return typer.main.get_command(script._build(wanted))


def _tree() -> dict[str, Any]:
    found = {}
    for point in sorted(entry_points(group="onceway.commands")):
        found |= {" ".join(words): command for words, command in leaves([], _build(point.name))}
    return found


TREE = _tree()


def _options(command: Any) -> dict[str, Any]:
    return {text: item for item in command.params for text in item.opts if text.startswith("-")}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a command line in this process and returns its exit code,
    standard output and standard error.
    """
    monkeypatch.setattr(script, "_command", _build)
    monkeypatch.setattr(script.signal, "signal", lambda *_: None)
    monkeypatch.setenv("ONCEWAY_CONFIG", "/nowhere/gateway.toml")

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["onceway", *words])
        code: Any = 0
        try:
            script.main()
        except SystemExit as end:
            code = end.code or 0
        return (code, *capsys.readouterr())

    return run


def test_the_manual_has_each_exit_code() -> None:
    text = manual.pages("1")["onceway.1"]
    for code, cause in exit_codes.MEANINGS.items():
        assert f".TP\n.B {code}\n{manual._plain(cause)}" in text
    for section in ("EXIT STATUS", "JSON", "ENVIRONMENT", "SEE ALSO"):
        assert f".SH {section}\n" in text
    commands = {name for name in TREE if name.split()[0] not in ("hil", "ingest")}
    assert all(f".SS onceway {name}\n" in text for name in commands)


def test_the_tree_is_whole() -> None:
    assert len(TREE) > 80
    assert TREE.keys() >= WITHOUT_JSON


@pytest.mark.parametrize("name", TREE)
def test_help_has_an_example_of_the_command(name: str, run: Run) -> None:
    code, out, _ = run(*name.split(), "--help")
    assert code == 0
    assert "Usage:" in out
    example = " ".join((TREE[name].help or "").partition("Example: ")[2].split())
    assert f"onceway {name}" in example, "such as: Example: onceway …"
    shlex.split(example)


@pytest.mark.parametrize("name", TREE)
def test_help_of_a_command_is_shown_by_help(name: str, run: Run) -> None:
    assert run("help", *name.split()) == run(*name.split(), "--help")


def _groups(words: list[str], command: Any) -> Iterator[tuple[list[str], Any]]:
    if hasattr(command, "commands"):
        yield words, command
        for name, inner in command.commands.items():
            yield from _groups([*words, name], inner)


def test_only_the_terminal_breaks_the_lines_of_help() -> None:
    """In the source, each paragraph of a help text is one line. No help text has a square bracket,
    because rich takes brackets for markup.
    """
    texts = {name: command.help or "" for name, command in TREE.items()}
    for point in [None, *sorted(item.name for item in entry_points(group="onceway.commands"))]:
        for words, group in _groups([], _build(point)):
            texts |= {f"{words} {name}": item.help or "" for name, item in group.commands.items()}
    assert len(texts) > 100
    for name, text in texts.items():
        assert not re.search(r"[^\n]\n[^\n]", text), name
        assert "[" not in text, name
    for name, command in TREE.items():
        assert not any("[" in (getattr(item, "help", None) or "") for item in command.params), name


@pytest.mark.parametrize("width", ["40", "73", "120"])
@pytest.mark.parametrize("words", ["", "device", "spool land", "restore", "device list"])
def test_help_fills_the_width_of_the_terminal(
    words: str, width: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setenv("TERMINAL_WIDTH", width)
    code, out, _ = run(*words.split(), "--help")
    assert code == 0
    assert max(map(len, out.splitlines())) <= int(width)


@pytest.mark.parametrize("name", TREE.keys() - WITHOUT_JSON)
def test_commands_that_print_facts_print_json(name: str) -> None:
    assert "--json" in _options(TREE[name])


@pytest.mark.parametrize("name", TREE)
def test_the_same_option_is_the_same_everywhere(name: str) -> None:
    """The options --config, --data and --json have one default in all commands, and are never
    required.
    """
    options = _options(TREE[name])
    for text, default in (("--config", None), ("--data", None), ("--json", False)):
        if text in options:
            assert options[text].default == default
            assert not options[text].required
    if "--registry" in options:
        assert options["--registry"] is options["--config"]


def test_each_command_about_a_gateway_takes_its_configuration() -> None:
    groups = ("board ", "hil ", "ingest ", "publish", "radio plan")
    without = {name for name in TREE if "--config" not in _options(TREE[name])}
    assert {name for name in without if not name.startswith(groups)} == set()


def _is_argument(item: Any) -> bool:
    return not any(text.startswith("-") for text in item.opts)


def _wrong_uses(name: str) -> Iterator[list[str]]:
    command = TREE[name]
    arguments = [item for item in command.params if _is_argument(item)]
    needed = any(item.required for item in command.params)
    yield ["--no-such-option"]
    if needed:
        yield []
    elif all(item.nargs == 1 for item in arguments):
        yield ["word"] * (len(arguments) + 1)
    for text, item in _options(command).items():
        if item.type_descriptor.annotation in (int, float):
            yield [text, "many"]
            break
    yield from ([text] for text in ("--config", "--data") if text in _options(command))


@pytest.mark.parametrize("name", TREE)
def test_wrong_usage_is_reported(name: str, run: Run) -> None:
    for words in _wrong_uses(name):
        code, out, err = run(*name.split(), *words)
        assert (code, out) == (2, ""), words
        assert err.startswith(f"error: onceway {name}: "), words
        assert err.count("\n") == 1
        assert f"onceway {name} --help" in err
        code, out, err = run(*name.split(), "--json", *words)
        assert (code, out) == (2, ""), words
        told = json.loads(err)
        assert told.keys() == {"error", "where", "hint"}
        assert told["where"] == f"onceway {name}"
        assert f"onceway {name} --help" in told["hint"]


@pytest.mark.parametrize(
    "words", [["nosuch"], ["device", "nosuch"], ["--nosuch"], ["help", "nosuch"]]
)
def test_unknown_command_is_reported(words: list[str], run: Run) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert "nosuch" in err
    code, out, err = run(*words, "--json")
    assert (code, out) == (2, "")
    assert "error" in json.loads(err)


@pytest.mark.parametrize(
    "name", sorted(TREE.keys() - WITHOUT_JSON - {"hil glue", "ingest prepare"})
)
def test_an_error_is_one_json_object(name: str, run: Run, tmp_path: Any) -> None:
    """The commands run with files that do not exist and without a gateway, so most of them fail."""
    needed = [item for item in TREE[name].params if item.required]
    words = []
    for item in needed:
        number = item.type_descriptor.annotation in (int, float)
        value = "1" if number else str(tmp_path / "none")
        words += [value] if _is_argument(item) else [item.opts[0], value]
    code, out, err = run(*name.split(), "--json", *words)
    if code == 0:
        json.loads(out)
        assert not err
    else:
        told = json.loads(err) if err else json.loads(out)
        assert told, "says something"


WRONG = '[gateway]\nname = 5\n[[listener]]\nbind = ":1883"\nnosuch = 1\n'


_MORE = {"backup": ["5m"], "bridge again": ["--all"], "bridge discard": ["--all"]}
"""Arguments that a command needs in addition to the required ones."""
_OTHER_FIRST = {
    *("board probe", "device import", "device read", "gateway config", "registry import"),
    "restore",
}
"""Commands that do not read the configuration first: they read another file or a board before it,
or only print its path.
"""


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, command in TREE.items()
        if "--config" in _options(command) and name not in _OTHER_FIRST
    ],
)
def test_each_mistake_in_a_configuration_is_reported_with_its_line(
    name: str, run: Run, tmp_path: Path
) -> None:
    """Each command that reads the configuration reports its mistakes in the same words."""
    file = tmp_path / "gateway.toml"
    file.write_text(WRONG)
    words = list(_MORE.get(name, []))
    for item in TREE[name].params:
        if item.required:
            value = "1" if item.type_descriptor.annotation in (int, float) else "5m"
            words += [value] if _is_argument(item) else [item.opts[0], value]
    code, out, err = run(*name.split(), *words, "--config", str(file))
    first, second = err.splitlines()
    assert (code, out) == (2, "")
    assert first == f"error: {file}:2: gateway.name = 5: write a text in quotes"
    assert second.startswith(f"error: {file}:5: listener[1].nosuch: there is no such key")
    if name not in WITHOUT_JSON:
        code, out, err = run(*name.split(), *words, "--config", str(file), "--json")
        assert (code, out) == (2, "")
        found = json.loads(err)
        assert [item["line"] for item in found["mistakes"]] == [2, 5]
        assert found["where"] == str(file)


_BY_NAME = sorted(
    name
    for name, command in TREE.items()
    if name.startswith("device ")
    and any(item.name == "name" for item in command.params if _is_argument(item))
)
"""Commands with a device's name as an argument."""
_NEW = {"device add", "device provision", "device admit"}
"""Commands that add a device, so the name need not exist."""
_OF_GATEWAY = {"device expect", "device pause", "device log", "device command", "device ping"}
"""Commands that need a running gateway. `tests/service/test_control.py` tests them."""


@pytest.mark.parametrize("name", [one for one in _BY_NAME if one not in _NEW | _OF_GATEWAY])
def test_unknown_device_has_one_exit_code(name: str, run: Run, tmp_path: Path) -> None:
    registry = tmp_path / "registry.db"
    assert run("device", "admit", "roof-1", "--registry", str(registry))[0] == 0
    words = [
        "nobody" if item.name == "name" else "other"
        for item in TREE[name].params
        if _is_argument(item) and item.required
    ]
    code, _, err = run(*name.split(), *words, "--registry", str(registry), "--json")
    assert (code, "nobody" in json.loads(err)["error"]) == (5, True)
