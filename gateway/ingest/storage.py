"""Small files on whatever file system Spark reaches the table by (Hadoop's FileSystem, with Spark's own credentials).

In: a folder as Spark names it. Out: bytes by name; None or nothing where a file is missing.
"""

from typing import Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession


class Readable(Protocol):
    """What can be read of such a folder, by whatever means."""

    def read(self, name: str) -> bytes | None: ...

    def names(self) -> list[str]: ...


class Folder:
    def __init__(self, spark: SparkSession, *path: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path(*path)
        self._fs = self._path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    def __str__(self) -> str:
        return str(self._path)

    def read(self, name: str) -> bytes | None:
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
        """Put a file there, under a hidden name first. Raises Py4JJavaError."""
        hidden = self._child(f".{name}.new")
        stream = self._fs.create(hidden, True)
        try:
            stream.write(data)
        finally:
            stream.close()
        self._fs.delete(self._child(name), False)
        if not self._fs.rename(hidden, self._child(name)):
            raise OSError(f"cannot rename {hidden}")

    def names(self) -> list[str]:
        """Names of the files that are not hidden, sorted; none when the folder is missing."""
        if not self._fs.exists(self._path):
            return []
        names = (str(status.getPath().getName()) for status in self._fs.listStatus(self._path) if status.isFile())
        return sorted(name for name in names if not name.startswith("."))

    def delete(self, name: str) -> None:
        self._fs.delete(self._child(name), False)

    def _child(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)
