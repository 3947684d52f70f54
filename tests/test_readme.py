"""Every command in README.md is run by a test: those for the Pi by `make try-install`, which takes
them from the file, the demo and the ingest by the tests of the rig, the broker here.
"""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / ".setup"))

from readme import README, commands, lines  # noqa: E402

HEADINGS = [line[3:] for line in README.read_text().splitlines() if line.startswith("## ")]


def test_it_is_short_and_plain() -> None:
    text = README.read_text().splitlines()
    assert len(text) <= 150
    assert [line for line in text if len(line) > 100] == []


def test_every_file_that_it_names_is_there() -> None:
    words = README.read_text().replace("`", " ").replace(",", " ").split()
    named = {word.rstrip(".;") for word in words if word.rstrip(".;").endswith(".md")}
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_no_command_names_the_configuration() -> None:
    assert "--config" not in README.read_text()


@pytest.mark.parametrize("heading", HEADINGS)
def test_its_commands_exist_and_take_their_options(heading: str) -> None:
    """The arguments are those of each command; what they do is shown by the tests of its part."""
    for line in lines(heading):
        words = [word for word in shlex.split(line) if word != "sudo"]
        if Path(words[0]).name != "onceway":
            continue
        names = [word for word in words[1:3] if word.isalpha()]
        names = names[:1] if names[:1] == ["where"] else names
        shown = subprocess.run(
            [Path(sys.executable).with_name("onceway"), *names, "--help"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for option in (word for word in words if word.startswith("--")):
            assert option in shown, line


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
    assert out == 'sensors/roof-1/adc0 {"n":"adc0","v":512}\n'
