"""The table of bounds names tests that exist."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "gateway" / "broker" / "README.md"
LINK = re.compile(r"\[([\w.]+)\]\((\.\./[^)]+)\)")


def test_each_bound_in_the_readme_names_an_existing_test() -> None:
    bounds = README.read_text().partition("## Bounds")[2]
    rows = [line for line in bounds.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    for row in rows:
        links = LINK.findall(row)
        assert links, row
        for name, path in links:
            text = (README.parent / path).read_text()
            assert name == Path(path).name or f"def {name}(" in text, name
