"""Users who have logged in correctly, each with the address of the login. A file keeps these pairs
over a restart.

In: correct logins. Out: whether a user has logged in from an address before. If so, the user does
not wait because of other users' failures at that address, which may be a proxy's.
"""

import json
import logging
from pathlib import Path

from gateway.system.jobs import Job, SavedFile
from gateway.system.late_file import LateFile

log = logging.getLogger(__name__)

TRUSTED = "trusted-logins.json"
"""Name of the file of correct logins, in the data directory."""
MOST = 4096
LONGEST_USER = 256
_KEEP_S = 5.0
"""Seconds after which a new pair of address and user is written to the file TRUSTED."""


class Trusted:
    """The pairs of address and user whose logins were correct. file: saves the pairs for the next
    start. With a file, create the object while the event loop runs.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._pairs: dict[tuple[str, str], None] = {}
        self._late: LateFile | None = None
        if file is not None:
            saved = SavedFile(file, "the list of correct logins", 0o600)
            self._late = LateFile(saved, lambda: json.dumps(list(self._pairs)), _KEEP_S)
            self._recall(file)

    def __contains__(self, pair: tuple[str, str]) -> bool:
        return pair in self._pairs

    def add(self, address: str, user: str) -> None:
        """Note a correct login. If there are MOST pairs already, the least recent one is dropped. A
        user name of more than LONGEST_USER characters is not noted.
        """
        if len(user) > LONGEST_USER:
            return
        known = (address, user) in self._pairs
        self._pairs.pop((address, user), None)
        if len(self._pairs) >= MOST:
            del self._pairs[next(iter(self._pairs))]
        self._pairs[address, user] = None
        if not known and self._late is not None:
            self._late.changed()

    @property
    def jobs(self) -> list[Job]:
        """The job that writes the file; an empty list without a file."""
        return [] if self._late is None else [self._late.saved.job]

    def close(self) -> None:
        """Write the pairs to `file`, if a file was given and it lacks a pair."""
        if self._late is not None:
            self._late.close()

    def _recall(self, file: Path) -> None:
        try:
            for address, user in json.loads(file.read_text())[-MOST:]:
                self._pairs[str(address), str(user)] = None
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.error("%s: cannot be read (%s): earlier logins are not known", file, error)
