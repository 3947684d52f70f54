"""Sabotages: patches that break a promise of the product, which the rig must notice. Each bench
runs on a patched copy of the tree.

In: `tests/hil/sabotages/NAME.patch`, a unified diff below lines `# key: value`. `claim` is the
promise that the patch breaks, and `benches` are those that guard this promise. Optional keys are
the number of `readings`, the expected `verdict` (fails), the `class` of blind spot (plain), and
`gate: yes` if `make test` runs the sabotage.

Or `NAME.toml` with the same keys, and `package`, `symbol`, `old` and `new`: the text `old` stands
once within that function or constant of the package, in whichever file. So a move of code leaves
the sabotage as it is.

Out: the verdict of a bench on the copy, and its reasons.
"""

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATCHES = Path(__file__).parent / "sabotages"
PACKAGES = ("gateway", "hil", "provisioning", "firmware")
CLASSES = {
    "plain": "a promise is broken, and nothing hides that",
    "label": "a step is taken in another state than its name says",
    "own-word": "what the product says of itself fits what it did wrong",
    "degenerate": "only unusual values are harmed",
    "one-reading": "only some ways to read the data show it",
    "option": "only an option that few benches set shows it",
    "magnitude": "only faults of some sizes show it",
    "average": "one of many is harmed",
    "one-bound": "too much is right, too little is not, or the other way round",
    "stays": "nothing is wrong but what is left behind",
    "short-life": "only a long life shows it",
}
"""Kinds of blind spots that a judge may have."""
RUN_S = 1200.0  # in which a bench must have ended, on a busy machine


@dataclass(frozen=True, slots=True)
class Sabotage:
    """A patch that breaks a promise. claim: the promise of the product, in words. benches: each of
    these benches must notice the patch by itself, on every seed.
    """

    name: str
    claim: str
    benches: tuple[str, ...]
    path: Path
    readings: int | None = None
    """Number of readings of the bench; None: the bench's own number."""
    verdict: str = "fails"
    """Expected verdict. `unknown` is for sabotages after which the rig can prove nothing, such as a
    device that is never let in.
    """
    gate: bool = False
    blind: str = "plain"
    """The blind spot, one of CLASSES."""
    symbol: str = ""
    package: str = ""
    old: str = ""
    new: str = ""

    @property
    def patches(self) -> str:
        """Package and subpackage that the patch changes, such as `gateway/uplink`, or
        `firmware`.
        """
        if self.package:
            return self.package
        file = re.search(r"^\+\+\+ b/(.*)$", self.path.read_text(), re.MULTILINE)
        assert file, self.path
        parts = file[1].split("/")
        return "/".join(parts[:2]) if parts[0] == "gateway" else parts[0]


@dataclass(frozen=True, slots=True)
class Judged:
    """The judgement on one run. verdict: None if the run ended without one. said: the reasons;
    without a verdict, the end of the output.
    """

    verdict: str | None
    said: str


def catalogue() -> dict[str, Sabotage]:
    """Return all sabotages by name. Raises ValueError if keys of one are unknown or missing."""
    paths = sorted([*PATCHES.glob("*.patch"), *PATCHES.glob("*.toml")])
    return {path.stem: _parse(path) for path in paths}


def _parse(path: Path) -> Sabotage:
    if path.suffix == ".toml":
        keys = tomllib.loads(path.read_text())
        needed = {"claim", "benches", "package", "symbol", "old", "new"}
    else:
        lines = path.read_text().splitlines()
        head = [line[2:].partition(": ") for line in lines if line[:2] == "# "]
        keys, needed = {key: value.strip() for key, _, value in head}, {"claim", "benches"}
    unknown = keys.keys() - needed - {"readings", "verdict", "gate", "class"}
    if unknown or not needed <= keys.keys():
        raise ValueError(f"{path}: needs {', '.join(sorted(needed))}, and knows no {unknown}")
    if keys.get("class", "plain") not in CLASSES:
        raise ValueError(f"{path}: no class {keys['class']}; there are {', '.join(CLASSES)}")
    return Sabotage(
        path.stem,
        keys["claim"],
        tuple(keys["benches"].split()),
        path,
        int(keys["readings"]) if "readings" in keys else None,
        keys.get("verdict", "fails"),
        keys.get("gate") == "yes",
        keys.get("class", "plain"),
        *(keys.get(name, "") for name in ("symbol", "package", "old", "new")),
    )


def copy_tree(tree: Path) -> None:
    """Copy everything that a run needs into `tree`, the built firmware included."""
    for package in PACKAGES:
        # with Python's compiled files, except those that are being renamed
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("*.pyc.*"))
    # other tests may be building the sketches, of which a bench needs none
    shutil.copytree(
        ROOT / "build" / "firmware",
        tree / "build" / "firmware",
        ignore=shutil.ignore_patterns("arduino"),
    )


