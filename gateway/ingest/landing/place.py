"""The landing place as the ingest sees it: feeds of numbered manifests. Any fsspec URL; nothing but
`delete` changes it.

In: a landing URL. Out: feeds ("GATEWAY/EPOCH"), manifests by number, the newest number of a feed,
and the bytes of batches. Numbers of a feed are contiguous, so its newest one is found by galloping
and bisecting, without listing old batches.

Credentials and other options come from the environment, as fsspec reads it:
FSSPEC_SFTP_CLIENT_KEYS=/etc/onceway/id, AWS_PROFILE=...
"""

import errno
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import Any, TypeVar

import fsspec

from gateway.errors import OncewayError
from gateway.uplink.manifest import (
    MARKERS,
    SCHEMA_VERSION,
    Origin,
    Signature,
    cleaned_name,
    file_stem,
    marker_name,
    parse_cleaned,
    parse_marker,
    parse_refused,
    refused_name,
)

MANIFEST_LIMIT = 4096
BATCH_LIMIT = 256 * 1024 * 1024
"""The longest manifest and batch that are read, in bytes. The uplink cuts far below."""

CLEANED_LIMIT = 1024 * 1024
"""The longest note of what was cleaned that is read, in bytes: 40,000 epochs of one gateway."""

NO_FILE = (errno.EISDIR, errno.ELOOP)
"""What stands where a file should, and never will be one: a folder, or a link to itself."""

S3_PAGE = 100
"""Names that one listing on S3 gives at most: a batch has two."""

NOTHING_LANDED = "no gateway has landed a batch at this landing place"

PAUSES = (1.0, 5.0, None)
"""Seconds before the next try on a new connection; None: there is none."""

T = TypeVar("T")

