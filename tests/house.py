"""Figures of the code (size, layers and shape), each with a goal and a limit.

`make lint` runs `python -m tests.house`, which fails if a figure is beyond its limit. The limit is
the best value that the code has reached. A change may lower it, but not raise it. `--json` prints
the figures as JSON.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.walks import WALKS

ROOT = Path(__file__).parents[1]
PRODUCT = ("gateway", "hil", "provisioning")
SITE_WORDS = r"\bsite\b|journey|session_move|passed_on|peer_gateway|forwarder|replica|travell"
LARGEST_CLASS = 30
"""Largest number of methods of a class."""

SHORT_FILE = 70
"""Number of lines below which a file may be too short to stay on its own."""


@dataclass(frozen=True)
class Figure:
    """A figure of the code.

    goal: the value that the design asks for. limit: the largest value that passes; None: a feature
    may need more, and then its changelog entry says how much.
    """

    name: str
    goal: int
    limit: int | None
    count: Callable[[], int]


@cache
def files(*folders: str) -> tuple[Path, ...]:
    """Return the Python files in some folders, sorted, without files that git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    paths = (ROOT / name for name in listed if name.endswith(".py"))
    return tuple(sorted(path for path in paths if path.exists()))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf8"))


def docstring_lines(path: Path) -> set[int]:
    """Return the numbers of all lines of docstrings, including those of attributes."""
    return {
        number
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def lines_of_code(paths: Iterable[Path]) -> int:
    """Count the lines except empty lines, comments and docstrings."""
    return sum(
        1
        for path in paths
        for words in [docstring_lines(path)]
        for number, line in enumerate(path.read_text(encoding="utf8").splitlines(), 1)
        if number not in words and line.strip() and not line.lstrip().startswith("#")
    )


def all_lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text(encoding="utf8").splitlines()) for path in paths)


def lines_that_name_a_site() -> int:
    """Count the lines of the broker that have a word of SITE_WORDS. `neighbours.py` is not
    counted.
    """
    found = subprocess.run(
        ["git", "grep", "-icE", SITE_WORDS, "--", "gateway/broker/*.py", ":!*/neighbours.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.splitlines()
    return sum(int(line.rsplit(":", 1)[1]) for line in found)


def packages_of_the_site() -> int:
    """Count `gateway.site`, and each package of broker, store, runtime and links that
    imports it.
    """
    others = {
        path.relative_to(ROOT).parts[1]
        for path in files("gateway/broker", "gateway/store", "gateway/runtime", "gateway/links")
        if any("gateway.site" in name for name in imports(path))
    }
    return 1 + len(others)


def imports(path: Path) -> set[str]:
    """Return the names that a file imports, also those for type checking only."""
    return {
        name
        for node in ast.walk(tree(path))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [f"{node.module}.{alias.name}" for alias in node.names]
            if isinstance(node, ast.ImportFrom) and node.module
            else []
        )
    }


def imported_by(start: str) -> set[Path]:
    """Return all files of the product that a module imports, directly or indirectly."""
    known = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in files(*PRODUCT)
    }
    found: set[str] = set()
    todo = [start]
    while todo:
        module = todo.pop()
        if module in found:
            continue
        found.add(module)
        wanted = imports(known[module]) | {module}
        names = {part for name in wanted for part in _prefixes(name)}
        todo += [name for name in names if name in known and name not in found]
    return {known[name] for name in found}


def _prefixes(name: str) -> Iterable[str]:
    parts = name.split(".")
    return (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def large_classes() -> list[str]:
    """Return the names of the classes with more than LARGEST_CLASS methods, each with its number of
    methods.
    """
    return [
        f"{node.name} ({methods})"
        for path in files(*PRODUCT)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
        for methods in [sum(isinstance(one, _FUNCTION) for one in node.body)]
        if methods > LARGEST_CLASS
    ]


_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


_RUFF = (sys.executable, "-m", "ruff", "check", "--isolated", "--output-format", "json")
_RUFF += ("--select", "C901", "--config", "lint.mccabe.max-complexity=12")


def tangled_functions() -> int:
    """Count the functions of the product with a cyclomatic complexity above 12 (ruff's C901)."""
    done = subprocess.run(
        [*_RUFF, *PRODUCT],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return len(json.loads(done.stdout))


def short_files(folder: str) -> int:
    return sum(all_lines([path]) < SHORT_FILE for path in files(folder))


def _walks() -> Iterable[Figure]:
    """Yield the figures of the paths of three packets (`tests/walks.py`)."""
    limits = {
        "QoS 2 PUBLISH": ((20, 20), (110, 99), (1, 1)),
        "serial PUBLISH": ((26, 26), (160, 129), (2, 2)),
        "CONNECT elsewhere": ((45, 61), (700, 734), (4, 4)),
    }
    for name, (files_, calls, pairs) in limits.items():
        walk = WALKS[name]
        yield Figure(f"{name}: files", *files_, lambda walk=walk: len(walk().files))
        yield Figure(f"{name}: calls", *calls, lambda walk=walk: len(walk().steps))
        yield Figure(f"{name}: pairs of files", *pairs, lambda walk=walk: len(walk().pairs))


FIGURES = (
    Figure("packages that the site lives in", 1, 1, packages_of_the_site),
    Figure("lines of the broker that name a site", 10, 4, lines_that_name_a_site),
    Figure("broker: files", 42, 35, lambda: len(files("gateway/broker"))),
    Figure("broker: lines", 7_400, 7_400, lambda: all_lines(files("gateway/broker"))),
    Figure("broker: files below 70 lines", 4, 3, lambda: short_files("gateway/broker")),
    Figure("service: files", 12, 12, lambda: len(files("gateway/service"))),
    Figure("service: lines", 2_500, 2_500, lambda: all_lines(files("gateway/service"))),
    Figure("lines of code: product", 53_000, None, lambda: lines_of_code(files(*PRODUCT))),
    Figure("lines of code: tests", 61_000, None, lambda: lines_of_code(files("tests"))),
    Figure("functions with a complexity above 12", 0, 0, tangled_functions),
    Figure("classes with more than 30 methods", 0, 0, lambda: len(large_classes())),
    *_walks(),
    Figure("hil run imports: files", 140, 140, lambda: len(imported_by("hil.run.run"))),
    Figure("hil run imports: lines", 20_000, 20_600, lambda: all_lines(imported_by("hil.run.run"))),
)


def main() -> int:
    values = {figure: figure.count() for figure in FIGURES}
    if "--json" in sys.argv[1:]:
        print(json.dumps({figure.name: value for figure, value in values.items()}, indent=2))
    else:
        print(f"{'':40}{'now':>9}{'limit':>9}{'goal':>9}")
        for figure, value in values.items():
            limit = "" if figure.limit is None else f"{figure.limit:,}"
            words = "  beyond its limit" if beyond(figure, value) else ""
            print(f"{figure.name:40}{value:9,}{limit:>9}{figure.goal:9,}{words}")
    return int(any(beyond(figure, value) for figure, value in values.items()))


def beyond(figure: Figure, value: int) -> bool:
    return figure.limit is not None and value > figure.limit


if __name__ == "__main__":
    sys.exit(main())
