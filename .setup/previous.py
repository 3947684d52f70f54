"""The Debian packages of the release before this one, for trials of upgrade and rollback.

In: the release's commit. Out: `build/previous/RELEASE/build/onceway_*.deb`, made by the release's
own Makefile and `deb.py`, with the Python packages of this tree's .venv. A package is built once.
After a release, set `RELEASE` and `COMMIT` to it.
"""

import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

from targets import Target

ROOT = Path(__file__).parents[1]
RELEASE, COMMIT = "0.2.0", "440d853fd38c68e2db4d37cf8cb91742f869df0a"

BUILD = """
from deb import Path, Target, build
build({target!r}, Path("{wheel}"))
"""


def package(target: Target) -> Path:
    """Return the package of the last release for this Debian and machine."""
    tree = ROOT / "build/previous" / RELEASE
    made = f"build/onceway_{RELEASE}+deb{target.release}_{target.architecture}.deb"
    if not (tree / made).exists():
        _make(tree, target)
    return tree / made


def _make(tree: Path, target: Target) -> None:
    tree.mkdir(parents=True, exist_ok=True)
    files = subprocess.run(["git", "archive", COMMIT], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "--extract"], cwd=tree, check=True, input=files.stdout)
    make = ["make", "--silent", "--no-print-directory"]
    subprocess.run([*make, "-C", "firmware"], cwd=tree, check=True)
    # the packages that the Makefile would install first are in this tree's .venv
    ready = ["--old-file=setup", "--old-file=firmware", f"BIN={Path(sys.executable).parent}"]
    subprocess.run([*make, *ready, "wheel"], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    wheel = f"build/wheel/onceway-{RELEASE}-py3-none-any.whl"
    subprocess.run(
        [_python(tree), "-c", BUILD.format(target=target, wheel=wheel)],
        cwd=tree,
        check=True,
        env=os.environ | {"PYTHONPATH": f"{tree}:{tree}/.setup:{sysconfig.get_path('purelib')}"},
        stdout=subprocess.DEVNULL,
    )


def _python(tree: Path) -> Path:
    """Create a virtual environment whose command `onceway` runs the code in `tree`. Return its
    Python. The environment also finds the packages of the Python that runs this script. (The
    command `onceway` of the latter would mix the modules of both releases.)
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tree / ".venv"], check=True)
    python, command = tree / ".venv/bin/python", tree / ".venv/bin/onceway"
    scripts = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["onceway"].partition(":")
    command.write_text(f"#!{python}\nfrom {module} import {function}\n\n{function}()\n")
    command.chmod(0o755)
    return python
