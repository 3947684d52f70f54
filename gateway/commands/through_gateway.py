"""Commands for the device registry of an account that may not write it, but may command the gateway
(the group onceway-admin): the gateway does them.

In: the words of a command line. Out: what the command prints, and its exit code; None if the
command is for this process. `gateway/service/device_commands.py` is the other end.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from gateway.commands.control_client import NotRunning, Row, follow
from gateway.commands.options import config_file, running_folder
from gateway.errors import NotAllowed, OncewayError

REGISTRY = "registry.db"
_LOOKING = ("list", "pending", "show", "read")
_CHANGING = ("admit", "revoke")
_WRITING = ("add", "provision", "flash", "replace", "rename", "rekey", "update")
VERBS = frozenset((*_LOOKING, *_CHANGING, *_WRITING))
"""Verbs of `onceway device` that need the registry or a port of the gateway's."""
_OURS = ("--registry", "--config", "--help", "-h", "--hex", "--dry-run")
"""Options with which a command is for this process: it names files of its own."""


def through_gateway(words: list[str]) -> int | None:
    """Let the gateway do `onceway device …` if this account may not. Raises OncewayError."""
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
        return os.access(file if file.exists() else folder, os.R_OK | os.W_OK)
    except PermissionError:
        return False


def _print(rows: Iterator[Row]) -> int:
    """Print what the command prints, as it comes. Return its exit code."""
    code = 1
    for row in rows:
        if "code" in row:
            code = int(row["code"])
        elif row:
            stream = sys.stdout if row["to"] == "out" else sys.stderr
            print(row["line"], file=stream, flush=True)
    return code
