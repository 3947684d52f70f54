"""Removed members, as this member knows them.

In: statements with the authority's signature, from `onceway site remove` or another member. Out:
whether a certificate is still valid. Of two statements about a name the later one counts, so
members agree, in whatever order they receive the statements. A removal is final: a returning
gateway gets a new certificate, issued later.
"""

import json
import threading
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509

from gateway.site.errors import SiteError
from gateway.site.pki import folder as files
from gateway.site.pki.authority import (
    Membership,
    Removal,
    issued_at,
    name_in,
    removal_from_json,
)

MOST = 256
"""Largest number of names that can be removed in the life of a site."""


class Removed:
    """The removed members in the file `REMOVED` of the site's folder. Commands and the service
    change it, one at a time.
    """

    def __init__(self, folder: Path, membership: Membership) -> None:
        self._folder = folder
        self._membership = membership
        self._known: dict[str, Removal] = {}
        self._news: list[Removal] = []
        self._turn = threading.Lock()
        """Lock of the list, because `save` may run in another thread."""
        remedy = "Restore it from a backup, or copy another member's file"
        self._file = files.WatchedFile(folder / files.REMOVED, remedy)
        self.refresh()

    def covers(self, certificate: x509.Certificate) -> bool:
        found = self._known.get(name_in(certificate))
        return found is not None and issued_at(certificate) <= found.until

    def until(self, name: str) -> int:
        """Return the time of a name's last removal (UTC, seconds), 0 if the name was never removed.
        Certificates of the name are revoked if they were issued up to this time.
        """
        found = self._known.get(name)
        return found.until if found is not None else 0

    def names(self) -> set[str]:
        return set(self._known)

    def to_json(self) -> list[dict[str, str | int]]:
        return [item.to_json() for item in self._known.values()]

    def refresh(self) -> bool:
        """Read the file of removals if it has changed. Return whether it has removals that were not
        known. Raises OncewayError.
        """
        return self._file.read(lambda data: self.heard(read(data)))

    def heard(self, removals: Iterable[Removal]) -> bool:
        """Add removals. Return whether any is new. New ones apply at once, and are on disk after
        `save`. Raises SiteError for a statement that the authority did not sign, and if more than
        MOST names would be removed.
        """
        with self._turn:
            newer = self._newer(removals)
            merged = self._known | newer
            if len(merged) > MOST:
                raise SiteError(f"more than {MOST} names were removed from this site")
            self._known = merged
            self._news += newer.values()
        return bool(newer)

    def news(self) -> list[Removal]:
        """Return removals that are new since the last call."""
        with self._turn:
            news, self._news = self._news, []
        return news

    def save(self) -> None:
        """Write the list of removed members. Blocks for the disk. Raises OncewayError."""
        with files.os_errors_explained(self._folder), files.locked(self._folder):
            self.write()

    def write(self) -> None:
        """Write the list to its file. The caller must hold the lock of the site's folder."""
        self.refresh()
        text = json.dumps(self.to_json(), indent=1)
        files.replace(self._folder / files.REMOVED, text.encode())

    def _newer(self, removals: Iterable[Removal]) -> dict[str, Removal]:
        newer: dict[str, Removal] = {}
        for item in removals:
            known = newer.get(item.name) or self._known.get(item.name)
            if known is not None and known.until >= item.until:
                continue
            if not self._membership.says(item):
                raise SiteError(
                    f"the site's certificate authority did not say that {item.name!r} is removed"
                )
            newer[item.name] = item
        return newer


def read(data: bytes) -> list[Removal]:
    """Return the removals in a file or a message. Raises SiteError."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SiteError("the list of removed members is not JSON") from error
    return from_values(values)


def from_values(values: object) -> list[Removal]:
    """Return removals from JSON values. Raises SiteError."""
    if not isinstance(values, list) or len(values) > MOST:
        raise SiteError("that is not a list of removed members")
    return [removal_from_json(value) for value in values]
