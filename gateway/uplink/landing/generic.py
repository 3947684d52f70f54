"""A landing place on any file system that fsspec knows: written under a hidden name, then moved to its final name.

Such a place need not offer "only if nothing stands there", so `create` looks first; two gateways that write one name in the same
moment are told apart by what is read back afterwards.
"""

import secrets
from typing import Any

import fsspec

from gateway.errors import OncewayError
from gateway.uplink.landing.base import Landing
from gateway.uplink.landing.local import INCOMING


class GenericLanding(Landing):
    def __init__(self, url: str, options: dict[str, Any]) -> None:
        super().__init__(url)
        self._token = secrets.token_hex(4)
        try:
            kind = fsspec.get_filesystem_class(url.split("://")[0])
        except (ValueError, ImportError) as error:
            raise OncewayError(f"this landing URL cannot be used: {error}", url) from error
        with self.attempt("connect"):
            self._fs = kind(**{**kind._get_kwargs_from_urls(url), **options, "skip_instance_cache": True, "use_listings_cache": False})
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
            incoming = f"{self._root}/{name.split('/')[0]}/{INCOMING}"
            self._fs.makedirs(folder, exist_ok=True)
            self._fs.makedirs(incoming, exist_ok=True)
            self._fs.pipe_file(f"{incoming}/{stem}-{self._token}", data)
            self._fs.mv(f"{incoming}/{stem}-{self._token}", f"{folder}/{stem}")
