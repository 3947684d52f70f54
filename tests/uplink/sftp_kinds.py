"""An SFTP server in this process that lacks features, as some servers do: its rename replaces
files, it does not support hard links, or it closes the connection during a request.

It is asyncssh's server with real files in a folder. `Kind.at` is called for each request. There, a
test can cut the connection before the request is done, or before its answer is sent.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

from tests.uplink.servers import wait_until


@dataclass
class Kind:
    """The behaviour of a server. renames: "refuses" if the new name exists, "replaces" or "never".
    exclusive_open: whether FXF_EXCL works. mkdir_twice: whether a second mkdir of a name succeeds.
    across: `renames` between two folders, if it differs. denied: requests that are always refused.
    fsync: whether fsync@openssh.com is known. quota: bytes that may still be written; None: no
    limit. size: function from the real size of a file to the reported one.

    at: called with each request and its first path. It returns when to cut the connection: "before"
    or "after" the request; None: not at all.
    """

    renames: str = "refuses"
    posix_rename: bool = True
    hardlink: bool = True
    exclusive_open: bool = True
    mkdir_twice: bool = False
    across: str | None = None
    denied: frozenset[str] = frozenset()
    fsync: bool = True
    quota: int | None = None
    size: Callable[[int], int] = field(default=lambda size: size)
    at: Callable[[str, str], str | None] = field(default=lambda request, path: None)


class Files(asyncssh.SFTPServer):
    """The handler of one SFTP session."""

    def __init__(self, channel: Any, kind: Kind) -> None:
        super().__init__(channel)
        self._kind = kind

    def _cut(self) -> None:
        self.channel.get_connection().abort()
        raise asyncssh.SFTPConnectionLost("cut")

    def _do(self, request: str, path: bytes, action: Callable[[], Any]) -> Any:
        if request in self._kind.denied:
            raise asyncssh.SFTPPermissionDenied(f"{request} is not allowed")
        when = self._kind.at(request, os.fsdecode(path))
        if when == "before":
            self._cut()
        done = action()
        if when == "after":
            self._cut()
        return done

    def open(self, path: bytes, pflags: int, attrs: Any) -> Any:
        if not self._kind.exclusive_open:
            pflags &= ~asyncssh.FXF_EXCL
        above = super().open
        file = self._do("open", path, lambda: above(path, pflags, attrs))
        file.path = path
        return file

    def write(self, file_obj: Any, offset: int, data: bytes) -> Any:
        above = super().write
        if self._kind.quota is not None:
            fits, self._kind.quota = data[: self._kind.quota], max(0, self._kind.quota - len(data))
            if len(fits) < len(data):
                above(file_obj, offset, fits)
                raise asyncssh.SFTPFailure("Disk quota exceeded")
        return self._do("write", file_obj.path, lambda: above(file_obj, offset, data))

    def close(self, file_obj: Any) -> Any:
        above = super().close
        return self._do("close", file_obj.path, lambda: above(file_obj))

    def fsync(self, file_obj: Any) -> Any:
        if not self._kind.fsync:
            raise asyncssh.SFTPOpUnsupported("no fsync here")
        above = super().fsync
        return self._do("fsync", file_obj.path, lambda: above(file_obj))

    def stat(self, path: bytes) -> Any:
        above = super().stat
        return self._do("stat", path, lambda: self._told(above(path)))

    def lstat(self, path: bytes) -> Any:
        above = super().lstat
        return self._do("lstat", path, lambda: self._told(above(path)))

    def fstat(self, file_obj: Any) -> Any:
        return self._told(super().fstat(file_obj))

    def _told(self, found: Any) -> Any:
        attrs = found
        if isinstance(found, os.stat_result):
            attrs = asyncssh.SFTPAttrs.from_local(found)
        attrs.size = self._kind.size(attrs.size)
        return attrs

    def remove(self, path: bytes) -> Any:
        above = super().remove
        return self._do("remove", path, lambda: above(path))

    def rmdir(self, path: bytes) -> Any:
        above = super().rmdir
        return self._do("rmdir", path, lambda: above(path))

    def mkdir(self, path: bytes, attrs: Any) -> Any:
        above = super().mkdir

        def make() -> None:
            if not (self._kind.mkdir_twice and Path(os.fsdecode(path)).is_dir()):
                above(path, attrs)

        return self._do("mkdir", path, make)

    def rename(self, old: bytes, new: bytes) -> Any:
        renames = self._kind.renames
        if self._kind.across and os.path.dirname(old) != os.path.dirname(new):
            renames = self._kind.across
        if renames == "never":
            raise asyncssh.SFTPOpUnsupported("no rename here")
        above = super().posix_rename if renames == "replaces" else super().rename
        return self._do("rename", new, lambda: above(old, new))

    def posix_rename(self, old: bytes, new: bytes) -> Any:
        if not self._kind.posix_rename:
            raise asyncssh.SFTPOpUnsupported("no posix-rename here")
        above = super().posix_rename
        return self._do("posix_rename", new, lambda: above(old, new))

    def link(self, old: bytes, new: bytes) -> Any:
        if not self._kind.hardlink:
            raise asyncssh.SFTPOpUnsupported("no hard links here")
        above = super().link
        return self._do("link", new, lambda: above(old, new))


class SftpOfKind:
    """A running SFTP server. Its kind may be changed while it runs."""

    def __init__(self, folder: Path, kind: Kind) -> None:
        self.folder, self.kind = folder, kind
        self.root = folder / "files"
        self.root.mkdir(parents=True)
        self._key = asyncssh.generate_private_key("ssh-ed25519")
        self._client = asyncssh.generate_private_key("ssh-ed25519")
        self._client.write_private_key(folder / "client")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(20)
        host = self._key.export_public_key().decode()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {host}")

    async def _listen(self) -> int:
        keys = asyncssh.import_authorized_keys(self._client.export_public_key().decode())
        server = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[self._key],
            authorized_client_keys=keys,
            sftp_factory=lambda channel: Files(channel, self.kind),
        )
        self._server = server
        return int(server.get_port())

    def close(self) -> None:
        async def stop() -> None:
            self._server.close()
            await self._server.wait_closed()

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        wait_until(lambda: not self._thread.is_alive(), "the server to end")

    def url(self, name: str = "landing") -> str:
        return f"sftp://me@127.0.0.1:{self.port}{self.root}/{name}"

    @property
    def options(self) -> dict[str, Any]:
        return {
            "known_hosts": str(self.folder / "known_hosts"),
            "client_keys": [str(self.folder / "client")],
            "agent_path": None,
            "config": None,
        }


@contextmanager
def sftp_of_kind(folder: Path, kind: Kind) -> Iterator[SftpOfKind]:
    server = SftpOfKind(folder, kind)
    try:
        yield server
    finally:
        server.close()