_EPOCH = re.compile(r"[0-9a-f]{8}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MANIFEST = re.compile(r"[0-9]{12}\.json")
_NUMBER = re.compile(r"[0-9]{12}")


@dataclass(frozen=True, slots=True)
class Announced:
    """What a manifest says about batch `number` of `feed`. flaw: why nothing can be read by it,
    else None. landed: when it was written there, where that was asked and is known. signature: as
    it stands there, not checked.
    """

    feed: str
    number: int
    rows: int = 0
    bytes: int = 0
    sha256: str = ""
    flaw: str | None = None
    landed: datetime | None = None
    signature: Signature | None = None

    @property
    def name(self) -> str:
        """The Parquet file, relative to the landing URL."""
        return f"{self.feed}/{file_stem(self.number)}.parquet"

    @property
    def gateway(self) -> str:
        return self.feed.partition("/")[0]


@contextmanager
def reached(url: str) -> Iterator[None]:
    """Raises OncewayError in place of OSError: for a first look, where nobody tries again."""
    try:
        yield
    except OSError as error:
        raise OncewayError(f"the landing place cannot be reached: {error}", url) from error


class Landing:
    """A landing URL. Every method raises OSError when the place cannot be reached, after some tries
    on a new connection each.

    May be shared between threads.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._connecting = Lock()
        try:
            self._fs, self._root = self._connect()
        except (ValueError, ImportError) as error:
            raise OncewayError(f"this landing URL cannot be used: {error}", url) from error
        except Exception as error:  # each file system has its own
            raise _as_os_error(error) from error

    def _connect(self) -> tuple[Any, str]:
        protocol = self.url.partition("://")[0]
        if protocol in ("sftp", "ssh"):
            # sshfs trusts every server unless it is told not to; () stands for ~/.ssh/known_hosts
            options = {"known_hosts": (), "keepalive_interval": 15} | fsspec.config.conf.get(
                protocol, {}
            )
        else:
            options = {"use_listings_cache": False}
        fs, root = fsspec.core.url_to_fs(self.url, skip_instance_cache=True, **options)
        return fs, str(root)

    def _ask(self, question: Callable[[Any], T]) -> T:
        """What the file system answers. A missing file is an answer; after any other error it is
        asked again on a new connection.
        """
        for pause in PAUSES:
            asked = self._fs
            try:
                return question(asked)
            except FileNotFoundError:
                raise
            except Exception as error:
                if pause is None or self.local:
                    raise _as_os_error(error) from error
            time.sleep(pause)
            with self._connecting, suppress(Exception):  # if it fails, the next try says why
                if self._fs is asked:
                    self._fs, _ = self._connect()
        raise AssertionError("the last pause is None")

    @property
    def local(self) -> bool:
        """Whether a look-up is a call of this operating system, so that several at once gain
        nothing.
        """
        return "file" in self._fs.protocol

    def gateways(self) -> list[str]:
        """The folders that may belong to a gateway, sorted. Raises FileNotFoundError when there is
        no such place.
        """
        return self._folders(self._root)

    def markers(self) -> dict[str, int]:
        """The newest batch of each feed, as far as uplinks have said it (`gateway.uplink.newest`).
        None in a folder of this machine, where a look costs nothing.
        """
        if self.local:
            return {}
        try:
            paths = self._ask(lambda fs: fs.ls(f"{self._root}/{MARKERS}", detail=False))
        except FileNotFoundError:
            return {}
        found: dict[str, int] = {}
        for path in paths:
            parsed = parse_marker(str(path).rpartition("/")[2])
            if parsed is not None and _is_text(parsed[0].gateway):
                origin, number = parsed
                found[origin.folder] = max(number, found.get(origin.folder, 0))
        return found

    def any_feed(self) -> bool:
        """Whether a gateway has landed a batch here, be it one that was deleted on purpose since.
        Raises OncewayError when there is no such place.
        """
        try:
            return any(map(self._has_landed, self.gateways()))
        except FileNotFoundError:
            raise OncewayError(
                "there is no such landing place",
                self.url,
                "Is it mounted? The uplink makes it when it lands its first batch",
            ) from None

    def refuse_empty(self) -> None:
        """Raises OncewayError when no gateway has ever landed a batch here, or there is no such
        place.
        """
        if not self.any_feed():
            raise OncewayError(NOTHING_LANDED, self.url, "Is it the right place, and mounted?")

    def _has_landed(self, gateway: str) -> bool:
        feeds = self.feeds(gateway)
        return any(self.has(feed, 1) or self.after(feed, 1) is not None for feed in feeds) or bool(
            self.cleaned_epochs(gateway)
        )

    def feeds(self, gateway: str) -> list[str]:
        """The feeds of a gateway, sorted. Folders that are not named as an epoch are left alone."""
        return [
            f"{gateway}/{name}"
            for name in self._folders(f"{self._root}/{gateway}")
            if _EPOCH.fullmatch(name)
        ]

    def _folders(self, path: str) -> list[str]:
        entries = self._ask(lambda fs: fs.ls(path, detail=True))
        found = (
            entry["name"].rstrip("/").rpartition("/")[2]
            for entry in entries
            if entry["type"] == "directory"
        )
        return sorted(name for name in found if not name.startswith((".", "_")) and _is_text(name))

    def has(self, feed: str, number: int) -> bool:
        return bool(self._ask(lambda fs: fs.exists(self._manifest(feed, number))))

    def modified(self, feed: str, number: int) -> float | None:
        """When a manifest was written, in seconds since 1970, where the file system knows."""
        try:
            return float(self._fs.modified(self._manifest(feed, number)).timestamp())
        except Exception:  # it is only for people to know
            return None

    def with_time(self, announced: Announced) -> Announced:
        """The same, with the time at which it landed."""
        written = self.modified(announced.feed, announced.number)
        if written is None:
            return announced
        return replace(announced, landed=datetime.fromtimestamp(written, UTC))

    def newest(self, feed: str, known: int) -> int:
        """The newest number of a feed, from `known` on, in O(log(newest - known)) look-ups.

        With a hole in the numbers it is some number before a missing one, at least `known`.
        """
        return boundary(lambda number: self.has(feed, number), known)

    def after(self, feed: str, number: int) -> int | None:
        """The lowest number of a manifest above `number`, by a listing; None when there is none.

        On S3 a listing begins where it should; elsewhere it reads the whole folder of the feed.
        """
        try:
            names = self._ask(
                lambda fs: _names_after(fs, f"{self._root}/{feed}", file_stem(number))
            )
        except FileNotFoundError:
            return None
        numbers = (int(name[:-5]) for name in names if _MANIFEST.fullmatch(name))
        return min((found for found in numbers if found > number), default=None)

    def cleaned(self, feed: str) -> int:
        """Up to which number the batches of a feed were deleted on purpose; 0 when none were."""
        gateway, epoch = feed.split("/")
        return self.cleaned_epochs(gateway).get(epoch, 0)

    def cleaned_epochs(self, gateway: str) -> dict[str, int]:
        """The same for each epoch of a gateway of which any were."""
        try:
            text = self._ask(
                lambda fs: fs.cat_file(
                    f"{self._root}/{cleaned_name(gateway)}", start=0, end=CLEANED_LIMIT
                )
            )
        except FileNotFoundError:
            return {}
        return parse_cleaned(text)

    def refused(self, gateway: str) -> tuple[str, str] | None:
        """Host and time (ISO 8601) of another gateway that found this name taken; None when none
        has said so.
        """
        path = f"{self._root}/{refused_name(gateway)}"
        try:
            text = self._fs.cat_file(path, start=0, end=MANIFEST_LIMIT)
        except Exception:  # it is only for people to know
            return None
        note = parse_refused(text)
        return None if note is None else note[1:]

    def old_until(self, feed: str, known: int, before: float) -> int:
        """The last number up to `known` of which all manifests were written before a moment, in
        seconds since 1970; 0 when there is none.
        """
        until = 0
        for number in self._stems(feed, ".json"):
            written = self.modified(feed, number)
            if number > known or written is None or written >= before:
                break
            until = number
        return until

    def delete(self, feed: str, until: int) -> int:
        """Delete the batches of a feed up to a number; returns how many. A manifest goes before its
        data, so no reader finds half a batch.
        """
        for ending in (".json", ".parquet"):
            numbers = [number for number in self._stems(feed, ending) if number <= until]
            for number in numbers:
                self._ask(partial(_delete, f"{self._root}/{feed}/{file_stem(number)}{ending}"))
        return len(numbers)

    def tidy_markers(self) -> int:
        """Delete markers that a newer one of their feed has outlived, as after a crash of its
        uplink; returns how many.
        """
        newest = {
            marker_name(Origin(*feed.split("/")), number) for feed, number in self.markers().items()
        }
        if not newest:
            return 0
        folder = f"{self._root}/{MARKERS}"
        paths = self._ask(lambda fs: fs.ls(folder, detail=False))
        names = [str(path).rpartition("/")[2] for path in paths]
        old = [name for name in names if parse_marker(name) and f"{MARKERS}/{name}" not in newest]
        for name in old:
            self._ask(partial(_delete, f"{folder}/{name}"))
        return len(old)

    def _stems(self, feed: str, ending: str) -> list[int]:
        """The numbers of which a feed has a file with this ending, sorted."""
        try:
            paths = self._ask(lambda fs: fs.ls(f"{self._root}/{feed}", detail=False))
        except FileNotFoundError:
            return []
        names = (str(path).rstrip("/").rpartition("/")[2] for path in paths)
        return sorted(
            int(name.removesuffix(ending))
            for name in names
            if name.endswith(ending) and _NUMBER.fullmatch(name.removesuffix(ending))
        )

    def manifest(self, feed: str, number: int) -> Announced | None:
        """The manifest of a batch; None while it is missing."""
        try:
            text = self._ask(
                lambda fs: fs.cat_file(self._manifest(feed, number), start=0, end=MANIFEST_LIMIT)
            )
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in NO_FILE:
                raise
            return Announced(feed, number, flaw=f"unreadable manifest: {error.strerror}")
        return parse_manifest(text, feed, number)

    def batch(self, announced: Announced) -> bytes:
        """The bytes of a batch, at most one more than announced. Raises FileNotFoundError when only
        the manifest is there.
        """
        return bytes(
            self._ask(
                lambda fs: fs.cat_file(
                    f"{self._root}/{announced.name}", start=0, end=announced.bytes + 1
                )
            )
        )

    def _manifest(self, feed: str, number: int) -> str:
        return f"{self._root}/{feed}/{file_stem(number)}.json"


def _is_text(name: str) -> bool:
    """No gateway's folder has a name that is not, and no table could hold it."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _delete(path: str, fs: Any) -> None:
    fs.rm_file(path)


def _names_after(fs: Any, folder: str, stem: str) -> list[str]:
    """The names in a folder; where a listing can begin in the middle, the first after `stem`."""
    if "s3" not in fs.protocol:
        return [str(path).rstrip("/").rpartition("/")[2] for path in fs.ls(folder, detail=False)]
    bucket, prefix, _ = fs.split_path(f"{folder}/")
    after = f"{prefix}{stem}.parquet"
    while True:
        page = fs.call_s3(
            "list_objects_v2", Bucket=bucket, Prefix=prefix, StartAfter=after, MaxKeys=S3_PAGE
        )
        keys = [str(one["Key"]) for one in page.get("Contents", [])]
        names = [key.rpartition("/")[2] for key in keys]
        if not keys or not page.get("IsTruncated") or any(map(_MANIFEST.fullmatch, names)):
            return names
        after = keys[-1]


def _as_os_error(error: Exception) -> OSError:
    return error if isinstance(error, OSError) else OSError(f"{type(error).__name__}: {error}")


def boundary(holds: Callable[[int], bool], known: int) -> int:
    """The last number from `known` on for which `holds` is true, if it is true up to some number
    and false after. Gallops, then bisects.
    """
    step = 1
    while holds(known + step):
        known += step
        step *= 2
    low, high = known, known + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def parse_manifest(text: bytes, feed: str, number: int) -> Announced:
    """A manifest's JSON; whatever does not fit becomes its flaw."""
    try:
        fields: Any = json.loads(text)
        version = fields["schema"]
        if version != SCHEMA_VERSION:
            return Announced(feed, number, flaw=f"unknown schema version {str(version)[:20]}")
        rows, size, digest = fields["rows"], fields["bytes"], fields["sha256"]
        if (f"{fields['gateway']}/{fields['epoch']}", fields["number"]) != (feed, number):
            return Announced(feed, number, flaw="the manifest names another batch")
        if not (
            type(rows) is int
            and rows >= 0
            and type(size) is int
            and 0 <= size <= BATCH_LIMIT
            and _SHA256.fullmatch(digest)
        ):
            return Announced(feed, number, flaw="the manifest has impossible values")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return Announced(feed, number, flaw=f"unreadable manifest: {type(error).__name__}")
    key, value = fields.get("key"), fields.get("signature")
    signature = Signature(key, value) if isinstance(key, str) and isinstance(value, str) else None
    return Announced(feed, number, rows, size, digest, signature=signature)
