"""What a program has logged of errors that nobody foresaw: it caught them, or its event loop did,
and went on, perhaps without a part of its work.

In: a log. Out: an event `erred` in the history for each traceback.
"""

import re
from pathlib import Path

from hil.observe.history import History

_TRACEBACK = re.compile(r"^( *)Traceback \(most recent call last\):\n(?:\1 .*\n)*\1(\S.*)$", re.M)


def note_errors(history: History, program: str, log: Path) -> None:
    """A program that has not run has no log."""
    if log.exists():
        for found in _TRACEBACK.finditer(log.read_text(errors="replace")):
            history.add(program, "erred", error=found[2])
