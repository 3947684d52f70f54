"""The table of faults of the card: each row names a test that exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "gateway/docs/card.md"
ROWS = [
    line.split(" | ")
    for line in PAGE.read_text().partition("\n## What grows")[0].splitlines()
    if line.startswith("| ") and not line.startswith("| cause ")
]


def names_in(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")
    }


def test_table_has_its_rows() -> None:
    assert len(ROWS) >= 20
    assert len({row[0] for row in ROWS}) == len(ROWS), "each cause once"


@pytest.mark.parametrize("row", ROWS, ids=[row[0].removeprefix("| ") for row in ROWS])
def test_row_says_all_and_is_shown_by_a_test(row: list[str]) -> None:
    assert len(row) == 4
    assert all(cell.strip("| ") for cell in row)
    found = re.fullmatch(r"`(tests/[\w/]+\.py)::(\w+)` \|", row[-1])
    assert found is not None
    assert found[2] in names_in(ROOT / found[1])


def test_gateway_guide_links_to_the_table() -> None:
    assert "(docs/card.md)" in (ROOT / "gateway/README.md").read_text()
