"""Landing places made of files: a file is written under a hidden name, then gets its final name in
the way that was proven for the place (`proof.py`).

If a rename or a hard link onto an existing name fails, that failure decides between two gateways
with one name. If a rename replaces an existing file, a claim decides: a file or folder
LANDING/GATEWAY/EPOCH/.claims/NAME whose second creation fails. The gateway that creates the claim
checks that the final name is free, renames, and removes the claim. Three rules keep this safe at
every interruption:

- The hidden file exists before the claim, and the rename makes it the final file. So each gateway
  that may still rename has a hidden file, and its name contains the hash of its bytes.
- A gateway that finds a claim lists the hidden files under the name. If all of them have the hash
  of its own bytes, the gateway continues. The claim is then its own, left over from an
  interruption, or the gateway that made the claim can never rename any more. Two gateways with the
  same bytes need not be distinguished. Otherwise the name counts as in use (`Claimed`).
- A claim is removed only if the final file exists.
"""

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gateway.uplink.landing import proof, tidying
from gateway.uplink.landing.base import Claimed, Landing, Way, error_text
from gateway.uplink.landing.proof import refuses
from gateway.uplink.manifest import INCOMING, set_aside_name


class FileLanding(Landing, proof.Files):
    """Base class of landing places made of files. A subclass implements the operations of
    `proof.Files`.

    sets_aside: whether the place may be unable to replace a file atomically. If so, the existing
    file is renamed before the new one takes its name. If this is interrupted, the existing file
    keeps that other name, and is read under it (`set_aside_name`).
    """

    sets_aside = True

    def __init__(self, url: str, shared: bool = True) -> None:
        super().__init__(url, shared)
        self._token = secrets.token_hex(4)

    def _find_way(self, gateway: str) -> Way | None:
        return proof.find_way(self, gateway)

    def read(self, name: str) -> bytes | None:
        with self.attempt(f"read {name}"):
            found = self.get(name)
            return self.get(set_aside_name(name)) if found is None and self.sets_aside else found

    def create(self, name: str, data: bytes) -> bool:
        gateway = name.partition("/")[0]
        way = self.prove(gateway)
        with self.attempt(f"write {name}"):
            if way not in (Way.RENAME, Way.LINK) and self.stands(name):
                return False
            hidden = self._hide(name, data, f"{hashlib.sha256(data).hexdigest()[:16]}-")
            created = False
            try:
                with self._claimed(way, hidden, name) as free:
                    created = free and self._give(way, hidden, name)
            except Claimed:
                self._drop(hidden)  # lets the other gateway continue
                raise
            except Exception as error:
                if not self.trouble(error):
                    proof.forget(self, gateway)
                raise
            if not created or way is Way.LINK:
                self._drop(hidden)
            return created

    def replace(self, name: str, data: bytes) -> None:
        with self.attempt(f"write {name}"):
            self.swap(self._hide(name, data), name)

    def names_in(self, folder: str) -> list[str]:
        with self.attempt(f"list {folder}"):
            return self.names(folder)

    def discard(self, name: str) -> None:
        with self.attempt(f"remove {name}"):
            self.remove(name)

    def swap(self, hidden: str, name: str) -> None:
        """Give a hidden file its final name, in place of an existing file. If the place's rename
        refuses an existing name, the existing file is set aside first. After an interruption at any
        point, at least one of the two files still exists.
        """
        try:
            return self.move(hidden, name)
        except Exception as error:
            if self.trouble(error) or not self.stands(name):
                raise
        aside = set_aside_name(name)
        self.remove(aside)
        self.move(name, aside)
        self.move(hidden, name)
        self._drop(aside)

    def tidy(self, folder: str) -> str | None:
        errors = tidying.tidy(self, folder)
        return error_text(errors[0]) if errors else None

    def _drop(self, hidden: str) -> None:
        """Remove a hidden file. If that is refused, `tidy` removes the file later."""
        refuses(self, self.remove, hidden)

    def _hide(self, name: str, data: bytes, tag: str = "") -> str:
        """Write and sync a file under a hidden name beside the final one. Return the hidden name.
        tag: part of the hidden name.
        """
        folder, _, stem = name.rpartition("/")
        hidden = f"{folder}/{INCOMING}/{stem}-{tag}{self._token}"
        try:
            self.put(hidden, data)
        except (TimeoutError, ConnectionError):
            raise  # cleaning up would only take longer; `tidy` removes what stays
        except Exception:
            with suppress(Exception):  # on a full disk each try would leave a file
                self.remove(hidden)
            raise
        return hidden

    def _give(self, way: Way, hidden: str, name: str) -> bool:
        """Give a hidden file its final name. Return False if the name exists already."""
        try:
            (self.link if way is Way.LINK else self.move)(hidden, name)
        except Exception as error:
            if self.trouble(error) or not self.stands(name):
                raise
            return False
        return True

    @contextmanager
    def _claimed(self, way: Way, hidden: str, name: str) -> Iterator[bool]:
        """Hold the claim of a name within the context, if the way has claims. Yield whether the
        name is free. Raises Claimed if another gateway has claimed the name for other bytes.
        """
        if way in (Way.RENAME, Way.LINK):
            yield True
            return
        if way is Way.LOOK:
            yield not self.stands(name)
            return
        folder, _, stem = name.rpartition("/")
        claim = f"{folder}/{proof.CLAIMS}/{stem}"
        try:
            (self.make_file if way is Way.CLAIM_FILE else self.make_folder)(claim)
        except Exception as error:
            if self.trouble(error) or not self.stands(claim):
                raise
            if not self._alone(hidden):
                raise Claimed(
                    f"another gateway is putting other bytes at {name}", self.url
                ) from error
        # a client may remember that there was no such name; a read asks the server
        yield not self.stands(name) and self.get(name) is None
        # there was no error, so the final name exists; `tidy` removes a leftover claim
        refuses(self, self.remove if way is Way.CLAIM_FILE else self.remove_folder, claim)

    def _alone(self, hidden: str) -> bool:
        """Whether this hidden file has the same bytes as every other hidden file that is to get the
        same final name.
        """
        folder, _, own = hidden.rpartition("/")
        same, stem = own[:-9], own[:-26]
        return all(
            name.startswith(f"{same}-")
            for name in self.names(folder)
            if name[:-26] == stem and name[-9] == name[-26] == "-"
        )
