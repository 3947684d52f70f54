"""Make the table of normative statements in gateway/mqtt/STATEMENTS.md from the tests: `python -m
tests.mqtt.statements`.

In: statements.txt in this folder, and every test that cites a statement, by marker or in its text.
`MQTT-x.y.z-n` is a statement of MQTT 5.0, `311:MQTT-x.y.z-n` one of MQTT 3.1.1. A test is a
function `test_…` of a Python file under tests/, or a `static void …(void)` of a C file under
firmware/tests/. Out: the page, with a new table between its two marks.

With --check, the page stays as it is. The exit code is 1 if the page is out of date, or if no test
shows a statement that binds the server. The output lists such statements.
"""

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "gateway" / "mqtt" / "STATEMENTS.md"
BEGIN, END = "<!-- statements: begin -->", "<!-- statements: end -->"
STANDARDS = {"5.0": "MQTT-", "3.1.1": "311:MQTT-"}
SHOWN_TESTS = 3

_CITATION = re.compile(r"(?:311:)?MQTT-\d+(?:\.\d+){2}-\d+")
_C_TEST = re.compile(r"^static void (\w+)\(void\)", re.MULTILINE)


@dataclass(frozen=True)
class Statement:
    """A normative statement. who: the side that it binds (server, client or both). exempt: why it
    does not apply to Onceway; empty if it applies.
    """

    standard: str
    number: str
    who: str
    text: str
    exempt: str

    @property
    def citation(self) -> str:
        """The citation in tests, for example `311:MQTT-3.1.0-1`."""
        return STANDARDS[self.standard] + self.number


@dataclass(frozen=True)
class Test:
    path: Path
    name: str

    def __str__(self) -> str:
        return f"[{self.name}](../../{self.path})"


def load() -> list[Statement]:
    """Return all statements, in the order of statements.txt."""
    lines = (ROOT / "tests" / "mqtt" / "statements.txt").read_text().splitlines()
    return [
        Statement(*(field.strip() for field in line.split("|")))
        for line in lines
        if line and not line.startswith("#")
    ]


def _python_tests(source: str) -> Iterator[tuple[str, str]]:
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test_"
        ):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield node.name, "\n".join(lines[first - 1 : node.end_lineno])


def _c_tests(source: str) -> Iterator[tuple[str, str]]:
    pieces = _C_TEST.split(source)
    for before, name, body in zip(pieces[0::2], pieces[1::2], pieces[2::2], strict=False):
        comment = before.rpartition("\n}\n")[2]
        yield name, comment + body.partition("\n}\n")[0]


def find_tests(root: Path = ROOT) -> dict[str, list[Test]]:
    """Return the tests that cite a statement, by citation."""
    found: dict[str, list[Test]] = defaultdict(list)
    for folder, pattern, split in (
        ("tests", "test_*.py", _python_tests),
        ("firmware/tests", "test_*.c", _c_tests),
    ):
        for path in sorted((root / folder).rglob(pattern)):
            for name, text in split(path.read_text()):
                for citation in sorted(set(_CITATION.findall(text))):
                    found[citation].append(Test(path.relative_to(root), name))
    return found


def unshown(statements: list[Statement], tests: dict[str, list[Test]]) -> list[Statement]:
    """Return the statements that apply and bind the server, but that no test shows."""
    return [
        item
        for item in statements
        if item.who != "client" and not item.exempt and not tests.get(item.citation)
    ]


def _evidence(statement: Statement, tests: list[Test]) -> str:
    if tests:
        more = f" and {len(tests) - SHOWN_TESTS} more" if len(tests) > SHOWN_TESTS else ""
        return ", ".join(map(str, tests[:SHOWN_TESTS])) + more
    if statement.exempt:
        return f"does not apply: {statement.exempt}"
    return "a client's duty" if statement.who == "client" else "**no test yet**"


def table(statements: list[Statement], tests: dict[str, list[Test]]) -> str:
    """Return the table for the page, in Markdown."""
    parts = []
    for standard in STANDARDS:
        chosen = [item for item in statements if item.standard == standard]
        binding = [item for item in chosen if item.who != "client"]
        open_ones, exempt = unshown(binding, tests), [item for item in binding if item.exempt]
        shown = len(binding) - len(open_ones) - len(exempt)
        parts += [
            f"## MQTT {standard}",
            "",
            (
                f"{len(chosen)} statements, {len(binding)} of them bind a server: {shown} shown by"
                f" tests, {len(exempt)} do not apply, {len(open_ones)} not shown yet."
            ),
            "",
            "| statement | binds | demands | shown by |",
            "|---|---|---|---|",
            *(
                f"| {item.number} | {item.who} | {item.text} |"
                f" {_evidence(item, tests.get(item.citation, []))} |"
                for item in chosen
            ),
            "",
        ]
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 when something is missing"
    )
    check = parser.parse_args().check
    statements, tests = load(), find_tests()
    old = PAGE.read_text()
    before, _, rest = old.partition(BEGIN)
    new = f"{before}{BEGIN}\n\n{table(statements, tests)}\n{END}{rest.partition(END)[2]}"
    missing = unshown(statements, tests)
    if not check:
        PAGE.write_text(new)
        print(
            f"{PAGE.relative_to(ROOT)}: {len(statements)} statements, {len(missing)} that bind"
            " the server are not shown yet"
        )
        return 0
    for item in missing:
        print(f"no test shows {item.citation}: {item.text}")
    if new != old:
        print(f"{PAGE.relative_to(ROOT)} is out of date. Run: python -m tests.mqtt.statements")
    return 1 if missing or new != old else 0


if __name__ == "__main__":
    sys.exit(main())
