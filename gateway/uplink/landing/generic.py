"""A landing place on any other file system of fsspec: files are written under a hidden name, then
moved to the final name.

If the place has no move that refuses an existing name, a claim decides (`files.py`): a file
opened with mode "xb", or a folder. fsspec leaves it to each file system whether "xb" is checked at
opening or at closing, and whether it is checked at all.
"""

from collections.abc import Callable
from typing import Any

import fsspec

from gateway.errors import OncewayError
from gateway.uplink.landing.base import Way, only_epochs
from gateway.uplink.landing.files import FileLanding

_CLAIM = (
    b"An uplink has claimed the name of this file, and removes this claim when it has landed.\n"
)


class GenericLanding(FileLanding):
    """A landing place `protocol://…`. options: arguments for the class of the fsspec file
    system.
    """

    ways = (Way.RENAME, Way.CLAIM_FILE, Way.CLAIM_FOLDER)

    def __init__(self, url: str, options: dict[str, Any], shared: bool = True) -> None:
        super().__init__(url, shared)
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

    def move_marker(self, old: str | None, new: str) -> bool:
        with self.attempt(f"write {new}"):
            self._make_above(new)
            self._fs.pipe_file(self._path(new), b"")
            if old is not None and self.stands(old):
                self._fs.rm_file(self._path(old))
        return True

    def epochs(self, gateway: str) -> list[str]:
        with self.attempt(f"list {gateway}"):
            return only_epochs(self.names(gateway))

    def get(self, path: str) -> bytes | None:
        try:
            return bytes(self._fs.cat_file(self._path(path)))
        except FileNotFoundError:
            return None

    def put(self, path: str, data: bytes) -> None:
        self._make_above(path)
        self._fs.pipe_file(self._path(path), data)

    def move(self, old: str, new: str) -> None:
        self._fs.mv(self._path(old), self._path(new))

    def link(self, old: str, new: str) -> None:
        raise NotImplementedError("fsspec has no hard links")

    def make_file(self, path: str) -> None:
        self._make_above(path)
        with self._fs.open(self._path(path), "xb") as file:
            file.write(_CLAIM)

    def make_files(self, path: str) -> bool:
        """Try to create the same file twice. Return whether the place refuses one of the attempts.
        Both files are opened before the first one is closed. Otherwise, this trial would accept a
        place that checks the name when a file is opened, but creates the file only at its closing.
        """
        self._make_above(path)
        first = self._fs.open(self._path(path), "xb")
        try:
            second = self._fs.open(self._path(path), "xb")
        except Exception as error:
            if self.trouble(error):
                raise
            return True
        finally:
            first.write(_CLAIM)
            first.close()
        try:
            second.write(_CLAIM)
            second.close()
        except Exception as error:
            if self.trouble(error):
                raise
            return True
        return False

    def make_folder(self, path: str) -> None:
        self._make_above(path)
        self._fs.mkdir(self._path(path), create_parents=False)

    def remove(self, path: str) -> None:
        self._remove(self._fs.rm_file, path)

    def remove_folder(self, path: str) -> None:
        self._remove(self._fs.rmdir, path)

    def _remove(self, operation: Callable[[str], None], path: str) -> None:
        """Remove a name, if it exists. Some file systems, such as FTP, report a missing name by an
        error of another kind.
        """
        try:
            operation(self._path(path))
        except FileNotFoundError:
            return
        except Exception as error:
            if self.trouble(error) or self.stands(path):
                raise

    def stands(self, path: str) -> bool:
        """Whether a name exists. Raises the place's error if that is unknown. (`exists` of fsspec
        returns False for any error.)
        """
        try:
            self._fs.info(self._path(path))
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str) -> list[str]:
        try:
            found = self._fs.ls(self._path(folder), detail=False)
        except FileNotFoundError:
            return []
        return [str(path).rstrip("/").rpartition("/")[2] for path in found]

    def _make_above(self, path: str) -> None:
        self._fs.makedirs(self._path(path).rpartition("/")[0], exist_ok=True)

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}"
