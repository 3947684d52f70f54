"""A landing place in an S3 bucket (AWS, or another server with conditional writes).

An object appears atomically, so there are no hidden names. `create` is a put with If-None-Match:
the store itself refuses a second object with the same name. Some stores ignore that header and
answer 200. So the same object, LANDING/GATEWAY/.claims/proof, is put twice at each connection, and
the second put must fail. The store checks the SHA-256 sent with the body, stores it, and returns it
on request, so no bytes are fetched back.
"""

import base64
import hashlib
import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

import s3fs
from aiobotocore.session import AioSession
from botocore.exceptions import NoCredentialsError
from botocore.loaders import Loader
from fsspec.asyn import sync

from gateway.uplink.landing.base import Landing, Way, only_epochs, patience

T = TypeVar("T")

_PROOF = ".claims/proof"
_PROOF_TEXT = (
    b"An uplink puts this object twice. The second put must fail, or batches may be lost.\n"
)
_BUSY = (
    "SlowDown",
    "ServiceUnavailable",
    "InternalError",
    "RequestTimeout",
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "OperationAborted",
    "ConditionalRequestConflict",
)
_BUSY_STATUS = (409, 429, 500, 502, 503, 504)
"""HTTP statuses of a busy store, which asks for a later retry. `_BUSY` has S3's error codes with
this meaning.
"""

_PAUSES_S = (0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0)
"""Longest wait before each retry of one request, in seconds. The actual wait is random, and at
least half as long.
"""

_TAKEN = 412
_UNKNOWN = (400, 405, 501)
"""HTTP statuses with which stores refuse a put with If-None-Match because they do not support it.
The error codes and bodies of these answers differ from store to store.
"""

_SERVICES = ("s3", "sts", "oidc", "portal.sso")
"""The services of AWS that a landing place needs: for its objects, and for credentials."""


def _small_loader() -> Any:
    """Return a loader of botocore without the endpoints of unused services. Otherwise botocore
    keeps a list of all endpoints of all services, 13 MB, as long as a client exists.
    """
    loader = Loader()
    for partition in loader.load_data("endpoints")["partitions"]:
        partition["services"] = {
            name: partition["services"][name] for name in _SERVICES if name in partition["services"]
        }
    return loader


