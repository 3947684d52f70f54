"""`pip install 'onceway[centre]'` installs every package that the ingest imports."""

import ast
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
BY_URL = {ROOT / "gateway" / "uplink" / "landing" / f"{kind}.py" for kind in ("s3", "sftp")}
"""Modules that the ingest imports only for URLs of their kind. The packages that they need are in
the extras `s3` and `sftp`.
"""


def imported(file: Path) -> Iterator[str]:
    """Yield the names that a file imports. Some are modules, and others are names in modules."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def of_others() -> set[str]:
    """Return the third-party packages that the ingest imports, directly or through modules of
    Onceway.
    """
    waiting, seen, found = set((ROOT / "gateway" / "ingest").rglob("*.py")), set(BY_URL), set()
    while waiting:
        file = waiting.pop()
        seen.add(file)
        for name in imported(file):
            path = ROOT / name.replace(".", "/")
            ours = {path / "__init__.py", path.with_suffix(".py")}
            waiting |= {one for one in ours if one.is_file()} - seen
            found.add(name.partition(".")[0])
    return found - {"gateway"} - set(sys.stdlib_module_names)


def brought(name: str, extra: str) -> set[str]:
    """Return the names of a distribution and of all distributions that it requires. extra: the
    extra with which it is installed.
    """
    waiting, found = [(name, extra)], set()
    while waiting:
        name, extra = waiting.pop()
        found.add(name)
        with suppress(PackageNotFoundError):  # not installed here, because it is for other machines
            for one in map(Requirement, requires(name) or ()):
                if one.marker is None or one.marker.evaluate({"extra": extra}):
                    told = canonicalize_name(one.name)
                    more = [(told, each) for each in {"", *one.extras}] if told not in found else []
                    waiting += more
    return found


def test_the_extra_of_the_centre_brings_what_the_ingest_imports() -> None:
    there, holders = brought("onceway", "centre"), packages_distributions()
    lacking = {
        module
        for module in of_others()
        if there.isdisjoint(map(canonicalize_name, holders[module]))
    }
    assert not lacking


def test_the_guide_names_the_oldest_reader_that_is_taken() -> None:
    bounds = {
        str(Requirement(one).specifier) for one in requires("onceway") or () if "deltalake" in one
    }
    guide = (ROOT / "gateway/ingest/docs/writers.md").read_text()
    assert bounds == {">=" + guide.partition("with deltalake ")[2].partition(" ")[0]}
