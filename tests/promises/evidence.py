"""Evidence for a promise, in one of these forms:

- `tests/uplink/test_pace.py::test_window`: a test that pytest collects, a C test under
firmware/tests, or a step of `make try-install` (`.setup/try_install.py::name`).
- `gateway/uplink/cutter.py:WAIT_S = two minutes`: a constant, and its value as the guide has it.
`Class.key` names the default of a configuration key. In a C header, it is a `#define`.
- `measured: wear: bytes per reading, 10 boards = 6.6 kB`: the last saved figure of a benchmark
(`tests/benchmarks/last.json`), and the rounded figure as the guide has it.
- `none: REASON`: the sentence promises nothing about Onceway. REASON says why.
"""

import ast
import importlib
import json
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.promises.guide import FIGURE, UNITS, value_of

SCALES = {"_MS": 0.001, "_MINUTES": 60, "_HOURS": 3600, "_DAYS": 86_400, "_KB": 1000}
"""Units of constants, by the end of their names. Other constants are in seconds, bytes or
counts.
"""

_TEST = re.compile(r"(?P<file>[\w./-]+\.(?:py|c))::(?P<name>[\w:]+)")
CONSTANT = re.compile(r"(?P<file>[\w./-]+\.(?:py|h|c)):(?P<name>[\w.]+) = (?P<figure>.+)")
MEASURED = re.compile(r"measured: (?P<name>.+) = (?P<figure>.+)")
_PREFIXES = {"ms": 1e-3, "µs": 1e-6, "µs/msg": 1e-6, "kB": 1e3, "MB": 1e6, "%": 0.01}
"""Factor of each unit of measured figures. Other figures are already in seconds, bytes, counts or
fractions of one.
"""
_REASON = re.compile(r"none: \w.+")
_C_TEST = re.compile(r"^static void (\w+)\(void\)", re.MULTILINE)
_DEFINE = re.compile(r"^\s*#\s*define\s+(\w+)\s+\(?(\d+)", re.MULTILINE)


def fault(evidence: str, sentence: str, root: Path) -> str:
    """Return why the evidence does not hold for the sentence; empty if it does."""
    if found := _TEST.fullmatch(evidence):
        file = root / found["file"]
        if not file.is_file():
            return f"{found['file']} is not there"
        return "" if found["name"] in tests_of(file) else f"pytest collects no {evidence}"
    if found := CONSTANT.fullmatch(evidence):
        if found["figure"] not in sentence:
            return f"the sentence does not say {found['figure']!r}"
        try:
            said, real = value_of(found["figure"]), constant(root / found["file"], found["name"])
        except (AttributeError, KeyError, ImportError, ValueError, OSError, TypeError) as error:
            return f"{evidence}: {type(error).__name__}: {error}"
        if any(math.isclose(said * factor, real) for factor in factors(found["figure"])):
            return ""
        return f"the guide says {found['figure']}, {found['name']} is {real:g}"
    if found := MEASURED.fullmatch(evidence):
        if found["figure"] not in sentence:
            return f"the sentence does not say {found['figure']!r}"
        try:
            now = rounded(found["figure"], measured(root, found["name"]))
        except (KeyError, ValueError, OSError) as error:
            return f"{evidence}: {type(error).__name__}: {error}"
        return "" if now == found["figure"] else f"{found['figure']} is {now} now: make docs"
    return "" if _REASON.fullmatch(evidence) else f"{evidence!r} names no test and no constant"


def factors(figure: str) -> tuple[float, ...]:
    """Return a factor for each possible meaning of a unit: 1, and for example 1.024² for MB,
    because memory is counted in KiB.
    """
    powers = {"KB": 1, "MB": 2, "GB": 3}
    power = next((power for unit, power in powers.items() if unit in figure), 0)
    return (1.0, 1.024**power)


def measured(root: Path, name: str) -> float:
    """Return a figure of `tests/benchmarks/last.json` in seconds, bytes, counts or fractions of
    one. A name that begins with `peer of` stands for the figure of the compared program.
    """
    every = json.loads((root / "tests/benchmarks/last.json").read_text())
    kept = every[name.removeprefix("peer of ")]
    value = kept["peer" if name.startswith("peer of ") else "value"]
    return float(value) * _PREFIXES.get(kept["unit"].partition(" ")[0], 1)


def rounded(figure: str, real: float) -> str:
    """Return a value in the unit of `figure`, rounded to as many digits as `figure` has."""
    found = FIGURE.fullmatch(figure)
    if found is None or not found[1]:
        raise ValueError(f"{figure!r} is not a figure")
    digits = len(found[1].replace(",", "").replace(".", "", 1).strip("0"))
    number = float(f"{real / UNITS.get(found[2] or '', 1):.{max(2, digits)}g}")
    said = float(found[1].replace(",", ""))
    text = found[1] if math.isclose(number, said) else f"{number:,.10g}"
    return figure.replace(found[1], text, 1)


@cache
def tests_of(file: Path) -> frozenset[str]:
    """Return the names of the tests in a file, as `name` or `Class::name`."""
    text = file.read_text(encoding="utf8")
    if file.suffix == ".c":
        return frozenset(name for name in _C_TEST.findall(text) if text.count(name) > 1)
    steps = file.name.startswith("try_")
    if not (steps or file.name.startswith("test_")):
        return frozenset()
    return frozenset(_functions(ast.parse(text).body, "", steps=steps))


def _functions(body: list[ast.stmt], above: str, *, steps: bool) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _functions(node.body, f"{above}{node.name}::", steps=steps)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
            steps or node.name.startswith("test_")
        ):
            yield above + node.name
        elif isinstance(node, ast.Assign):  # test of a state machine: `test_x = Machine.TestCase`
            yield from (
                one.id
                for one in node.targets
                if isinstance(one, ast.Name) and one.id.startswith("test_")
            )


def constant(file: Path, name: str) -> float:
    """Return the value of a constant of a Python file, or of a `#define` of a C file. A name that
    ends with a unit of SCALES is converted to seconds, bytes or counts.
    """
    if file.name.startswith("test_") or ".setup" in file.parts:
        value: Any = _literal(file, name)
    elif file.suffix == ".py":
        parts = file.with_suffix("").parts
        start = max(index for index, part in enumerate(parts) if part in _PACKAGES)
        value = importlib.import_module(".".join(parts[start:]).removesuffix(".__init__"))
        for part in name.split("."):
            fields = getattr(value, "model_fields", {})
            value = fields[part].default if part in fields else getattr(value, part)
        if hasattr(value, "total_seconds"):
            value = value.total_seconds()
    else:
        value = int(dict(_DEFINE.findall(file.read_text(encoding="utf8")))[name])
    return float(value) * next((SCALES[end] for end in SCALES if name.endswith(end)), 1)


def _literal(file: Path, name: str) -> object:
    """Return the value of a constant. The file is parsed, not imported."""
    for node in ast.parse(file.read_text(encoding="utf8")).body:
        if isinstance(node, ast.Assign):
            names, values = _parts(node.targets[0]), _parts(node.value)
            for one, value in zip(names, values, strict=False):
                if isinstance(one, ast.Name) and one.id == name:
                    return ast.literal_eval(value)
    raise KeyError(name)


def _parts(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


_PACKAGES = ("gateway", "provisioning", "hil")
