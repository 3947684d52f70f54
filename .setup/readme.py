"""The commands in README.md, so that trials run exactly that text. In: a heading. Out: its blocks
of indented lines.
"""

from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def lines(heading: str) -> list[str]:
    """Return all indented lines of a section, in order."""
    return [line for block in commands(heading) for line in block]


def commands(heading: str) -> list[list[str]]:
    """Return the blocks of a section, each a list of lines. Raises ValueError if README has no such
    section.
    """
    _, found, rest = README.read_text().partition(f"\n## {heading}\n")
    if not found:
        raise ValueError(f"README.md has no section {heading!r}")
    blocks: list[list[str]] = []
    last = ""
    for line in rest.partition("\n## ")[0].splitlines():
        if line.startswith("    "):
            if not last.startswith("    "):
                blocks.append([])
            blocks[-1].append(line.strip())
        last = line
    return blocks
