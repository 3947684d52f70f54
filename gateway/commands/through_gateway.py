"""Registry commands for an account that may command the gateway (the group onceway-admin) but may
not write the registry. The gateway runs the command.

In: the words of a command line. Out: the command's output and its exit code; None if the command
must run in this process. `gateway/service/device_commands.py` is the other side.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from gateway.commands.control_client import NotRunning, Row, follow
from gateway.commands.options import config_file, running_folder
from gateway.errors import NotAllowed, OncewayError
from gateway.system.accounts import may_use

REGISTRY = "registry.db"
_LOOKING = ("list", "pending", "show", "read")
_CHANGING = ("admit", "revoke")
_WRITING = ("add", "provision", "flash", "replace", "rename", "rekey", "update")
VERBS = frozenset((*_LOOKING, *_CHANGING, *_WRITING))
"""Verbs of `onceway device` that need the registry or a port of the gateway."""
_OURS = ("--registry", "--config", "--help", "-h", "--hex", "--dry-run")
"""Options with which a command always runs in this process."""


def through_gateway(words: list[str]) -> int | None:
    """Run `onceway device …` in the gateway if this account may not write the registry. words: the
    words after `onceway`. Return the exit code, or None if the command must run in this process.
    Raises OncewayError.
    """
    if words[:1] != ["device"] or not VERBS & set(words[1:2]) or "ONCEWAY_REGISTRY" in os.environ:
        return None
    if any(word.partition("=")[0] in _OURS for word in words) or config_file() is None:
        return None
    try:
        folder = running_folder(None, None)
        if _may_write(folder):
            return None
        rows = follow(folder, do="device", words=json.dumps(words[1:]))
        return _print(rows)
    except (NotRunning, NotAllowed):
        return None  # the command says who may
    except OncewayError as error:
        if error.exit_code == NotAllowed.exit_code:  # the configuration is not for this account
            return None
        raise


def _may_write(folder: Path) -> bool:
    file = folder / REGISTRY
    try:
        return may_use(file if file.exists() else folder)
    except OSError:
        return False


def _print(rows: Iterator[Row]) -> int:
    """Print the command's output as it arrives. Return its exit code."""
    code = 1
    for row in rows:
        if "code" in row:
            code = int(row["code"])
        elif row:
            stream = sys.stdout if row["to"] == "out" else sys.stderr
            print(row["line"], file=stream, flush=True)
    return code
