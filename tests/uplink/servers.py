"""Real servers on loopback for tests: OpenSSH's SFTP, SeaweedFS as S3, and a proxy that breaks
connections on purpose.
"""

import json
import os
import pwd
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.service.process import free_port


def wait_until(ready: Any, what: str, timeout: float = 40) -> None:
    deadline = time.monotonic() + timeout
    while not ready():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


def listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def running(
    command: list[str], log: Path, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends. log: file for its output. env: replaces the environment of
    this process.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=env)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class SftpServer:
    """OpenSSH's sshd for the user that runs the tests. `options` has the server's key and the
    client's key. arguments: arguments of sftp-server.
    """

    def __init__(self, folder: Path, arguments: str = "") -> None:
        self.folder = folder
        self.port = free_port()
        for name in ("host", "client"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True
            )
        (folder / "authorized_keys").write_bytes((folder / "client.pub").read_bytes())
        (folder / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1:{self.port}\nHostKey {folder}/host\nAuthorizedKeysFile"
            f" {folder}/authorized_keys\nPidFile {folder}/pid\nUsePAM no\nStrictModes"
            f" no\nPermitRootLogin prohibit-password\nSubsystem sftp internal-sftp {arguments}\n"
        )
        self.user = pwd.getpwuid(os.getuid()).pw_name
        self.root = folder / "files"
        self.root.mkdir()
        self.write_known_hosts(self.port)

    def write_known_hosts(self, *ports: int) -> None:
        key = (self.folder / "host.pub").read_text()
        (self.folder / "known_hosts").write_text(
            "".join(f"[127.0.0.1]:{port} {key}" for port in ports)
        )

    def url(self, port: int | None = None) -> str:
        return f"sftp://{self.user}@127.0.0.1:{port or self.port}{self.root}/landing"

    @property
    def options(self) -> dict[str, Any]:
        return {
            "known_hosts": str(self.folder / "known_hosts"),
            "client_keys": [str(self.folder / "client")],
            "agent_path": None,
            "config": None,
        }


@contextmanager
def sftp_server(folder: Path, arguments: str = "") -> Iterator[SftpServer]:
    server = SftpServer(folder, arguments)
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # needed by sshd's privilege separation
    with running(["/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "sshd_config")], folder / "log"):
        wait_until(lambda: listens(server.port), "sshd")
        yield server


class S3Server:
    """SeaweedFS with one user and one bucket."""

    KEY, SECRET, BUCKET = "onceway-test", "onceway-test-secret", "landing"

    def __init__(self, port: int) -> None:
        self.port = port

    def url(self) -> str:
        return f"s3://{self.BUCKET}/gateways"

    def options(self, port: int | None = None) -> dict[str, Any]:
        return {
            "key": self.KEY,
            "secret": self.SECRET,
            "endpoint_url": f"http://127.0.0.1:{port or self.port}",
        }


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    user = {
        "name": "tests",
        "credentials": [{"accessKey": S3Server.KEY, "secretKey": S3Server.SECRET}],
        "actions": ["Admin", "Read", "Write", "List"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [user]}))
    names = [
        "master.port",
        "master.port.grpc",
        "volume.port",
        "volume.port.grpc",
        "filer.port",
        "filer.port.grpc",
        "s3.port",
        "s3.port.grpc",
    ]
    ports = {name: free_port() for name in names}
    options = {
        "dir": folder,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": 64,
        "volume.max": 20,
        "s3.config": folder / "s3.json",
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        **ports,
    }
    weed = Path(sys.executable).with_name("weed")
    with running(
        [
            str(weed),
            "server",
            "-filer",
            "-s3",
            *(f"-{key}={value}" for key, value in options.items()),
        ],
        folder / "log",
    ):
        server = S3Server(ports["s3.port"])
        wait_until(lambda: listens(server.port), "SeaweedFS")
        import s3fs

        fs = s3fs.S3FileSystem(**server.options(), skip_instance_cache=True)

        def writable() -> bool:
            try:
                if not fs.exists(server.BUCKET):
                    fs.mkdir(server.BUCKET)
                fs.pipe_file(f"{server.BUCKET}/ready", b"yes")
            except OSError:
                return False
            return True

        wait_until(writable, "SeaweedFS to take an object")
        yield server


class FaultProxy:
    """A TCP proxy to one port. Tests may set its attributes at any time, also for open connections.

    refuse: close new connections at once. stall: forward no more bytes in either direction.
    cut_after: reset a connection once, after this number of bytes to the server over all
    connections. rate: bytes per second in each direction. sent, received: number of bytes from and
    to the client.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.refuse = self.stall = False
        self.cut_after: int | None = None
        self.cuts = 0
        self.rate: float | None = None
        self.sent = self.received = self.connections = 0
        self._closed = False
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._closed = True
        self._server.close()
        self.drop()

    def drop(self) -> None:
        """Reset every connection."""
        for sock in list(self._open):
            self._reset(sock)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            if self.refuse:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            for sock in (client, server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open |= {client, server}
            for source, sink, direction in ((client, server, "sent"), (server, client, "received")):
                threading.Thread(
                    target=self._pump, args=(source, sink, direction), daemon=True
                ).start()

    def _pump(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        try:
            while data := source.recv(1024 if self.rate or self.cut_after else 65536):
                while self.stall and not self._closed:
                    time.sleep(0.01)
                if self.rate:
                    time.sleep(len(data) / self.rate)
                setattr(self, direction, getattr(self, direction) + len(data))
                if (
                    direction == "sent"
                    and self.cut_after is not None
                    and self.sent >= self.cut_after
                ):
                    self.cut_after = None
                    self.cuts += 1
                    break
                sink.sendall(data)
        except OSError:
            pass
        finally:
            self._reset(source)
            self._reset(sink)

    def _reset(self, sock: socket.socket) -> None:
        self._open.discard(sock)
        try:
            sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        except OSError:
            pass
