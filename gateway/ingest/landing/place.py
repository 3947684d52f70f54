"""The landing place as the ingest reads it: feeds of numbered manifests, at any fsspec URL.

In: a landing URL. Out: feeds ("GATEWAY/EPOCH"), manifests by number, the newest number of a feed,
and the bytes of batches. Only `delete` and `tidy_markers` change the landing place. Numbers of a
feed are contiguous, so its newest one is found by galloping and bisecting, without listing old
batches.

Credentials and other options come from the environment, as fsspec reads it:
FSSPEC_SFTP_CLIENT_KEYS=/etc/onceway/id, AWS_PROFILE=...
"""

import errno
import json
import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import Any, TypeVar

import fsspec
from fsspec.asyn import sync

from gateway.errors import OncewayError
from gateway.ingest import busy
from gateway.ingest.landing.local_file import NO_REGULAR_FILE, first_bytes
from gateway.system import gateway_name
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
    set_aside_name,
)

MANIFEST_LIMIT = 4096
BATCH_LIMIT = 256 * 1024 * 1024
"""Largest number of bytes of a manifest or batch that are read. The uplink's batches are far
smaller.
"""

ROWS_LIMIT = 2**31 - 1
"""Largest number of rows that a manifest may announce."""

CLEANED_LIMIT = 1024 * 1024
"""Largest number of bytes that are read from the file with the deleted batches of a gateway: enough
for 40,000 epochs.
"""

NO_FILE = (errno.EISDIR, errno.ELOOP, NO_REGULAR_FILE)
"""Errors of a name that can't become a regular file: a folder, a link to itself, a FIFO, a socket,
a device."""

FINAL = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
"""Errors after which an immediate retry is useless."""

FORBIDDEN = 403
"""HTTP's status code for denied access."""

UNREADABLE = "cannot be read now"
"""Prefix of the reason why a batch is in quarantine, if reading its files has failed for now. The
batch needs no repair: the stream reads it again by itself.
"""

S3_PAGE = 100
"""Largest number of names in one page of a listing on S3. A batch has two names."""

NOTHING_LANDED = "no gateway has landed a batch at this landing place"

PAUSES = (1.0, 5.0, None)
"""Pauses in seconds after each failed attempt. The next attempt uses a new connection. None: there
is no further attempt.
"""

IN_A_HURRY = (0.0, None)
"""Used in place of PAUSES while the landing place counts as reachable: one further attempt, without
a pause. With pauses, a failure that concerns many objects would take too long.
"""

ANSWERED_S = 30.0
"""For this time after an answer, in seconds, the place counts as reachable."""

RENEWED_S = 30.0
"""Shortest time, in seconds, between two connections that are opened because access was denied."""

LATEST_S = 4_102_444_800
"""The year 2100, in seconds since 1970. A later time of a file comes from a wrong clock."""

T = TypeVar("T")

log = logging.getLogger("onceway.ingest")

