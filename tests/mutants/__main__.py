"""`python -m tests.mutants MODULE …`: run the tests of a module against mutants of it.

In: names of modules in MODULES; without a name, all. Out: how many mutants the tests kill, and each
survivor with its place. The exit code is 1 if fewer are killed than the module's goal. The mutants
are tried in a random order (`--seed`) until the `--minutes` of a module are over, so the tried ones
are a fair sample. Each mutant is tried in a copy of the tree, with the tests that MODULES names.
Its process is a fork of this one, which has imported everything outside the tree.
"""

import argparse
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import Phase, settings

from tests.mutants.mutate import Mutant, of_c, of_python

ROOT = Path(__file__).parents[2]
COPIED = ("gateway", "provisioning", "hil", "firmware", "systemd", "tests")
BEFORE_C = "BEFORE=ulimit -t 20;"
"""A limit of 20 s of processor time for each C program."""
SHORTEST_S = 10.0
"""Part of the time limit for the tests of a mutant, in seconds. The other part is four times the
time that the tests take without a mutant.
"""


@dataclass(frozen=True, slots=True)
class Module:
    """A module whose mutants the tests must kill. path: its source file. tests: files and options
    for pytest, or targets for the firmware's make. goal: percentage of mutants to kill. alike:
    changed lines that have the same effect as before, each with the reason; their mutants do not
    count.
    """

    path: str
    tests: tuple[str, ...]
    goal: float = 95.0
    alike: Mapping[str, str] = field(default_factory=dict)


