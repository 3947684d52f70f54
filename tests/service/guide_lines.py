"""The command lines of the guides, with the test that runs each line, or the reason why no test
does.

In: all guides. Out: `Line`s. RUN_BY and EXCEPTED are keyed by the beginning of a line. They do not
have lines that `test_guide_commands.py` runs.
"""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = (
    "apt|apt-get|avrdude|bash|cargo|cat|cc|cd|chmod|chown|cp|curl|dd|docker|dpkg|echo|env|export|gcc|git"
    "|gunzip|install|journalctl|kill|ln|ls|make|mkdir|mosquitto|mosquitto_pub|mosquitto_sub|mount|mv"
    "|nano|npm|onceway|pip|pip3|pipx|printf|pytest|python|python3|rm|rsync|runuser|scp|sed|set|sh"
    "|socat|spark-sql|spark-submit|sqlite3|ssh|stty|su|systemctl|systemd-run|systemd-sysusers"
    "|systemd-tmpfiles|tar|tee|touch|udevadm|umount|unzip|useradd|usermod|wget"
)
"""Programs with which a line of shell begins. The path of a program that is built in the tree
counts as well.
"""

INSTALLED = ".setup/try_install.py::_try_release"
ADDED = (
    "tests/service/test_guide_boards.py"
    "::test_a_simulated_board_is_written_and_serves_by_the_lines_of_the_guide"
)
BY_RADIO = (
    "tests/hil/air/test_add.py"
    "::test_a_board_that_is_added_by_cable_is_heard_and_stays_so_under_another_name_and_key"
)
LOGGED = "tests/boards/test_log.py::test_log_lines_and_the_number_of_lost_ones"
UPKEEP = "tests/ingest/test_readme.py::test_one_pass_and_all_upkeep_run_as_they_are_written"
LANDED = "tests/ingest/test_readme.py::test_a_reading_comes_by_each_kind_of_landing_place"
BUILT = "tests/firmware/test_porting.py::test_the_line_that_the_page_gives_builds_a_board"
RIG = "tests/hil/test_guide_lines.py::test_lines_of_the_rig_run_as_written"
RUN_BY = {
    "sudo apt install ./onceway_": ".setup/try_install.py::_follow",
    "apt install --allow-downgrades": INSTALLED,
    "sudo onceway device add roof-1": ".setup/try_install.py::_follow",
    ".venv/bin/onceway device add roof-1 --board": ".setup/try_install.py::_follow",
    ".venv/bin/onceway device add roof-1 --port": ADDED,
    ".venv/bin/onceway device add roof-7": BY_RADIO,
    "build/firmware/sim/simboard": ADDED,
    ".venv/bin/onceway board probe": ADDED,
    ".venv/bin/onceway device update": ADDED,
    ".venv/bin/onceway device command roof-1": (
        "tests/hil/air/test_commands.py::test_boards_on_a_line_and_by_radio_answer_the_command_line"
    ),
    ".venv/bin/onceway device log": LOGGED,
    "onceway device log": LOGGED,
    "make demo": ".setup/try_clone.py::_demo",
    ".venv/bin/onceway gateway run": "tests/test_readme.py::test_the_broker_alone",
    "mosquitto_sub -p 1883 -t '#'": "tests/test_readme.py::test_the_broker_alone",
    "mosquitto_pub -p 1883 -t sensors/": "tests/test_readme.py::test_the_broker_alone",
    "spark-submit": LANDED,
    ".venv/bin/onceway ingest prepare": (
        "tests/ingest/test_class_archive.py::test_a_prepared_ingest_runs_from_the_archive"
    ),
    ".venv/bin/onceway ingest run": UPKEEP,
    ".venv/bin/onceway ingest compact": UPKEEP,
    ".venv/bin/onceway ingest summarise": UPKEEP,
    ".venv/bin/onceway ingest expire": UPKEEP,
    ".venv/bin/onceway ingest release": UPKEEP,
    "onceway ingest clean": UPKEEP,
    "onceway spool land /mnt/card": (
        "tests/uplink/test_rescue.py::test_card_lands_in_a_bucket_by_the_line_of_the_guide"
    ),
    "cc -std=gnu11": BUILT,
    "onceway hil": RIG,
    ".venv/bin/onceway hil": RIG,
}
"""Lines that need hardware, a build, Spark or another machine, and the test that runs them."""

EXCEPTED = {
    "pip install ./gateway/publisher": "a download of packages, into a virtual environment",
    "echo 61.2 | onceway-publish": "needs that installation: tests/publisher runs the command",
    "make deb": "a build of packages: `make try-install` begins with it",
    "make setup": "a download of packages: each target of make begins with it",
    "make firmware": "a build: `make test` begins with it",
    "make -C firmware": "a build: `make test` and `make size` run it",
    "journalctl -u": "needs the journal of systemd",
    ".venv/bin/python -m": "tests and soaks themselves",
}
_FENCE = re.compile(r"```(\w*)")
_SHELL = re.compile(
    r"(?:(?:sudo|[A-Z_]+=\S*) )*"
    rf"(?:(?:\.venv/bin/)?(?:{PROGRAMS})|(?:build|firmware)/[\w/]*simboard)"
    r"(?: [^=]|$)"
)


@dataclass(frozen=True)
class Line:
    """A line of shell in a guide. text: the line and its continuation lines as one line, without a
    comment.
    """

    guide: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.guide}:{self.number}: {self.text}"

    def begins(self, words: dict[str, str]) -> str:
        """Return the value of the longest key in `words` with which this line begins; empty if
        there is none.
        """
        found = [key for key in words if self.text.startswith(key)]
        return words[max(found, key=len)] if found else ""


def guides() -> list[str]:
    listed = ["git", "ls-files", "*.md"]
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
    return [guide for guide in found.stdout.split() if guide != "CHANGELOG.md"]


def lines(guide: str, text: str) -> Iterator[Line]:
    """Yield the lines of shell in indented and fenced code of a guide. text: the guide."""
    fence: str | None = None
    begun: Line | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if found := _FENCE.match(line):
            fence = found[1] if fence is None else None
            continue
        if fence not in ("", "sh", "bash", "console") and not (
            fence is None and line.startswith("    ")
        ):
            continue
        words = re.sub(r"\s+# .*", "", line.strip())
        if begun is not None:
            begun = Line(guide, begun.number, f"{begun.text[:-1]}{words}")
        elif _SHELL.match(words):
            begun = Line(guide, number, words)
        if begun is not None and not begun.text.endswith("\\"):
            yield begun
            begun = None


def all_lines() -> list[Line]:
    return [line for guide in guides() for line in lines(guide, (ROOT / guide).read_text())]
