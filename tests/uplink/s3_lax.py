"""A proxy that makes of an S3 server one that does not heed If-None-Match, as some stores and
gateways do. It signs what it passes on anew, since that header is signed, too.
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
    """lax: whether it drops If-None-Match. answer: what the store says to a PUT with If-None-Match:
    None for "as if it were not there", or a status and an S3 code. busy: a status and a code for
    the next request of any kind, or None to pass it on. losing: whether the answer to a request
    (method, path) is lost on its way, after the store has done what the request says. before:
    called with the path of each PUT before it is passed on.
    """

    def __init__(self, target: int, key: str, secret: str) -> None:
        self.answer: tuple[int, str] | None = None
        self.lax = True
        self.before: Callable[[str], None] = lambda path: None
        self.busy: Callable[[], tuple[int, str] | None] = lambda: None
        self.losing: Callable[[str, str], bool] = lambda method, path: False
        self.puts: list[str] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if (busy := proxy.busy()) is not None:
                    self.refuse(*busy)
                    return
                conditional = "If-None-Match" in self.headers
                if self.command == "PUT":
                    proxy.puts.append(self.path)
                    proxy.before(self.path)
                if conditional and proxy.answer is not None:
                    self.refuse(*proxy.answer)
                    return
                left_out = HOP if proxy.lax else tuple(one for one in HOP if one != "if-none-match")
                kept = {k: v for k, v in self.headers.items() if k.lower() not in left_out}
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
                self.answer(found.status, found.getheaders(), content)

            def refuse(self, status: int, code: str) -> None:
                text = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
                empty = self.command == "HEAD"
                self.answer(status, [("Content-Type", "application/xml")], b"" if empty else text)

            def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
                self.send_response(status)
                length = str(len(body))
                for name, value in headers:
                    if name.lower() == "content-length":
                        length = value  # of a HEAD: what a GET would have
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
