"""A mail server (SMTP in TLS) and a web server on loopback, made of the standard library only.

In: a folder, with cert.pem and key.pem, and the ports. Out: the files `mail` and `web` with all
messages, and `beats` with a byte for each GET.
"""

import email
import http.server
import socketserver
import ssl
import sys
import threading
from email.policy import default
from pathlib import Path

FOLDER = Path(sys.argv[1])


def add(name: str, data: bytes) -> None:
    with (FOLDER / name).open("ab") as file:
        file.write(data)


class Web(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        add("beats", b".")
        self._fine()

    def do_POST(self) -> None:
        add("web", self.rfile.read(int(self.headers["Content-Length"])) + b"\n")
        self._fine()

    def _fine(self) -> None:
        self.send_response(204)
        self.end_headers()


class Mail(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self._say("220 told")
        while line := self.rfile.readline():
            verb = line[:4].upper().strip()
            self._say({b"DATA": "354 go on", b"QUIT": "221 bye"}.get(verb, "250 fine"))
            if verb == b"DATA":
                text = b""
                while not text.endswith(b"\r\n.\r\n"):
                    text += self.rfile.readline()
                message = email.message_from_bytes(text[:-3], policy=default)
                add("mail", str(message.get_content()).encode())
                self._say("250 taken")

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


def main() -> None:
    mail_port, web_port = map(int, sys.argv[2:])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FOLDER / "cert.pem", FOLDER / "key.pem")
    mail = socketserver.ThreadingTCPServer(("127.0.0.1", mail_port), Mail)
    mail.socket = context.wrap_socket(mail.socket, server_side=True)
    threading.Thread(target=mail.serve_forever, daemon=True).start()
    http.server.ThreadingHTTPServer(("127.0.0.1", web_port), Web).serve_forever()


if __name__ == "__main__":
    main()
