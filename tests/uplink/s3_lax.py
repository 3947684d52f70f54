"""A proxy that makes an S3 server seem to ignore If-None-Match, as some stores do. The header is
signed, so the proxy signs forwarded requests again.
"""

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

HOP = ("host", "connection", "authorization", "if-none-match", "expect", "content-length")


class LaxS3:
    """An S3 store that ignores or misreads If-None-Match. answer: response to a PUT with this
    header: a status with an S3 error code, or a status with a body that is not XML; None: the
    header is ignored. heeds: the header is forwarded; if the real store refuses the PUT, the client
    gets `answer`. refuses_all: every PUT gets `answer`.

    busy: status and error code of the next response of any kind; None: the request is forwarded.
    losing: returns whether the response to a request (method, path) is lost after the store has
    done it. before: called with the path of each PUT before it is forwarded. valid: the only access
    key that is accepted; None: any key.
    """

    def __init__(self, target: int, key: str, secret: str) -> None:
        self.answer: tuple[int, str | bytes] | None = None
        self.heeds = self.refuses_all = False
        self.before: Callable[[str], None] = lambda path: None
        self.busy: Callable[[], tuple[int, str] | None] = lambda: None
        self.losing: Callable[[str, str], bool] = lambda method, path: False
        self.valid: str | None = None
        self.puts: list[str] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                signed = self.headers.get("Authorization", "")
                if proxy.valid and f"Credential={proxy.valid}/" not in signed:
                    self.answer_as_told((403, "InvalidAccessKeyId"))
                    return
                if (busy := proxy.busy()) is not None:
                    self.answer_as_told(busy)
                    return
                conditional = "If-None-Match" in self.headers
                if self.command == "PUT":
                    proxy.puts.append(self.path)
                    proxy.before(self.path)
                told = conditional or (proxy.refuses_all and self.command == "PUT")
                if told and proxy.answer is not None and not proxy.heeds:
                    self.answer_as_told(proxy.answer)
                    return
                kept = {k: v for k, v in self.headers.items() if k.lower() not in HOP}
                if conditional and proxy.heeds:
                    kept["If-None-Match"] = "*"
                url = f"http://127.0.0.1:{target}{self.path}"
                request = AWSRequest(self.command, url, headers=kept, data=body)
                S3SigV4Auth(Credentials(key, secret), "s3", "us-east-1").add_auth(request)
                server = http.client.HTTPConnection("127.0.0.1", target, timeout=60)
                server.request(self.command, self.path, body or None, dict(request.headers))
                found = server.getresponse()
                content = found.read()
                server.close()
                if proxy.losing(self.command, self.path):
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                if proxy.heeds and proxy.answer is not None and found.status == proxy.answer[0]:
                    self.answer_as_told(proxy.answer)
                else:
                    self.answer(found.status, found.getheaders(), content)

            def answer_as_told(self, told: tuple[int, str | bytes]) -> None:
                status, text = told
                if isinstance(text, str):
                    text = f"<Error><Code>{text}</Code><Message>{text}</Message></Error>".encode()
                    text = b"" if self.command == "HEAD" else text
                    self.answer(status, [("Content-Type", "application/xml")], text)
                else:
                    self.answer(status, [("Content-Type", "text/html")], text)

            def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
                self.send_response(status)
                length = str(len(body))
                for name, value in headers:
                    if name.lower() == "content-length":
                        length = value  # of a HEAD: the length that a GET would have
                    elif name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                        self.send_header(name, value)
                self.send_header("Content-Length", length)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = pass_on

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(20)


@contextmanager
def lax_s3(target: int, key: str, secret: str) -> Iterator[LaxS3]:
    proxy = LaxS3(target, key, secret)
    try:
        yield proxy
    finally:
        proxy.close()