_EPOCH = re.compile(r"[0-9a-f]{8}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MANIFEST = re.compile(r"[0-9]{12}\.json")
_NUMBER = re.compile(r"[0-9]{12}")


@dataclass(frozen=True, slots=True)
class Announced:
    """The manifest of batch `number` of `feed`. flaw: reason why the batch cannot be used, or None.
    landed: when the manifest was written, if known. signature: the manifest's signature, not yet
    checked.
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
        """Path of the Parquet file, relative to the landing URL."""
        return f"{self.feed}/{file_stem(self.number)}.parquet"

    @property
    def gateway(self) -> str:
        return self.feed.partition("/")[0]


@contextmanager
def reached(url: str) -> Iterator[None]:
    """Turn an OSError within the context into an OncewayError. Use it for a first access, which is
    not retried.
    """
    try:
        yield
    except OSError as error:
        raise OncewayError(f"the landing place cannot be reached: {error}", url) from error


class Landing:
    """A landing URL. May be shared between threads.

    Every method raises OSError if an object cannot be read, or if the place as a whole cannot be
    reached after some attempts on new connections. `refuse_outage` distinguishes these cases.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._connecting = Lock()
        self._answered = -ANSWERED_S
        self._renewed = -RENEWED_S
        try:
            self._fs, self._root = self._connect()
        except (ValueError, ImportError) as error:
            raise OncewayError(f"this landing URL cannot be used: {error}", url) from error
        except Exception as error:  # each file system has its own
            raise _as_os_error(error) from error

    def _connect(self) -> tuple[Any, str]:
        protocol = self.url.partition("://")[0]
        if protocol in ("sftp", "ssh"):
            # sshfs trusts every server by default; () stands for ~/.ssh/known_hosts
            options = {"known_hosts": (), "keepalive_interval": 15} | fsspec.config.conf.get(
                protocol, {}
            )
        else:
            options = {"use_listings_cache": False}
        if protocol in ("s3", "s3a"):
            config = fsspec.config.conf.get(protocol, {}).get("config_kwargs", {})
            options["config_kwargs"] = {"retries": {"total_max_attempts": 1}} | config
        fs, root = fsspec.core.url_to_fs(self.url, skip_instance_cache=True, **options)
        if protocol in ("s3", "s3a"):
            busy.make_patient(fs)
            fs.retries = 1  # `_ask` retries on a new connection
        return fs, str(root)

    def _ask(self, question: Callable[[Any], T]) -> T:
        """Call `question` with the file system and return its result. If it fails, repeat the call
        on new connections, with pauses. Do not repeat it for a local folder, or if a file is
        missing, forbidden or no regular file.
        """
        pauses = iter(IN_A_HURRY if self._is_up() else PAUSES)
        while True:
            asked = self._fs
            try:
                return question(asked)
            except Exception as error:
                failure, pause = _as_os_error(error), next(pauses)
                final = isinstance(failure, FINAL) and not self._may_have_new_keys(failure)
                final = final or failure.errno == NO_REGULAR_FILE
                if pause is None or self.local or final:
                    raise failure from error
            time.sleep(pause)
            with self._connecting, suppress(Exception):  # a failure shows at the next try
                if self._fs is asked:
                    self._fs, _ = self._connect()

    def _may_have_new_keys(self, failure: OSError) -> bool:
        """Whether to try a new connection because access was denied. A new connection reads the
        credentials again, which may have been replaced. True at most once in RENEWED_S.
        """
        now = time.monotonic()
        if not isinstance(failure, PermissionError) or now - self._renewed < RENEWED_S:
            return False
        self._renewed = now
        return True

    def _is_up(self) -> bool:
        return time.monotonic() - self._answered < ANSWERED_S

    def refuse_outage(self, error: OSError) -> None:
        """Raise `error` if the landing place does not answer. If it answers, or has answered a
        moment ago, the error concerns only one object, and the caller can continue with others.
        """
        if self._is_up():
            return
        try:
            self._ask(lambda fs: fs.ls(self._root, detail=False))
        except OSError:
            raise error from None
        self._answered = time.monotonic()

    def _read(self, name: str, limit: int) -> bytes:
        path = f"{self._root}/{name}"
        return self._ask(lambda fs: _first_bytes(fs, path, limit))

    @property
    def local(self) -> bool:
        """Whether the landing place is a folder on this machine, where concurrent look-ups save no
        time.
        """
        return "file" in self._fs.protocol

    def gateways(self) -> list[str]:
        """Return the names of folders that may belong to a gateway, sorted. Versions up to 0.2.0
        allowed any gateway name, so only `feeds` shows whether a folder belongs to one. Raises
        FileNotFoundError if the place does not exist.
        """
        return [
            name
            for name in self._folders(self._root)
            if name.casefold() not in gateway_name.OF_FILE_SYSTEMS
        ]

    def markers(self) -> dict[str, int]:
        """Return the number of each feed's newest batch, as given by its marker
        (`gateway.uplink.newest`). Empty for a local folder, where look-ups need no markers.
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
            if parsed is not None and _may_be_a_folder(parsed[0].gateway):
                origin, number = parsed
                found[origin.folder] = max(number, found.get(origin.folder, 0))
        return found

    def any_feed(self) -> bool:
        """Whether any gateway has ever landed a batch here, even if its batches were deleted on
        purpose later. A gateway whose folder is unreadable counts as one that has. Raises
        OncewayError if the place does not exist.
        """
        try:
            gateways = self.gateways()
        except FileNotFoundError:
            raise OncewayError(
                "there is no such landing place",
                self.url,
                "If it should be mounted, mount it. An uplink creates the folder with its first"
                " batch",
            ) from None
        if not gateways and self._ask(lambda fs: fs.isfile(self._root)):
            raise OncewayError(
                "this is a file, not a folder",
                self.url,
                "Give the folder that contains the gateways' folders",
            )
        return any(map(self._may_have_landed, gateways))

    def refuse_empty(self) -> None:
        """Raise OncewayError if no gateway has ever landed a batch here, or the place does not
        exist.
        """
        if not self.any_feed():
            hint = "Check that this is the right place, and that it is mounted"
            raise OncewayError(NOTHING_LANDED, self.url, hint)

    def _may_have_landed(self, gateway: str) -> bool:
        try:
            feeds = self.feeds(gateway)
            return any(
                self.has(feed, 1) or self.after(feed, 1) is not None for feed in feeds
            ) or bool(self.cleaned_epochs(gateway))
        except OSError as error:
            self.refuse_outage(error)
            return not (
                isinstance(error, PermissionError) and gateway_name.is_of_a_file_server(gateway)
            )

    def feeds(self, gateway: str) -> list[str]:
        """Return the feeds of a gateway, sorted. Folders whose name is not that of an epoch are
        ignored.
        """
        try:
            names = self._folders(f"{self._root}/{gateway}")
        except FileNotFoundError:
            return []
        except PermissionError:
            if gateway_name.is_of_a_file_server(gateway):
                return []
            raise
        return [f"{gateway}/{name}" for name in names if _EPOCH.fullmatch(name)]

    def _folders(self, path: str) -> list[str]:
        """Return the names of the folders in a folder. A link to a folder counts as a folder."""

        def question(fs: Any) -> list[str]:
            return [
                str(entry["name"]).rstrip("/").rpartition("/")[2]
                for entry in fs.ls(path, detail=True)
                if entry["type"] == "directory"
                or (entry["type"] != "file" and fs.isdir(entry["name"]))
            ]

        return sorted(self._ask(question))

    def has(self, feed: str, number: int) -> bool:
        try:
            # not `exists`, which returns False for errors on some file systems
            found = self._ask(lambda fs: fs.info(self._manifest(feed, number)))
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in NO_FILE:
                raise
            return True
        # an object store may have `NUMBER.json/x` without a manifest
        return found["type"] != "directory" or self.manifest(feed, number) is not None

    def modified(self, feed: str, number: int, ending: str = "json") -> float | None:
        """Return when a file of a batch was written, in seconds since 1970. None if the file system
        does not know. ending: `json` for the manifest, `parquet` for the data.
        """
        path = f"{self._root}/{feed}/{file_stem(number)}.{ending}"
        try:
            return float(self._fs.modified(path).timestamp())
        except Exception:  # the file only informs people
            return None

    def with_time(self, announced: Announced) -> Announced:
        """Return the manifest with the time at which it landed, unless that time is unknown or
        comes from a wrong clock.
        """
        written = self.modified(announced.feed, announced.number)
        if written is None or not 0 <= written < LATEST_S:  # as from a wrong clock
            return announced
        return replace(announced, landed=datetime.fromtimestamp(written, UTC))

    def newest(self, feed: str, known: int) -> int:
        """Return the newest number of a feed, from `known` on, in O(log(newest - known)) look-ups.
        If numbers are missing, the result is `known` or a later number just before a missing one.
        """
        return boundary(lambda number: self.has(feed, number), known)

    def after(self, feed: str, number: int) -> int | None:
        """Return the lowest manifest number above `number`, from a listing; None if there is none.
        On S3 a listing can begin at `number`; elsewhere it reads the whole folder of the feed.
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
        """Return the number of the last batch of a feed that was deleted on purpose; 0 if
        none was.
        """
        gateway, epoch = feed.split("/")
        return self.cleaned_epochs(gateway).get(epoch, 0)

    def cleaned_epochs(self, gateway: str) -> dict[str, int]:
        """Return the number of the last batch that was deleted on purpose, for each epoch of a
        gateway. Epochs without deleted batches are left out.
        """
        name, text = cleaned_name(gateway), None
        # without atomic replacement, an interruption leaves the file under its hidden name
        at_once = self.local or "s3" in self._fs.protocol
        for path in (name,) if at_once else (name, set_aside_name(name)):
            with suppress(FileNotFoundError):
                text = self._read(path, CLEANED_LIMIT)
                break
        if text is None:
            return {}
        cleaned = parse_cleaned(text)
        if cleaned is None:
            log.warning(
                "%s/%s is damaged, and counts as missing. If batches were deleted on purpose,"
                " record that again: onceway ingest clean --feed",
                self.url,
                cleaned_name(gateway),
            )
        return cleaned or {}

    def refused(self, gateway: str) -> tuple[str, str] | None:
        """Return host and time (ISO 8601) of a gateway that was refused, because it tried to use
        the name `gateway` of another gateway. None if there is no readable note about this.
        """
        path = f"{self._root}/{refused_name(gateway)}"
        try:
            text = _first_bytes(self._fs, path, MANIFEST_LIMIT)
        except Exception:  # the file only informs people
            return None
        note = parse_refused(text)
        return None if note is None else note[1:]

    def old_until(self, feed: str, known: int, before: float, keep: Collection[int] = ()) -> int:
        """Return the number up to which all manifests of a feed were written before the time
        `before` (seconds since 1970). The result is at most `known`, and 0 if there is no such
        manifest. Numbers in `keep` are ignored.
        """
        until = 0
        for number in self._stems(feed, ".json"):
            if number in keep:
                continue
            written = self.modified(feed, number)
            if number > known or written is None or written >= before:
                break
            until = number
        return until

    def delete(self, feed: str, until: int, keep: Collection[int] = ()) -> int:
        """Delete the batches of a feed up to the number `until`, except those in `keep`. Return how
        many were deleted. A manifest is deleted before its data, so a reader never finds half a
        batch.
        """
        for ending in (".json", ".parquet"):
            stems = self._stems(feed, ending)
            numbers = [number for number in stems if number <= until and number not in keep]
            for number in numbers:
                self._ask(partial(_delete, f"{self._root}/{feed}/{file_stem(number)}{ending}"))
        return len(numbers)

    def tidy_markers(self) -> int:
        """Delete each marker whose feed has a newer marker, as after a crash of an uplink. Return
        how many were deleted.
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
        """Return the numbers of a feed's files with this ending, sorted."""
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
        """Return the manifest of a batch, with a `flaw` if it is unreadable or invalid; None if it
        is missing.
        """
        try:
            text = self._read(f"{feed}/{file_stem(number)}.json", MANIFEST_LIMIT)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in NO_FILE:
                raise
            return Announced(feed, number, flaw=f"unreadable manifest: {error.strerror}")
        return parse_manifest(text, feed, number)

    def batch(self, announced: Announced) -> bytes:
        """Return the bytes of a batch's Parquet file, at most one byte more than announced. Raises
        FileNotFoundError if this file is missing.
        """
        return self._read(announced.name, announced.bytes + 1)

    def _manifest(self, feed: str, number: int) -> str:
        return f"{self._root}/{feed}/{file_stem(number)}.json"


def _may_be_a_folder(name: str) -> bool:
    return name not in (".", "..") and gateway_name.is_text(name)


def _delete(path: str, fs: Any) -> None:
    fs.rm_file(path)


def _names_after(fs: Any, folder: str, stem: str) -> list[str]:
    """Return the names of the files in a folder. On S3, where a listing can begin in the middle,
    return only the names after `stem`, up to the end of the first page that contains a manifest.
    """
    if "s3" not in fs.protocol:
        return [str(path).rstrip("/").rpartition("/")[2] for path in fs.ls(folder, detail=False)]
    bucket, prefix, _ = fs.split_path(f"{folder}/")
    after = f"{prefix}{stem}.parquet"
    while True:
        request = {"Bucket": bucket, "Prefix": prefix, "StartAfter": after, "MaxKeys": S3_PAGE}
        page = sync(fs.loop, fs._call_s3, "list_objects_v2", **request)
        keys = [str(one["Key"]) for one in page.get("Contents", [])]
        names = [key.rpartition("/")[2] for key in keys]
        if not keys or not page.get("IsTruncated") or any(map(_MANIFEST.fullmatch, names)):
            return names
        after = keys[-1]


def _first_bytes(fs: Any, path: str, limit: int) -> bytes:
    """Return the first `limit` bytes of a file. A server that supports byte ranges may refuse a
    range of an empty file (HTTP's 416); the result is then empty, too.
    """
    if "file" in fs.protocol:
        return first_bytes(path, limit)
    if type(fs).__name__ == "SSHFileSystem":
        _refuse_no_file(fs, path)
    try:
        return bytes(fs.cat_file(path, start=0, end=limit))
    except FINAL:
        raise
    except Exception as error:
        if busy.status(error) not in busy.STATUSES and _is_empty(fs, path):
            return b""
        raise


def _refuse_no_file(fs: Any, path: str) -> None:
    """Raise OSError for a folder or a special file. A server that opens a FIFO waits for the FIFO's
    writer, and answers no further request.
    """
    kind = fs.info(path)["type"]
    if kind == "directory":
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if kind != "file":
        raise OSError(NO_REGULAR_FILE, "Not a regular file, but a FIFO, a socket or a device", path)


def _is_empty(fs: Any, path: str) -> bool:
    try:
        found = fs.info(path)
    except Exception:  # the caller raises its own error
        return False
    return bool(found["type"] == "file" and found["size"] == 0)


def _as_os_error(error: Exception) -> OSError:
    """Return any error of a file system as OSError; PermissionError for denied access."""
    if isinstance(error, OSError):
        return error
    text = f"{type(error).__name__}: {error}"
    if "PermissionDenied" in type(error).__name__ or busy.status(error) == FORBIDDEN:
        return PermissionError(errno.EACCES, text)
    return OSError(text)


def error_text(error: OSError) -> str:
    """Return the text of an error in one line. For denied access, the text ends with a question:
    may this account read the file?
    """
    text = gateway_name.shown(" ".join(str(error).split())) or type(error).__name__
    may = ". May this account read it?" if isinstance(error, PermissionError) else ""
    return f"{text[:300]}{may}"


def boundary(holds: Callable[[int], bool], known: int) -> int:
    """Return the last number from `known` on for which `holds` is true. `holds` must be true for
    all numbers up to the result, and false for all later ones.
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
    """Return the manifest in a file's bytes. If they are invalid, the manifest has the reason as
    its flaw.
    """
    try:
        return _parsed(text, feed, number)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        name = type(error).__name__
    except Exception as error:
        log.exception("%s batch %d: an unexpected error", gateway_name.shown(feed), number)
        name = type(error).__name__
    return Announced(feed, number, flaw=f"unreadable manifest: {name}")


def _parsed(text: bytes, feed: str, number: int) -> Announced:
    fields: Any = json.loads(text)
    version = fields["schema"]
    if version != SCHEMA_VERSION:
        return Announced(feed, number, flaw=f"unknown schema version {str(version)[:20]}")
    rows, size, digest = fields["rows"], fields["bytes"], fields["sha256"]
    if (f"{fields['gateway']}/{fields['epoch']}", fields["number"]) != (feed, number):
        return Announced(feed, number, flaw="the manifest names another batch")
    if not (
        type(rows) is int
        and 0 <= rows <= ROWS_LIMIT
        and type(size) is int
        and 0 <= size <= BATCH_LIMIT
        and _SHA256.fullmatch(digest)
    ):
        return Announced(feed, number, flaw="the manifest has impossible values")
    key, value = fields.get("key"), fields.get("signature")
    signature = Signature(key, value) if isinstance(key, str) and isinstance(value, str) else None
    return Announced(feed, number, rows, size, digest, signature=signature)
