"""Unexpected errors in a program's log: the program or its event loop caught them and continued,
perhaps without a part of its work. In: a log. Out: an event `erred` in the history for each
traceback.
"""

import re
from pathlib import Path

from hil.observe.history import History

_TRACEBACK = re.compile(r"^( *)Traceback \(most recent call last\):\n(?:\1 .*\n)*\1(\S.*)$", re.M)


def note_errors(history: History, program: str, log: Path) -> None:
    """Record each Python exception in a program's log. Without a log file, record nothing."""
    if log.exists():
        lines = log.read_text(errors="replace")
        plain = lines.replace('"Traceback (', "\nTraceback (").replace("\\n", "\n")  # in JSON logs
        for found in _TRACEBACK.finditer(plain):
            history.add(program, "erred", error=found[2].removesuffix('"}'))