NO_SEQUENCE_0 = "no publication has the sequence 0"
AS_LONG = "all of them are equally long"
ROOM = "room for more than there is changes nothing but the memory that is used"
AT_0 = "SEQUENCE_AT is 0"
MODULES = {
    "gateway.broker.receive_flow": Module(
        "gateway/broker/receive_flow.py",
        (
            "tests/broker/test_receive_flow.py",
            "tests/broker/test_method_b.py",
            "tests/broker/test_marks.py",
        ),
        alike={
            "len(identifiers) >= 1 and len(set(identifiers)) < len(identifiers)": (
                "one identifier is never fewer than one"
            ),
            "self._bits, more = bytearray(2 << 13), tuple(self.received)": (
                "zero bytes at the end are not stored"
            ),
            "self._bits, more = bytearray(1 << 14), tuple(self.received)": (
                "zero bytes at the end are not stored"
            ),
        },
    ),
    "gateway.broker.marks": Module(
        "gateway/broker/marks.py",
        ("tests/broker/test_marks.py",),
        alike={
            "return behind == 0 or (behind >= 0 and bool(self._window >> (behind - 1) & 1))": (
                "the part before has taken 0"
            ),
            "ours, theirs = self._bits(), (window & _ALL) << 1 | (highest >= 0)": NO_SEQUENCE_0,
            "return self._window << 1 | (self.highest >= 0)": NO_SEQUENCE_0,
            "elif -WINDOW <= ahead <= 1:": "the branch before has taken 1",
            "elif ahead <= 0:": "the branch before has taken 0",
            "elif ahead < 1:": "the branch before has taken 0",
        },
    ),
    "gateway.uplink.cutter": Module(
        "gateway/uplink/cutter.py",
        ("tests/uplink/test_cutter.py", "tests/uplink/test_cutting.py"),
        alike={
            "keep = oldest.number if oldest else newest + 2": "no file is both above and below",
            "path, any_of_them = self._folder / DAMAGED, True": "a row waits, as was seen before",
            "return not self._set_damaged_aside() or self._spool.waiting(1)[1] > 0": (
                "a row has a topic, and so a size"
            ),
            "return not self._set_damaged_aside() or self._spool.waiting(2)[0] > 0": (
                "two rows are more than none, too"
            ),
            "self._numbered(self._spool.rows(cut.first - 2, cut.rows, before=cut.last + 1)),": (
                "the row before has landed, and is not in the spool any more"
            ),
            "self._numbered(self._spool.rows(cut.first - 1, cut.rows, before=cut.last + 2)),": (
                "with another row the bytes differ, and with fewer rows they do, too"
            ),
        },
    ),
    "gateway.uplink.lander": Module("gateway/uplink/lander.py", ("tests/uplink/test_lander.py",)),
    "gateway.ingest.dedup.ranges": Module(
        "gateway/ingest/dedup/ranges.py",
        ("tests/ingest/dedup/test_ranges.py", "tests/ingest/dedup/test_taken.py"),
        alike={
            "devices, incarnations = zip(*map(unpack, self.keys), strict=False)"
            " if self.keys else ((), ())": AS_LONG,
            "dict(zip(RANGES.names, (devices, incarnations, self.first, self.last),"
            " strict=False)),": AS_LONG,
            "return zip(map(unpack, self.keys), self.first.tolist(), self.last.tolist(),"
            " strict=False)": AS_LONG,
            "below, first, last = zip(*low, strict=False) if low else ((), (), ())": AS_LONG,
            "return zip(bounds[::2], bounds[1::2], strict=False)": AS_LONG,
            "self._first, self._last = np.full((2, 2), _NONE)"
            "  # always longer than `_places`": ROOM,
            "more = np.full(2 * len(places) + len(self._last), _NONE)": ROOM,
            "more = np.full(3 * len(places) - len(self._last), _NONE)": ROOM,
            "more = np.full(2 + len(places) - len(self._last), _NONE)": ROOM,
            "after = alone & (ranges.first >= self._last[places])": (
                "a range that begins with the last sequence prolongs it, too"
            ),
        },
    ),
    "gateway.payload.senml": Module("gateway/payload/senml.py", ("tests/payload",), 80.0),
    "gateway.mqtt.topics": Module(
        "gateway/mqtt/topics.py", ("tests/mqtt/test_topics.py", "tests/broker/test_access.py"), 80.0
    ),
    "gateway.mqtt.stream": Module("gateway/mqtt/stream.py", ("tests/mqtt/test_stream.py",), 80.0),
    "gateway.mqtt.decode": Module(
        "gateway/mqtt/decode.py",
        tuple(f"tests/mqtt/test_{name}.py" for name in ("examples", "refusals", "round_trip")),
        80.0,
    ),
    "gateway.config.mistakes": Module(
        "gateway/config/mistakes.py", ("tests/config/test_mistakes.py",), 80.0
    ),
    "gateway.mirror.last": Module("gateway/mirror/last.py", ("tests/mirror/test_last.py",), 80.0),
    "gateway.mirror.json_topics": Module(
        "gateway/mirror/json_topics.py", ("tests/mirror/test_mirror.py",), 80.0
    ),
    "gateway.doctor.settings": Module(
        "gateway/doctor/settings.py", ("tests/doctor/test_settings.py",), 80.0
    ),
    "gateway.backup.sealed": Module(
        "gateway/backup/sealed.py",
        ("tests/backup/test_sealed_format.py", "tests/backup/test_sealed.py"),
        80.0,
    ),
    "gateway.web.board_rows": Module(
        "gateway/web/board_rows.py", ("tests/web/test_board_rows.py",), 80.0
    ),
    "gateway.web.overview": Module(
        "gateway/web/overview.py", ("tests/web/test_overview.py",), 80.0
    ),
    "provisioning.registry": Module(
        "provisioning/registry.py",
        ("tests/provisioning/test_registry_rows.py", "tests/provisioning/test_registry.py"),
        80.0,
    ),
    "provisioning.image": Module(
        "provisioning/image.py", ("tests/provisioning/test_image.py",), 80.0
    ),
    "ow_journal.c": Module(
        "firmware/src/ow_journal.c",
        tuple(
            f"test-{name}"
            for name in (
                *("journal", "damage", "damage-memory", "client", "session", "volatile"),
                *("memory", "forgotten", "aside", "aside-memory", "forgotten-memory"),
                *("answers", "answers-unchecked", "calls", "clock", "client-memory", "bounds"),
            )
        ),
        alike={
            "uint8_t *at = to + length, bit = 1;": "`to` has room for one more byte",
            "BOOT_CELLS + ((journal->address + CELL_SIZE) & (CELL_SIZE * CELLS - 2)),"
            " CELL_SIZE);": "cells begin at multiples of four",
            "if (!found || (int16_t)(boot - journal->boot) >= 0) {": "no two cells are equal",
            "for (uint8_t cell = 0; cell <= 2; cell++) {": "the third cell is the first one",
            "for (uint8_t cell = 0; cell < 3; cell++) {": "the third cell is the first one",
            "uint8_t record[HELD_SIZE + 2];": ROOM,
            "uint8_t copy[INCARNATION_SIZE + 2];": ROOM,
            "!(found && (int8_t)(record[0] - journal->held_count) <= 0)) {": "no equal counts",
            "!(found && (int8_t)(record[0] - journal->held_count) < 1)) {": "no equal counts",
            "entry->sequence = ow_get_u32(record - SEQUENCE_AT);": AT_0,
            "ow_put_u32(record - SEQUENCE_AT, sequence);": AT_0,
            "ow_put_u32(record - SEQUENCE_AT, journal->next);": AT_0,
            "(ow_get_u16(record - SEQUENCE_AT + 2) == (uint16_t)journal->next ||": AT_0,
            "for (uint8_t count = 0; count <= CELLS; count++) {": "the fifth cell is the first one",
            "if (journal->newest_done == 0 || (int16_t)(id - journal->newest_done) >= 0) {": (
                "the newest one again changes nothing"
            ),
            "if (first != NOWHERE) {": "the search for the oldest one finds it, only later",
            "return journal->next <= life ? life - journal->next : 0;": "the difference is 0",
        },
    ),
}


