"""`onceway` under another account, by root. The source tree may be in a home folder that is closed
to other accounts: they reach the tree and its .venv through folders that root has opened.

In: an account's numbers. Out: what `subprocess` takes to start a program there.
"""

import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_TREE, _ENVIRONMENT = (os.open(folder, os.O_PATH) for folder in (ROOT, sys.prefix))


def onceway(*words: str | Path) -> list[str | Path]:
    """Return a command line, as in `onceway gateway run`."""
    return python("-m", "gateway", *words)


def python(*words: str | Path) -> list[str | Path]:
    return [f"/proc/self/fd/{_ENVIRONMENT}/bin/python", *words]


def under(user: int, group: int) -> dict[str, Any]:
    """Return more arguments for `subprocess.Popen`."""
    return {
        "executable": os.path.realpath(sys.executable),
        "env": os.environ | {"PYTHONPATH": f"/proc/self/fd/{_TREE}"},
        "pass_fds": (_TREE, _ENVIRONMENT),
        "user": user,
        "group": group,
        "extra_groups": [],
    }
