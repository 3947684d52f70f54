"""Draw the page of state diagrams, gateway/docs/states.md, from the tables in the code: `python -m
tests.states`. A test compares the page with the tables.
"""

from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from gateway.broker import session
from gateway.links import reliable
from gateway.runtime import session_states
from gateway.site.links import link

PAGE = Path(__file__).parents[1] / "gateway" / "docs" / "states.md"
Table = Mapping[Enum | None, frozenset[Enum]]
TABLES: dict[str, tuple[str, Table]] = {
    "A connection": ("gateway/broker/session.py", session.NEXT),
    "A session": ("gateway/runtime/session_states.py", session_states.NEXT),
    "A link over a line": ("gateway/links/reliable.py", reliable.NEXT),
    "A link between gateways": ("gateway/site/links/link.py", link.NEXT),
}
_HEAD = """# States

Drawn by `python -m tests.states` from tables in the code.
"""


def diagram(table: Table) -> str:
    """Return the state diagram of a table, in Mermaid's notation. It begins in the first state."""
    first = next(iter(table))
    lines = ["stateDiagram-v2"]
    if first is not None:
        lines.append(f"    [*] --> {first.name}")
    for state, following in table.items():
        name = "[*]" if state is None else state.name
        lines += [f"    {name} --> {item.name}" for item in sorted(following, key=_name)]
        if not following:
            lines.append(f"    {name} --> [*]")
    return "\n".join(lines)


def _name(state: Enum) -> str:
    return state.name


def page() -> str:
    parts = [_HEAD]
    for title, (file, table) in TABLES.items():
        source = f"[{Path(file).name}](../{Path(file).relative_to('gateway')})"
        parts.append(f"## {title}\n\n{source}\n\n```mermaid\n{diagram(table)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
