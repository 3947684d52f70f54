"""Users that an external service knows: a command or an HTTP URL decides about a login.

In: a user name and a password, with client identifier, address and listener. Out: yes or no. A
timeout counts as no, as does an incomplete answer (`hook_answer.py`). All calls run on a thread of
`logins.py`, never on the event loop. The password goes only to the hook's standard input or into
the body of the request.
"""

import http.client
import json
import logging
import socket
import ssl
import threading
import time
from urllib.parse import urlsplit

from gateway.access.hook_answer import CutOff, OddAnswer, read_status
from gateway.access.hook_socket import Server
from gateway.access.rules import Refusal
from gateway.config import AccessSection
from gateway.mqtt.reason import ReasonCode
from gateway.system.log_throttle import LogThrottle
from gateway.system.logs import about
from gateway.system.spawn import run

log = logging.getLogger(__name__)

WRONG = ReasonCode.BAD_USER_NAME_OR_PASSWORD, "user name or password is wrong"
_SILENT = ReasonCode.SERVER_UNAVAILABLE, "the user cannot be checked now"
_YES, _NO = (200, 204), (401, 403)


class AuthHook:
    """The hook in `[access]`: `command` or `url`."""

    def __init__(self, section: AccessSection) -> None:
        self._section = section
        self._url = urlsplit(section.url or "")
        self._server = Server(self._url)
        self._throttle = LogThrottle(time.monotonic)

    def refuses(
        self, user: str, password: bytes, client: str, address: str, listener: str
    ) -> Refusal | None:
        """Ask the hook about a login. Return the refusal, or None if the hook accepts the login.
        Takes up to `hook_timeout_s`. Any thread may call it.
        """
        question = {
            "user": user,
            "password": password.decode("utf-8", "surrogateescape"),
            "client": client,
            "address": address,
            "listener": listener,
        }
        body = json.dumps(question).encode()
        try:
            allowed = self._run(body) if self._section.command else self._post(body)
        except (OSError, http.client.HTTPException, OddAnswer) as error:
            self._complain(error)
            return _SILENT
        return None if allowed else WRONG

    def _run(self, body: bytes) -> bool:
        """Run the command. Return True for exit code 0, False for exit code 1. Raises OddAnswer for
        another code. The output is not logged, because it may contain the password.
        """
        code = run(self._section.command, body, self._section.hook_timeout_s)
        if code not in (0, 1):
            raise OddAnswer(f"exit code {code}, where 0 is yes and 1 is no")
        return code == 0

    def _post(self, body: bytes) -> bool:
        url, until = self._url, time.monotonic() + self._section.hook_timeout_s
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(url.hostname or "", url.port)
        connection.sock = found = self._server.connect(until)
        # the socket's own timeout applies to each piece of an answer that arrives byte by byte
        timer = threading.Timer(max(0.0, until - time.monotonic()), _cut, [found])
        timer.start()
        try:
            if isinstance(found, ssl.SSLSocket):
                found.do_handshake()
            path = (url.path or "/") + (f"?{url.query}" if url.query else "")
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            with found.makefile("rb") as stream:
                status = read_status(stream)
            if time.monotonic() >= until:  # `timer` has cut the answer off
                raise TimeoutError("no answer in time")
        except CutOff:
            if time.monotonic() >= until:
                raise TimeoutError("no answer in time") from None
            raise
        finally:
            timer.cancel()
            connection.close()
        if status not in (*_YES, *_NO):
            text = f"HTTP status {status} is not an answer: 200 or 204 accepts, 401 or 403 refuses"
            raise OddAnswer(text)
        return status in _YES

    def _complain(self, error: Exception) -> None:
        asked = self._section.command[0] if self._section.command else self._section.url
        if self._throttle.allows("hook"):
            log.error(
                "%s: the hook gave no answer, so its users are refused (%s). See access.command and"
                " access.url",
                asked,
                error,
                extra=about(reason="server_unavailable"),
            )


def _cut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
