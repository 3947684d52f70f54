"""Users who have logged in correctly, each with the address, over a restart.

In: correct logins. Out: whether this user has logged in from this address before. At that address,
for example a proxy's, the user does not wait because of other users' failures.
"""

import asyncio
import json
import logging
import os
import threading
from pathlib import Path

log = logging.getLogger(__name__)

TRUSTED = "trusted-logins.json"
"""Name of the file in the data directory."""
MOST = 4096
LONGEST_USER = 256
_WRITES = threading.Lock()
_KEEP_S = 5.0
"""Seconds between a new pair and the next write of the file."""


class Trusted:
    """Pairs of address and user. file: keeps them over a restart. Created inside the running loop
    if a file is given.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._pairs: dict[tuple[str, str], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        if file is not None:
            self._recall(file)

    def __contains__(self, pair: tuple[str, str]) -> bool:
        return pair in self._pairs

    def add(self, address: str, user: str) -> None:
        """Note a correct password."""
        if len(user) > LONGEST_USER:
            return
        known = (address, user) in self._pairs
        self._pairs.pop((address, user), None)
        if len(self._pairs) >= MOST:
            del self._pairs[next(iter(self._pairs))]
        self._pairs[address, user] = None
        if not known and self._file is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_KEEP_S, self._keep_later)

    def close(self) -> None:
        """Write the file if pairs are not in it yet."""
        if self._timer is not None and self._file is not None:
            self._timer.cancel()
            self._timer = None
            _keep(self._file, list(self._pairs))

    def _keep_later(self) -> None:
        """Write the file on another thread, because the disk may be slow."""
        self._timer = None
        if self._file is not None:
            loop = asyncio.get_running_loop()
            loop.run_in_executor(None, _keep, self._file, list(self._pairs))

    def _recall(self, file: Path) -> None:
        try:
            for address, user in json.loads(file.read_text())[-MOST:]:
                self._pairs[str(address), str(user)] = None
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.error("%s: cannot be read (%s): no login is known from before", file, error)


def _keep(file: Path, pairs: list[tuple[str, str]]) -> None:
    new = file.with_suffix(".new")
    try:
        with _WRITES, open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            out.write(json.dumps(pairs))
            out.flush()
            os.replace(new, file)
    except OSError as error:
        log.error("%s: cannot keep who has logged in (%s)", file, error.strerror)
