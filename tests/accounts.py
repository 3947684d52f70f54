"""Start `onceway` as root under another account. The source tree may be in a home folder that is
closed to other accounts. Root opens folders through which other accounts reach the tree and its
.venv.

In: the numbers of a user and a group. Out: the arguments of `subprocess.Popen`.
"""

import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_TREE, _ENVIRONMENT = (os.open(folder, os.O_PATH) for folder in (ROOT, sys.prefix))


def onceway(*words: str | Path) -> list[str | Path]:
    """Return the command line for `onceway WORDS`."""
    return python("-m", "gateway", *words)


def python(*words: str | Path) -> list[str | Path]:
    return [f"/proc/self/fd/{_ENVIRONMENT}/bin/python", *words]


def under(user: int, group: int) -> dict[str, Any]:
    """Return the arguments of `subprocess.Popen` that run a command under this account."""
    return {
        "executable": os.path.realpath(sys.executable),
        "env": {  # this account may not write the counts of coverage.py
            name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")
        }
        | {"PYTHONPATH": f"/proc/self/fd/{_TREE}"},
        "pass_fds": (_TREE, _ENVIRONMENT),
        "user": user,
        "group": group,
        "extra_groups": [],
    }