def fit(sabotage: Sabotage, tree: Path, *, dry: bool = False) -> None:
    """Patch a tree. Raises AssertionError if the sabotage does not fit. dry: only check."""
    if sabotage.symbol:
        file, text = edited(sabotage, tree)
        if not dry:
            file.write_text(text)
        return
    options = ["--dry-run"] if dry else []
    done = subprocess.run(
        ["patch", "--strip=1", "--fuzz=0", "--batch", *options, "--directory", tree],
        input=sabotage.path.read_text(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{sabotage.name} does not fit any more: {done.stdout}"


def edited(sabotage: Sabotage, tree: Path) -> tuple[Path, str]:
    """Return the file that defines the symbol with the old text, and the text of the file after the
    replacement.
    """
    found = []
    for file in sorted((tree / sabotage.package).rglob("*")):
        if file.suffix not in (".py", ".c", ".h"):
            continue
        text = file.read_text()
        if sabotage.old not in text:
            continue
        spans = _of_c if file.suffix != ".py" else _of_python
        for begin, end in spans(text, sabotage.symbol):
            if text[begin:end].count(sabotage.old) == 1:
                new = text[begin:end].replace(sabotage.old, sabotage.new)
                found.append((file, text[:begin] + new + text[end:]))
    assert len(found) == 1, (
        f"{sabotage.name} does not fit any more: `{sabotage.symbol}` with the old text in it stands"
        f" {len(found)} times in {sabotage.package}"
    )
    return found[0]


def _of_python(text: str, symbol: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of a function, class or constant of Python (`Class.method`,
    `NAME`), as offsets in the text.
    """
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line.decode()))

    def look(body: list[ast.stmt], outer: str) -> Iterator[tuple[int, int]]:
        for one in body:
            names = []
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names = [one.name]
            elif isinstance(one, ast.Assign | ast.AnnAssign):
                targets = one.targets if isinstance(one, ast.Assign) else [one.target]
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            if symbol in [outer + name for name in names]:
                assert one.end_lineno
                yield starts[one.lineno - 1], starts[one.end_lineno]
            if isinstance(one, ast.ClassDef):
                yield from look(one.body, f"{outer}{one.name}.")

    yield from look(ast.parse(text).body, "")


def _of_c(text: str, symbol: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of a function in C, as offsets in the text. The function's braces
    are in the first column.
    """
    for found in re.finditer(rf"^[^\s#/].*\b{re.escape(symbol)}\(", text, re.MULTILINE):
        end = text.find("\n}\n", found.start())
        if ";" not in text[found.end() : text.find("{", found.end())]:
            yield found.start(), end + 3


def plant(sabotage: Sabotage, tree: Path) -> None:
    """Patch a copy of the tree, and build its firmware if the patch changes it. Raises
    AssertionError if the patch does not fit.
    """
    fit(sabotage, tree)
    if sabotage.package == "firmware" or "\n+++ b/firmware/" in sabotage.path.read_text():
        hexes = [f"../build/firmware/uno/{name}.hex" for name in ("sensor", "sensor-lora")]
        subprocess.run(["make", "-s", "-C", tree / "firmware", *hexes], check=True)


def judge(tree: Path, bench: str, seed: int, folder: Path, readings: int | None) -> Judged:
    """Run a bench on a patched copy of the tree. readings: number of readings; None: as many as the
    bench has.
    """
    argv = [Path(sys.executable).with_name("onceway"), "hil", "run", bench, "--seed", str(seed)]
    argv += ["--readings", str(readings)] if readings else []
    with subprocess.Popen(
        [*argv, "--keep", "--dir", folder],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": f"{tree}:{tree / 'gateway' / 'publisher'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as run:
        try:
            said, _ = run.communicate(timeout=RUN_S)
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGINT)  # the run ends its programs
            run.communicate(timeout=RUN_S)
            raise
    report = folder / "report.json"
    if not report.exists():
        return Judged(None, said[-500:])
    found = json.loads(report.read_text())
    assert (run.returncode == 0) == (found["verdict"] == "holds" and not found["exceeded"])
    return Judged(found["verdict"], "; ".join(found["reasons"]))


def try_out(sabotage: Sabotage, bench: str, seed: int, folder: Path) -> Judged:
    """Run a bench on a patched copy of the tree in `folder`. The copy is then removed."""
    tree = folder / "tree"
    try:
        copy_tree(tree)
        plant(sabotage, tree)
        return judge(tree, bench, seed, folder / "run", sabotage.readings)
    finally:
        shutil.rmtree(tree, ignore_errors=True)
