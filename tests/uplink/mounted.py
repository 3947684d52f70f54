"""File systems of fsspec that behave like a mounted NFS or SMB folder: they have no hard links,
times have a resolution of a second, and the client caches answers of its server for some seconds.
"""

import errno
from typing import Any

import fsspec
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractFileSystem

KEPT_S = 3.0


class Mounted(AbstractFileSystem):
    """A client of a server in memory. Names, sizes and missing names that it reports may be up to
    KEPT_S old. It knows its own changes at once. now_s: the time in seconds, set by tests.
    """

    now_s = 0.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, skip_instance_cache=True, **options)
        self.server = MemoryFileSystem()
        self._known: dict[tuple[str, str], tuple[float, Any]] = {}

    def _remembered(self, kind: str, path: str) -> Any:
        path = self._strip_protocol(path)
        asked, answer = self._known.get((kind, path), (-KEPT_S, None))
        if Mounted.now_s - asked >= KEPT_S:
            try:
                answer = self.server.info(path) if kind == "info" else self.server.ls(path)
            except FileNotFoundError as error:
                answer = error
            self._known[kind, path] = (Mounted.now_s, answer)
        if isinstance(answer, FileNotFoundError):
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        return answer

    def _forget(self, path: str) -> str:
        path = self._strip_protocol(path)
        for name in (path, path.rpartition("/")[0]):
            for kind in ("info", "ls"):
                self._known.pop((kind, name), None)
        return str(path)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        found = dict(self._remembered("info", path))
        if "created" in found:
            found["created"] = found["created"].replace(microsecond=0)
        return found

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        entries = self._remembered("ls", path)
        return list(entries) if detail else [entry["name"] for entry in entries]

    def modified(self, path: str) -> Any:
        return self.server.modified(self._strip_protocol(path)).replace(microsecond=0)

    def cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        return bytes(self.server.cat_file(self._strip_protocol(path), start, end))

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        self.server.pipe_file(self._forget(path), value)

    def open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        """Open a file. With mode `x`, the server decides whether the name exists, as on NFS and
        SMB.
        """
        path = self._forget(path)
        if "x" in mode and self.server.exists(path):
            raise FileExistsError(errno.EEXIST, "File exists", path)
        file = self.server.open(path, mode.replace("x", "w"))
        if "x" in mode:
            file.commit()  # creates the name at once
        return file

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        self.server.mkdir(self._forget(path), create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.server.makedirs(self._forget(path), exist_ok)

    def rmdir(self, path: str) -> None:
        self.server.rmdir(self._forget(path))

    def rm_file(self, path: str) -> None:
        self.server.rm_file(self._forget(path))

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        old, new = self._forget(path1), self._forget(path2)
        if not self.server.exists(old):
            raise FileNotFoundError(errno.ENOENT, "No such file", old)
        if self.server.exists(new):
            self._over(new)
        self.server.mv(old, new)

    def _over(self, path: str) -> None:
        """Handle a rename to a name that exists: replace the file, or raise an error."""
        self.server.rm_file(path)


class Nfs(Mounted):
    """An NFS server. If a process still has a removed file open, the file stays under a hidden
    name.
    """

    protocol = "nfslike"
    _removed = 0

    def rm_file(self, path: str) -> None:
        path = self._forget(path)
        Nfs._removed += 1
        self.server.mv(path, f"{path.rpartition('/')[0]}/.nfs{Nfs._removed:024x}")

    def rmdir(self, path: str) -> None:
        path = self._forget(path)
        if self.server.ls(path):
            raise OSError(errno.ENOTEMPTY, "Directory not empty", path)
        self.server.rmdir(path)


class Smb(Mounted):
    """An SMB server. A rename to an existing name fails. A file cannot be removed while a program
    has it open. Here, every third removal fails, as if a virus scanner had the file open.
    """

    protocol = "smblike"
    _asked = 0

    def _over(self, path: str) -> None:
        raise FileExistsError(errno.EEXIST, "STATUS_OBJECT_NAME_COLLISION", path)

    def rm_file(self, path: str) -> None:
        Smb._asked += self.server.exists(self._strip_protocol(path))
        if Smb._asked % 3 == 2:
            Smb._asked += 1
            raise PermissionError(errno.EACCES, "STATUS_SHARING_VIOLATION", path)
        super().rm_file(path)


for _kind in (Nfs, Smb):
    fsspec.register_implementation(_kind.protocol, _kind, clobber=True)
