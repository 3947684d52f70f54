"""Landing places of each kind, with a part that cannot be read. The obstacles are real for files
(file modes) and SFTP (a user without rights). For S3, a proxy before the server refuses requests. A
file system of fsspec raises errors.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

from tests.uplink.servers import S3Server, SftpServer, sftp_server

NOBODY = 65534
CUT = 1
"""In place of an HTTP status: the proxy closes the connection without an answer."""


@contextmanager
def without_rights() -> Iterator[None]:
    """Run a `with` block without rights. If the tests run as root, which may read everything,
    change to another account for the block.
    """
    if os.geteuid() != 0:
        yield
        return
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


@contextmanager
def open_folder() -> Iterator[Path]:
    """Yield a folder that all accounts may enter. Folders of pytest are closed."""
    folder = Path(tempfile.mkdtemp(prefix="onceway-test-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        subprocess.run(["chmod", "-R", "u+rwx", folder], check=True)
        shutil.rmtree(folder)


class Place:
    """A landing place with the content of a folder. close: make a file or folder unreadable. mend:
    make everything readable again.
    """

    url: str

    def put(self, folder: Path) -> None:
        raise NotImplementedError

    def write(self, name: str, data: bytes) -> None:
        raise NotImplementedError

    def close(self, name: str) -> None:
        raise NotImplementedError

    def mend(self) -> None:
        raise NotImplementedError

    def reader(self) -> Any:
        """Return a context in which the closed parts cannot be read."""
        raise NotImplementedError


class LocalPlace(Place):
    def __init__(self, root: Path, url: str) -> None:
        self._root, self.url = root, url
        self._closed: list[tuple[Path, int]] = []

    def put(self, folder: Path) -> None:
        shutil.copytree(folder, self._root, dirs_exist_ok=True)

    def write(self, name: str, data: bytes) -> None:
        (self._root / name).write_bytes(data)

    def close(self, name: str) -> None:
        for path in self._root.glob(name):
            self._closed.append((path, path.stat().st_mode & 0o777))
            path.chmod(0o700 if os.geteuid() == 0 and path.is_dir() else 0)

    def mend(self) -> None:
        while self._closed:
            path, mode = self._closed.pop()
            path.chmod(mode)

    reader = staticmethod(without_rights)


@contextmanager
def as_it_is() -> Iterator[None]:
    yield


class SftpPlace(LocalPlace):
    reader = staticmethod(as_it_is)


@contextmanager
def sftp_for_nobody() -> Iterator[SftpServer]:
    """Run an SFTP server. If the tests run as root, its user is another account, which has no
    rights.
    """
    with open_folder() as folder, sftp_server(folder) as server:
        if os.geteuid() == 0:
            server.user = "nobody"
            (folder / "authorized_keys").chmod(0o644)
        yield server


Refusal = tuple[str, int]


class S3Place(Place):
    """A landing place on S3, behind a proxy that refuses some requests. rules: beginning of a key,
    and the HTTP status with which requests for such keys are answered.
    """

    def __init__(self, server: S3Server, prefix: str) -> None:
        self._server = server
        self._root = f"{server.BUCKET}/{prefix}"
        self.url = f"s3://{self._root}"
        self._fs = fsspec.filesystem("s3", **server.options(), skip_instance_cache=True)
        self.rules: list[Refusal] = []
        self.asked = 0
        self.failing: list[Any] = ["", 0, 0]
        self._proxy = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._proxy.daemon_threads = True
        threading.Thread(target=self._proxy.serve_forever, daemon=True).start()
        self.options = server.options(self._proxy.server_address[1])

    def shut(self) -> None:
        self._proxy.shutdown()
        self._proxy.server_close()

    def put(self, folder: Path) -> None:
        self._fs.put(f"{folder}/", f"{self._root}/", recursive=True)

    def write(self, name: str, data: bytes) -> None:
        self._fs.pipe_file(f"{self._root}/{name}", data)

    def close(self, name: str, status: int = 403) -> None:
        self.rules.append((f"{self._root}/{name}".replace("*", ""), status))

    def fail(self, name: str, status: int, times: int) -> None:
        """Let the proxy answer the next `times` requests for an object with this HTTP status."""
        self.failing = [f"{self._root}/{name}", status, times]

    def mend(self) -> None:
        self.rules.clear()
        self.failing = ["", 0, 0]

    reader = staticmethod(as_it_is)

    def fails(self, path: str) -> int | None:
        """Return the status that `fail` has set for this request, or None."""
        name, status, times = self.failing
        if not times or unquote(path.lstrip("/").partition("?")[0]) != name:
            return None
        self.failing[2] -= 1
        return int(status)

    def refused(self, path: str) -> int | None:
        """Return the status by which `rules` refuse a request for an object or a listing,
        or None.
        """
        bucket, _, query = path.lstrip("/").partition("?")
        names = [unquote(bucket)]
        for field in query.split("&"):
            name, _, value = field.partition("=")
            if name == "prefix":
                names = [f"{unquote(bucket)}/{unquote(value)}"]
        return next(
            (
                status
                for begin, status in self.rules
                for name in names
                if name.startswith(begin) or (name.rstrip("/") == begin.rstrip("/"))
            ),
            None,
        )

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        place = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                place.asked += 1
                status = place.refused(self.path) or place.fails(self.path)
                if status == CUT:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                if status is not None:
                    self._answer(status, [], b"" if self.command == "HEAD" else _error(status))
                    return
                upstream = HTTPConnection("127.0.0.1", place._server.port)
                upstream.putrequest(
                    self.command, self.path, skip_host=True, skip_accept_encoding=True
                )
                for name, value in self.headers.items():
                    upstream.putheader(name, value)
                upstream.endheaders()
                answer = upstream.getresponse()
                self._answer(answer.status, answer.getheaders(), answer.read())
                upstream.close()

            do_HEAD = do_GET

            def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                        self.send_header(name, value)
                lengths = [value for name, value in headers if name.lower() == "content-length"]
                length = lengths[0] if lengths else str(len(body))
                self.send_header(
                    "Content-Length", length if self.command == "HEAD" else str(len(body))
                )
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                pass

        return Handler


def _error(status: int) -> bytes:
    code = {403: "AccessDenied", 503: "SlowDown"}.get(status, "InternalError")
    return (
        f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'.encode()
    )


class RaisingFileSystem(MemoryFileSystem):
    """A file system in memory. raises: the beginning of a path, and a function that returns the
    exception of each access to such paths.
    """

    protocol = "raising"
    store: dict[str, Any] = {}  # noqa: RUF012 - as MemoryFileSystem has it
    pseudo_dirs = [""]  # noqa: RUF012
    raises: dict[str, Callable[[], Exception]] = {}  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("raising://", "memory://")))

    def _look(self, path: str) -> None:
        path = self._strip_protocol(path)
        for begin, error in self.raises.items():
            if path.startswith(begin):
                raise error()

    def ls(self, path: str, detail: bool = True, **more: Any) -> Any:
        self._look(path)
        return super().ls(path, detail, **more)

    def info(self, path: str, **more: Any) -> Any:
        self._look(path)
        return super().info(path, **more)

    def cat_file(self, path: str, *where: Any, **more: Any) -> Any:
        self._look(path)
        return super().cat_file(path, *where, **more)


fsspec.register_implementation("raising", RaisingFileSystem, clobber=True)


class RaisingPlace(Place):
    url = "raising://landing"

    def __init__(self, error: Callable[[], Exception]) -> None:
        self._error = error
        RaisingFileSystem.store.clear()
        RaisingFileSystem.pseudo_dirs[:] = [""]
        RaisingFileSystem.raises.clear()

    def put(self, folder: Path) -> None:
        for path in folder.rglob("*"):
            if path.is_file():
                self.write(str(path.relative_to(folder)), path.read_bytes())

    def write(self, name: str, data: bytes) -> None:
        fsspec.filesystem("raising").pipe_file(f"/landing/{name}", data)

    def close(self, name: str) -> None:
        RaisingFileSystem.raises[f"/landing/{name}".rstrip("/")] = self._error

    def mend(self) -> None:
        RaisingFileSystem.raises.clear()

    reader = staticmethod(as_it_is)
