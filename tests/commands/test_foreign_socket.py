"""If another program listens at the path of the control socket, a command prints an error and does
not hang.
"""

import socket
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

from gateway.commands import control_client
from gateway.errors import OncewayError


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (b"no line" * 400_000, "a program other than the gateway"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a program other than the gateway"),
        (b"\xff\xfe\n", "a program other than the gateway"),
        (b"7\n", "a program other than the gateway"),
        (b"[]\n", "a program other than the gateway"),
        (b"[" * 200_000 + b"\n", "a program other than the gateway"),
        (b"", "ended in the middle"),
        (None, "does not answer"),
        ("drips", "does not answer"),
    ],
)
def test_a_foreign_control_socket_is_an_error(
    answer: bytes | str | None, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """answer: what the other program sends. None: it never answers. "drips": it sends a line that
    never ends.
    """
    monkeypatch.setattr(control_client, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(control_client, "LONGEST_ROW", 1 << 20)
    done = threading.Event()

    def serve() -> None:
        with closing(listener.accept()[0]) as channel:
            channel.recv(1000)
            if answer is None:
                done.wait(60)
            elif isinstance(answer, str):
                with suppress(BrokenPipeError):
                    while not done.wait(0.01):
                        channel.sendall(b" ")
            else:
                with suppress(BrokenPipeError, ConnectionResetError):
                    channel.sendall(answer)

    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(tmp_path / control_client.FILE))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with pytest.raises(OncewayError, match=what):
                control_client.ask(tmp_path, do="status")
        finally:
            done.set()
            thread.join()
