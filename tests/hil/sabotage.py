"""Sabotages: the rig must notice a product that breaks a promise. The product has no such switch,
so a bench runs on a copy of the tree that is patched.

In: `tests/hil/sabotages/NAME.patch`, a unified diff below lines `# key: value`: the `claim` that it
breaks, the `benches` that guard this claim, and where they differ from the usual the number of
`readings`, the `verdict` that it must get (fails), and whether `make test` runs it (`gate: yes`).
Out: the verdict of a bench on the copy, and its reasons.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATCHES = Path(__file__).parent / "sabotages"
PACKAGES = ("gateway", "hil", "provisioning", "firmware")
RUN_S = 600.0  # in which a bench must have ended, on a busy machine


@dataclass(frozen=True, slots=True)
class Sabotage:
    """claim: a promise of the product, in words. benches: each alone must notice on every seed."""

    name: str
    claim: str
    benches: tuple[str, ...]
    readings: int | None = None
    """Instead of the bench's."""
    verdict: str = "fails"
    """`unknown` for what nobody can show to be wrong, such as a device that is never let in."""
    gate: bool = False

    @property
    def patch(self) -> Path:
        return PATCHES / f"{self.name}.patch"


@dataclass(frozen=True, slots=True)
class Judged:
    """verdict: None if there was none. said: the reasons, or the end of what was printed."""

    verdict: str | None
    said: str


def catalogue() -> dict[str, Sabotage]:
    """All sabotages by name. Raises ValueError for a patch whose head is not as it should be."""
    return {path.stem: _parse(path) for path in sorted(PATCHES.glob("*.patch"))}


def _parse(path: Path) -> Sabotage:
    head = [line[2:].partition(": ") for line in path.read_text().splitlines() if line[:2] == "# "]
    keys = {key: value.strip() for key, _, value in head}
    unknown = keys.keys() - {"claim", "benches", "readings", "verdict", "gate"}
    if unknown or not {"claim", "benches"} <= keys.keys():
        raise ValueError(f"{path}: needs `# claim: …` and `# benches: …`, and knows no {unknown}")
    return Sabotage(
        path.stem,
        keys["claim"],
        tuple(keys["benches"].split()),
        int(keys["readings"]) if "readings" in keys else None,
        keys.get("verdict", "fails"),
        keys.get("gate") == "yes",
    )


def copy_tree(tree: Path) -> None:
    """A copy of what a run needs, with the firmware as it is built."""
    for package in PACKAGES:
        # with what Python has compiled, but for what it is about to rename
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("*.pyc.*"))
    # other tests may be building the sketches, of which a bench needs none
    shutil.copytree(
        ROOT / "build" / "firmware",
        tree / "build" / "firmware",
        ignore=shutil.ignore_patterns("arduino"),
    )


def fit(sabotage: Sabotage, tree: Path, *options: str) -> None:
    """Patch a tree. Raises AssertionError if the patch does not fit any more."""
    done = subprocess.run(
        ["patch", "--strip=1", "--fuzz=0", "--batch", *options, "--directory", tree],
        input=sabotage.patch.read_text(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{sabotage.name} does not fit any more: {done.stdout}"


def plant(sabotage: Sabotage, tree: Path) -> None:
    """Patch a copy, and build its firmware if that is patched. Raises AssertionError if the patch
    does not fit any more.
    """
    fit(sabotage, tree)
    if "+++ b/firmware/" in sabotage.patch.read_text():
        hexes = [f"../build/firmware/uno/{name}.hex" for name in ("sensor", "sensor-lora")]
        subprocess.run(["make", "-s", "-C", tree / "firmware", *hexes], check=True)


def judge(tree: Path, bench: str, seed: int, folder: Path, readings: int | None) -> Judged:
    """Run a bench on a copy."""
    argv = [Path(sys.executable).with_name("onceway"), "hil", "run", bench, "--seed", str(seed)]
    argv += ["--readings", str(readings)] if readings else []
    done = subprocess.run(
        [*argv, "--keep", "--dir", folder],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
    )
    report = folder / "report.json"
    if not report.exists():
        return Judged(None, (done.stdout + done.stderr)[-500:])
    found = json.loads(report.read_text())
    assert (done.returncode == 0) == (found["verdict"] == "holds" and not found["exceeded"])
    return Judged(found["verdict"], "; ".join(found["reasons"]))


def try_out(sabotage: Sabotage, bench: str, seed: int, folder: Path) -> Judged:
    """A copy of its own in `folder`, sabotaged, under a bench. The copy is removed again."""
    tree = folder / "tree"
    try:
        copy_tree(tree)
        plant(sabotage, tree)
        return judge(tree, bench, seed, folder / "run", sabotage.readings)
    finally:
        shutil.rmtree(tree, ignore_errors=True)