class S3Landing(Landing):
    """A landing place `s3://bucket/folder`. options: those of s3fs.S3FileSystem; without key and
    secret, the usual sources of AWS credentials are used.
    """

    def __init__(self, url: str, options: dict[str, Any], shared: bool = True) -> None:
        super().__init__(url, shared)
        config = {
            "connect_timeout": 10,
            "read_timeout": patience(),
            "retries": {"total_max_attempts": 1},
            "user_agent": "onceway",
        }
        session = AioSession(profile=options.get("profile"))
        session.register_component("data_loader", _small_loader())
        ours = {
            "session": session,
            "skip_instance_cache": True,
            "config_kwargs": {**config, **options.get("config_kwargs", {})},
        }
        with self.attempt("connect"):
            self._fs = s3fs.S3FileSystem(**{**options, **ours})
            self._fs.retries = 1  # the uplink retries by itself
            self._bucket, self._prefix, _ = self._fs.split_path(url.rstrip("/"))

    def read(self, name: str) -> bytes | None:
        with self.attempt(f"read {name}"):
            try:
                return _patiently(lambda: self._get(name))
            except FileNotFoundError:
                return None

    def create(self, name: str, data: bytes) -> bool:
        way = self.prove(name.partition("/")[0])
        with self.attempt(f"write {name}"):
            if way is Way.LOOK:
                if self._stands(name):
                    return False
                self._put(name, data)
                return True
            try:
                self._put(name, data, IfNoneMatch="*")
            except OSError as error:
                if _status(error) == _TAKEN:
                    return False
                raise
            return True

    def _find_way(self, gateway: str) -> Way | None:
        """Put the same object up to two times, each time on condition that it does not exist.
        Return Way.CONDITION if the store refuses a put because the object exists; an earlier proof
        may have left it. Return None if the store cannot refuse.
        """
        for _ in range(2):
            try:
                self._put(f"{gateway}/{_PROOF}", _PROOF_TEXT, IfNoneMatch="*")
            except OSError as error:
                if _status(error) == _TAKEN or _code(error) == "ConditionalRequestConflict":
                    return Way.CONDITION
                if _status(error) not in _UNKNOWN:
                    raise
                self._put(f"{gateway}/{_PROOF}", _PROOF_TEXT)  # raises if the cause was another one
                return None
        return None

    def _stands(self, name: str) -> bool:
        try:
            self._call("head_object", name)
        except FileNotFoundError:
            return False
        return True

    def replace(self, name: str, data: bytes) -> None:
        with self.attempt(f"write {name}"):
            self._put(name, data)

    def holds(self, name: str, data: bytes) -> bool:
        with self.attempt(f"look at {name}"):
            found = self._call("head_object", name, ChecksumMode="ENABLED")
        if "ChecksumSHA256" in found:
            return bool(
                found["ContentLength"] == len(data) and found["ChecksumSHA256"] == _sha256(data)
            )
        return self.read(name) == data

    def move_marker(self, old: str | None, new: str) -> bool:
        with self.attempt(f"write {new}"):
            self._put(new, b"")
            if old is not None:
                self._call("delete_object", old)
        return True

    def epochs(self, gateway: str) -> list[str]:
        return only_epochs(self.names_in(gateway))

    def names_in(self, folder: str) -> list[str]:
        with self.attempt(f"list {folder}"):
            try:
                path = self._path(folder)
                found = _patiently(lambda: self._fs.ls(path, detail=False, refresh=True))
            except FileNotFoundError:
                return []
            return [str(name).rstrip("/").rpartition("/")[2] for name in found]

    def discard(self, name: str) -> None:
        with self.attempt(f"remove {name}"):
            self._call("delete_object", name)

    def hint(self, error: Exception) -> str | None:
        if isinstance(error, PermissionError | NoCredentialsError):
            return (
                "Look at the key, its secret, its permissions in this bucket, and at this"
                " machine's clock"
            )
        return "Create the bucket first" if _code(error) == "NoSuchBucket" else None

    def _put(self, name: str, data: bytes, **condition: str) -> None:
        self._call("put_object", name, Body=data, ChecksumSHA256=_sha256(data), **condition)

    def _call(self, operation: str, name: str, **arguments: Any) -> Any:
        bucket, key, _ = self._fs.split_path(self._path(name))
        wait = patience(len(arguments.get("Body", b"")))
        return _patiently(
            lambda: self._fs.call_s3(operation, Bucket=bucket, Key=key, timeout=wait, **arguments)
        )

    def _get(self, name: str) -> bytes:
        """Return the bytes of an object, with one request. (s3fs would ask for its size first.)"""
        bucket, key, _ = self._fs.split_path(self._path(name))

        async def get() -> bytes:
            found = await self._fs._call_s3("get_object", Bucket=bucket, Key=key)
            async with found["Body"] as body:
                return bytes(await body.read())

        return bytes(sync(self._fs.loop, get, timeout=2 * patience()))

    def _path(self, name: str) -> str:
        return "/".join(part for part in (self._bucket, self._prefix, name) if part)


def _patiently(request: Callable[[], T]) -> T:
    """Make a request. If the store is busy, repeat the request, after a pause each time. If no
    answer arrives, the uplink repeats the whole operation. A repeated put may find its own object
    under the name, so the caller compares the bytes.
    """
    for pause in _PAUSES_S:
        try:
            return request()
        except Exception as error:
            if not _is_busy(error):
                raise
        time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, no secret
    return request()


def _is_busy(error: BaseException) -> bool:
    return _code(error) in _BUSY or _status(error) in _BUSY_STATUS


def _sha256(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def _code(error: BaseException) -> str:
    """Return the S3 error code that caused an error of s3fs; "" if none did."""
    return str(_response(error).get("Error", {}).get("Code", ""))


def _status(error: BaseException) -> int | None:
    """Return the HTTP status that caused an error of s3fs; None if none did."""
    status: int | None = _response(error).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status


def _response(error: BaseException) -> dict[str, Any]:
    """Return the store's answer that caused an error of s3fs; empty if there is none."""
    found = getattr(error.__cause__, "response", None) or getattr(error, "response", None)
    return found if isinstance(found, dict) else {}
