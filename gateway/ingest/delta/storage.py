"""Small files in a folder of a table: on a local disk, or on any file system of Spark (through
Hadoop, with Spark's own credentials).

In: a folder as Spark names it. Out: the bytes of files, by name. For a missing file, `read` returns
None, and `delete` does nothing. Raises OSError, or Hadoop's errors as Py4JJavaError.
"""

import secrets
from pathlib import Path
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from gateway.ingest.delta import local_disk
from gateway.system.sync import sync

OBJECT_STORES = ("s3a", "gs")
"""Schemes of Hadoop's file systems in which a file appears only when it is complete."""
_OLD = ".old"


class Readable(Protocol):
    """A folder whose files can be read."""

    def read(self, name: str) -> bytes | None: ...

    def names(self) -> list[str]: ...


class Folder(Readable, Protocol):
    def write(self, name: str, data: bytes) -> None:
        """Write a whole file. An existing file is replaced."""

    def delete(self, name: str) -> None: ...

    def set_aside(self, ending: str) -> str:
        """Rename the folder within its parent: append a dot and `ending`. Return its new path."""


def open_folder(spark: SparkSession, location: str, name: str = "") -> Folder:
    """Return the folder `name` in the table at `location`; the table's own folder if `name` is
    empty.
    """
    path = local_disk.local_path(location)
    return (
        HadoopFolder(spark, location, *([name] if name else []))
        if path is None
        else LocalFolder(path / name)
    )


class LocalFolder:
    """A folder on a local disk. Files are on disk before `write` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def read(self, name: str) -> bytes | None:
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        if not self._path.exists():
            self._path.mkdir(exist_ok=True)
            sync(self._path.parent)
        local_disk.write(self._path / name, data)

    def names(self) -> list[str]:
        """Return the names of the visible files, sorted; none if the folder is missing."""
        try:
            return sorted(
                path.name
                for path in self._path.iterdir()
                if path.is_file() and not path.name.startswith(".")
            )
        except FileNotFoundError:
            return []

    def delete(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)

    def set_aside(self, ending: str) -> str:
        aside = self._path.rename(self._path.with_name(f"{self._path.name}.{ending}"))
        sync(aside.parent)
        return str(aside)


class HadoopFolder:
    """A folder on any file system of Spark. Hadoop's rename refuses an existing name, so `write`
    first renames the old file to `_aside`. If a file is missing, its content is read from there:
    the writer is between its two renames, or was killed there.
    """

    def __init__(self, spark: SparkSession, *path: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path(*path)
        self._fs = self._path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        self._renames = str(self._fs.getScheme()) not in OBJECT_STORES

    def __str__(self) -> str:
        return str(self._path)

    def read(self, name: str) -> bytes | None:
        # the last try: a writer may have finished after the first one
        places = (name, _aside(name), name) if self._renames else (name,)
        return next((data for each in places if (data := self._read(each)) is not None), None)

    def _read(self, name: str) -> bytes | None:
        try:
            stream = self._fs.open(self._child(name))
        except Py4JJavaError as error:
            if "FileNotFoundException" in error.java_exception.getClass().getName():
                return None
            raise
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, data: bytes) -> None:
        """Write a file, or replace an existing one, so that a reader finds the whole old or the
        whole new content, also after a kill at any step. An object store shows only complete files,
        so there no file is renamed.
        """
        final, aside = self._child(name), self._child(_aside(name))
        if not self._renames:
            self._create(final, data)
            return
        hidden = self._child(f".{name}.{secrets.token_hex(4)}.new")
        self._create(hidden, data)
        if self._fs.exists(final):
            self._fs.delete(aside, False)
            self._rename(final, aside)
        self._rename(hidden, final)
        self._fs.delete(aside, False)

    def _rename(self, old: Any, new: Any) -> None:
        if not self._fs.rename(old, new):
            raise OSError(f"cannot rename {old}")

    def _create(self, path: Any, data: bytes) -> None:
        stream = self._fs.create(path, True)
        try:
            stream.write(data)
        finally:
            stream.close()

    def names(self) -> list[str]:
        """Return the names of the visible files, sorted; none if the folder is missing. A file that
        was set aside to be replaced counts, too.
        """
        if not self._fs.exists(self._path):
            return []
        names = {
            _visible(str(status.getPath().getName()))
            for status in self._fs.listStatus(self._path)
            if status.isFile()
        }
        return sorted(name for name in names if not name.startswith("."))

    def entries(self) -> dict[str, bool]:
        """Return the name of each entry, hidden ones included, and whether it is a folder. Empty if
        the folder does not exist. For a file, return the file itself.
        """
        if not self._fs.exists(self._path):
            return {}
        return {
            str(status.getPath().getName()): bool(status.isDirectory())
            for status in self._fs.listStatus(self._path)
        }

    def is_file(self) -> bool:
        """Whether there is a file where the folder should be."""
        return bool(
            self._fs.exists(self._path) and not self._fs.getFileStatus(self._path).isDirectory()
        )

    def delete(self, name: str) -> None:
        if self._renames:  # first: otherwise this old content would be read after a kill
            self._fs.delete(self._child(_aside(name)), False)
        self._fs.delete(self._child(name), False)

    def set_aside(self, ending: str) -> str:
        aside = self._jvm.org.apache.hadoop.fs.Path(f"{self._path}.{ending}")
        self._rename(self._path, aside)
        return str(aside)

    def _child(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)


def _aside(name: str) -> str:
    """Return the hidden name of a file that is being replaced."""
    return f".{name}{_OLD}"


def _visible(name: str) -> str:
    """Return the name of the file that is being replaced if `name` is its hidden name, else
    `name`.
    """
    hidden = name.startswith(".") and name.endswith(_OLD)
    return name[1 : -len(_OLD)] if hidden else name
