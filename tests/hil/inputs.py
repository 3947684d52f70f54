"""The page of the judge's inputs, hil/INPUTS.md: `python -m tests.hil.inputs` (`make docs`).

In: the source of the rig. Out: for each module that adds events to a history, these events and
their origin, in the words after `In:` in the module's docstring; for each module of the judge, the
events that it reads. A test compares page and source.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from hil.judge.known import EVENTS

ROOT = Path(__file__).parents[2]
RIG = ROOT / "hil"
PAGE = RIG / "INPUTS.md"
WORDS = frozenset().union(*EVENTS.values())
WRITERS = {"add", "tell", "say", "_say", "_tell", "_enter", "emit"}
"""Functions whose calls name an event: in one of the first two arguments, or under the key `event`
of a mapping.
"""
NO_EVENTS = {
    "hil/devices/kept.py": {"sent"},
    "hil/judge/clocks.py": {"received"},
    "hil/judge/columns.py": {"received"},
    "hil/run/campaign.py": {"again"},
}
"""Words in each file that are also names of events, but mean something else."""
PACKETS = {"hil/formats/connection.py": {"pubcomp", "pubrel"}}
"""Events in each file that are named after an MQTT packet. The source does not spell these names
out.
"""
_HEAD = """# Inputs of the judge

Written by `make docs` from the source. The judge reads nothing but a history
([HISTORY.md](HISTORY.md)). Each kind of event has its origin here, in the words of the module that
adds it. What reads packets, files and tables (`air`, `clients`, `devices`, `formats`, `observe`,
`wire`) and the judge itself do not import the product's readers of them, by a contract of
`make lint`. Where each expected value comes from: [VERDICT.md](VERDICT.md).

## Events and their origins

| module | in | events |
| --- | --- | --- |
"""
_JUDGE = """
## Events that the judge reads

| module | events |
| --- | --- |
"""


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the events that a call or a mapping of the source names."""
    named: list[ast.expr] = []
    if isinstance(node, ast.Call):
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        named = node.args[:2] if name in WRITERS else []
    elif isinstance(node, ast.Dict):
        keys = [getattr(key, "value", None) for key in node.keys]
        named = [value for key, value in zip(keys, node.values, strict=True) if key == "event"]
    yield from _words(named)


def _words(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for part in nodes:
        for node in ast.walk(part):
            if isinstance(node, ast.Constant) and node.value in WORDS:
                yield node.value


def written() -> dict[str, set[str]]:
    """Return the events that each module of the rig adds, by the module's path."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in sorted(RIG.rglob("*.py")):
        path = file.relative_to(ROOT).as_posix()
        if path.startswith(("hil/judge/", "hil/report/", "hil/examples/")):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            found[path].update(_names(node))
        found[path] |= PACKETS.get(path, set())
        found[path] -= NO_EVENTS.get(path, set())
    return {path: events for path, events in found.items() if events}


def read() -> dict[str, set[str]]:
    """Return the events that each module of the judge reads, by the module's path."""
    found = {}
    for file in sorted((RIG / "judge").glob("*.py")):
        if file.name == "known.py":
            continue
        path = file.relative_to(ROOT).as_posix()
        nodes = ast.walk(ast.parse(file.read_text()))
        taken = (node for node in nodes if isinstance(node, ast.pattern | ast.Compare))
        if events := set(_words(taken)) - NO_EVENTS.get(path, set()):
            found[path] = events
    return found


def origin(path: str) -> str:
    """Return the `In:` of a module's docstring, or ""."""
    text = ast.get_docstring(ast.parse((ROOT / path).read_text())) or ""
    found = re.search(r"\bIn: (.+?)(?:\.\s+(?:As events|Out|[A-Z])|\.\Z|:\n\n)", text, re.S)
    return " ".join(found[1].split()).replace("|", "or") if found else ""


def page() -> str:
    def listed(events: set[str]) -> str:
        return ", ".join(f"`{event}`" for event in sorted(events))

    origins = [
        f"| `{path}` | {origin(path)} | {listed(events)} |" for path, events in written().items()
    ]
    reads = [f"| `{path}` | {listed(events)} |" for path, events in read().items()]
    return _HEAD + "\n".join(origins) + "\n" + _JUDGE + "\n".join(reads) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
