"""A test runs every command in README.md. `make try-install` takes those for the Pi and for Home
Assistant from the file. Tests of the rig run the demo and the ingest, and tests in this file the
broker. Also, everything exists that the guides name.
"""

import re
import shlex
import subprocess
import sys
from importlib.metadata import entry_points
from itertools import takewhile
from pathlib import Path

import pytest
import typer

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / ".setup"))

from manual import leaves  # noqa: E402
from readme import README, commands, lines  # noqa: E402

GUIDES = [
    README,
    *(
        path
        for folder in ("gateway", "provisioning", "firmware", "hil", "systemd")
        for path in sorted((ROOT / folder).rglob("*.md"))
    ),
]
COMMAND = re.compile(r"(?:^    |`)(?:sudo )?(?:\.venv/bin/)?onceway ([^`\n]+)", re.MULTILINE)
HEADINGS = [line[3:] for line in README.read_text().splitlines() if line.startswith("## ")]


def test_readme_is_short_and_plain() -> None:
    text = README.read_text().splitlines()
    assert len(text) <= 150
    assert [line for line in text if len(line) > 100] == []


def test_readme_files_are_read_and_not_searched() -> None:
    """README files are short enough to be read from beginning to end. Details for developers have
    pages of their own.
    """
    listed = subprocess.run(
        ("git", "ls-files", "*README.md"), cwd=ROOT, capture_output=True, text=True, check=True
    )
    lengths = {one: len((ROOT / one).read_text().splitlines()) for one in listed.stdout.split()}
    assert {one: length for one, length in lengths.items() if length > 250} == {}
    assert sum(lengths.values()) <= 2800


def test_every_named_file_exists() -> None:
    named = set(re.findall(r"[\w./-]+\.md\b", README.read_text()))
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_no_command_names_the_configuration() -> None:
    assert "--config" not in README.read_text()


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    """Return the options of each command, by its name."""
    found = {}
    for point in entry_points(group="onceway.commands"):
        for words, command in leaves(point.name, typer.main.get_command(point.load())):
            options = [option for item in command.params for option in item.opts]
            found[words] = {*options, "--help"}
    return found


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_of_the_readme_exist_with_their_options(
    guide: Path, known: dict[str, set[str]]
) -> None:
    """The test reads every guide. Other tests show that the commands work."""
    for line in COMMAND.findall(guide.read_text()):
        words = line.partition(" # ")[0].partition("|")[0].split()
        names = list(takewhile(lambda word: re.fullmatch("[a-z][a-z-]*", word), words))
        command = next(
            (name for end in (3, 2, 1) if (name := " ".join(names[:end])) in known), None
        )
        if command is None:
            group = " ".join(names)  # `onceway device …` stands for all commands of a group
            assert set(words[len(names) :]) <= {"…", "--help"}, line
            assert any(name.startswith(group) for name in known), line
            continue
        options = {word.partition("=")[0] for word in words if word.startswith("--")} - {"--"}
        assert options <= known[command], line


def test_make_has_the_targets() -> None:
    for heading in HEADINGS:
        for line in lines(heading):
            if line.startswith("make "):
                subprocess.run(
                    ["make", "--dry-run", *shlex.split(line)[1:]],
                    cwd=ROOT,
                    check=True,
                    capture_output=True,
                )


def test_the_broker_alone(tmp_path: Path) -> None:
    ((run, subscribe, publish),) = commands("Try the broker alone")
    run = run.replace(".venv/bin/onceway", str(Path(sys.executable).with_name("onceway")))
    run = run.replace("/tmp/onceway", str(tmp_path / "data")).replace(":1883", ":0")
    with subprocess.Popen(shlex.split(run), stderr=subprocess.PIPE, text=True) as gateway:
        assert gateway.stderr is not None
        said = next(line for line in gateway.stderr if "listening on" in line)
        port = said.strip().rpartition(":")[2]
        listen = subprocess.Popen(
            [*shlex.split(subscribe.replace("1883", port)), "-C", "1"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            subprocess.run([*shlex.split(publish.replace("1883", port)), "-r"], check=True)
            out, _ = listen.communicate(timeout=30)
        finally:
            listen.kill()
            gateway.terminate()
    assert out == 'sensors/roof-1/adc0 [{"n":"adc0","v":512}]\n'


def test_every_path_in_the_contributing_guide_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert len(text.splitlines()) <= 120
    paths = re.findall(r"(?<![\w/])(?:gateway|firmware|hil|provisioning|tests)/[\w/.-]*\w", text)
    assert len(paths) > 30
    paths.remove("tests/ingest/FOLDER")
    assert [path for path in paths if not (ROOT / path).exists()] == []


GUIDES = subprocess.run(
    ("git", "ls-files", "*.md"), cwd=ROOT, capture_output=True, text=True, check=True
).stdout.split()
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("guide", GUIDES)
def test_each_link_of_a_guide_leads_to_a_file(guide: str) -> None:
    links = {link for link in _LINK.findall((ROOT / guide).read_text()) if ":" not in link}
    missing = sorted(link for link in links if not (ROOT / guide).parent.joinpath(link).exists())
    assert missing == []