@dataclass(slots=True)
class Tried:
    killed: int
    survivors: list[Mutant]
    untried: int

    @property
    def percent(self) -> float:
        return 100 * self.killed / max(1, self.killed + len(self.survivors))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("modules", nargs="*", help="all of them, if none")
    parser.add_argument("--minutes", type=float, default=10.0, help="of each module (default 10)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if unknown := set(arguments.modules) - MODULES.keys():
        parser.error(f"no module {', '.join(sorted(unknown))}; there are {', '.join(MODULES)}")
    low = False
    for name in arguments.modules or MODULES:
        module = MODULES[name]
        tried = try_all(module, arguments.minutes * 60, arguments.seed)
        low |= tried.percent < module.goal
        print(
            f"{name}: {tried.killed} of {tried.killed + len(tried.survivors)} killed"
            f" ({tried.percent:.0f} %, goal {module.goal:g} %), {tried.untried} not tried"
        )
        for one in sorted(tried.survivors, key=lambda one: one.line):
            print(f"  {module.path}:{one.line}: {one.change}: {_line(one)}", flush=True)
    return int(low)


def try_all(module: Module, seconds: float, seed: int) -> Tried:
    text = (ROOT / module.path).read_text()
    mutants = list((of_c if module.path.endswith(".c") else of_python)(text))
    mutants = [mutant for mutant in mutants if _line(mutant) not in module.alike]
    random.Random(seed).shuffle(mutants)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder)
        _copy(tree)
        imported = tree / "imported.txt"
        if not _passes(module, tree, None, imported):
            raise SystemExit(f"the tests of {module.path} fail without a mutant")
        _warm(imported)
        (tree / module.path).write_text(text)  # make compiles only this file again
        began = time.monotonic()
        _passes(module, tree, None)
        limit = SHORTEST_S + 4 * (time.monotonic() - began)
        end = time.monotonic() + seconds
        killed, survivors = 0, []
        for number, mutant in enumerate(mutants):
            if time.monotonic() > end:
                return Tried(killed, survivors, len(mutants) - number)
            (tree / module.path).write_text(mutant.text)
            if _passes(module, tree, limit):
                survivors.append(mutant)
            else:
                killed += 1
    return Tried(killed, survivors, 0)


def _copy(tree: Path) -> None:
    for package in COPIED:
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, tree / package, ignore=skipped)
    shutil.copy(ROOT / "pyproject.toml", tree)
    if (built := ROOT / "build" / "firmware").exists():  # some tests flash this firmware
        (tree / "build").mkdir()
        (tree / "build" / "firmware").symlink_to(built)


def _passes(module: Module, tree: Path, limit: float | None, imported: Path | None = None) -> bool:
    """Return whether all tests of a module pass within `limit` seconds (None: no limit). imported:
    file to which the names of the modules that the tests import are written.
    """
    child = os.fork()
    if not child:
        os.setsid()
        _become(module, tree, imported)
    end = time.monotonic() + (limit or float("inf"))
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            done = os.waitpid(child, 0)
            break
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # processes that the tests have started
    return os.waitstatus_to_exitcode(done[1]) == 0


def _become(module: Module, tree: Path, imported: Path | None) -> NoReturn:
    """Run the tests in this process. It is a fork of a process that has imported everything except
    the tree.
    """
    code = 1
    try:
        os.chdir(tree)
        os.environ |= {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True
        quiet = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(quiet, descriptor)
        if module.path.endswith(".c"):
            make = ["make", "-s", "-C", "firmware", "BUILD=../build", BEFORE_C, *module.tests]
            os.execvp(make[0], make)
        for name in [name for name in sys.modules if _is_ours(name)]:
            del sys.modules[name]
        sys.path[0] = str(tree)
        # one failure is enough, so hypothesis does not search for a smaller example
        phases = [Phase.explicit, Phase.generate]
        settings.register_profile("mutants", settings.get_profile("ci"), phases=phases)
        options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=mutants"]
        code = pytest.main([*options, *module.tests])
        if imported:
            imported.write_text("\n".join(name for name in sys.modules if not _is_ours(name)))
    finally:
        os._exit(code)


def _warm(imported: Path) -> None:
    """Import the modules from outside the tree that the tests need, so that no mutant's run has to
    import them.
    """
    for name in imported.read_text().split() if imported.exists() else ():
        with suppress(Exception):
            importlib.import_module(name)


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in COPIED


def _line(mutant: Mutant) -> str:
    lines: Sequence[str] = mutant.text.splitlines()
    return lines[mutant.line - 1].strip()


if __name__ == "__main__":
    sys.exit(main())
