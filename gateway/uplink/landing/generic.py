"""A landing place on any other file system that fsspec knows: written under a hidden name, then
moved to its final name.

Such a place need not offer "only if nothing stands there", so `create` looks first; two gateways
that write one name in the same moment are told apart by what is read back afterwards.
"""

import secrets
from typing import Any

import fsspec

from gateway.errors import OncewayError
from gateway.uplink.landing.base import INCOMING, Landing, only_epochs


class GenericLanding(Landing):
    """`protocol://…`. options: as of the file system's class."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        super().__init__(url)
        self._token = secrets.token_hex(4)
        try:
            kind = fsspec.get_filesystem_class(url.split("://")[0])
        except ValueError as error:
            raise OncewayError(f"this landing URL cannot be used: {error}", self.url) from error
        with self.attempt("connect"):
            self._fs = kind(
                **{
                    **kind._get_kwargs_from_urls(url),
                    **options,
                    "skip_instance_cache": True,
                    "use_listings_cache": False,
                }
            )
            self._root = self._fs._strip_protocol(url).rstrip("/")

    def read(self, name: str) -> bytes | None:
        with self.attempt(f"read {name}"):
            try:
                return bytes(self._fs.cat_file(f"{self._root}/{name}"))
            except FileNotFoundError:
                return None

    def create(self, name: str, data: bytes) -> bool:
        with self.attempt(f"write {name}"):
            if self._fs.exists(f"{self._root}/{name}"):
                return False
            self.replace(name, data)
            return True

    def replace(self, name: str, data: bytes) -> None:
        with self.attempt(f"write {name}"):
            folder, _, stem = f"{self._root}/{name}".rpartition("/")
            hidden = f"{folder}/{INCOMING}/{stem}-{self._token}"
            self._fs.makedirs(f"{folder}/{INCOMING}", exist_ok=True)
            self._fs.pipe_file(hidden, data)
            self._fs.mv(hidden, f"{folder}/{stem}")

    def move_marker(self, old: str | None, new: str) -> bool:
        with self.attempt(f"write {new}"):
            self._fs.makedirs(f"{self._root}/{new}".rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(f"{self._root}/{new}", b"")
            if old is not None and self._fs.exists(f"{self._root}/{old}"):
                self._fs.rm_file(f"{self._root}/{old}")
        return True

    def epochs(self, gateway: str) -> list[str]:
        with self.attempt(f"list {gateway}"):
            folder = f"{self._root}/{gateway}"
            return only_epochs(self._fs.ls(folder, detail=False)) if self._fs.isdir(folder) else []

    def tidy(self, folder: str) -> None:
        with self.attempt("tidy up"):
            incoming = f"{self._root}/{folder}/{INCOMING}"
            if self._fs.isdir(incoming):
                for path in self._fs.ls(incoming, detail=False):
                    self._fs.rm_file(path)
