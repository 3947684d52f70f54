"""Notification channels: a command, a webhook, e-mail. Each address of `mail_to` is a separate
channel, because a server may refuse a single address.

In: a message. A channel returns when the message was accepted, and raises OSError, SMTPException or
ValueError with the reason otherwise. All channels block: call them on a thread.
"""

from __future__ import annotations

import json
import smtplib
import ssl
import urllib.request
from collections.abc import Callable
from email.message import EmailMessage
from email.utils import formatdate
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from gateway.config import NotifySection
from gateway.notify.notices import Message
from gateway.system.spawn import run

PATIENCE_S = 20.0
MAIL = "mail"
"""Name of the e-mail channel if there is one address. If there are several, each channel's name is
this word, " to " and the address.
"""
Channel = Callable[["Message"], None]


def channels(section: NotifySection) -> dict[str, Channel]:
    """Return the configured channels by name."""
    found: dict[str, Channel] = {}
    if section.command:
        found["command"] = lambda message: _command(section.command, message)
    if url := section.webhook:
        found["webhook"] = lambda message: _webhook(url, message)
    for to in section.mail_to:
        name = MAIL if len(section.mail_to) == 1 else f"{MAIL} to {to}"
        found[name] = partial(_mail, section, to)
    return found


def _command(command: list[str], message: Message) -> None:
    code = run(command, json.dumps(message.public()).encode(), PATIENCE_S)
    if code:
        raise ValueError(f"{command[0]} ended with exit code {code}")


def _webhook(url: str, message: Message) -> None:
    body = json.dumps(message.public() | {"title": message.title}).encode()
    request = urllib.request.Request(  # noqa: S310 - the configuration takes http and https alone
        url, body, {"Content-Type": "application/json", "User-Agent": "onceway"}
    )
    with _STRAIGHT.open(request, timeout=PATIENCE_S):
        pass


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that makes a redirect an error: the redirected request would be a GET without the
    message.
    """

    def redirect_request(self, *_: Any) -> None:
        return None


_STRAIGHT = urllib.request.build_opener(_NoRedirect)


def _mail(section: NotifySection, to: str, message: Message) -> None:
    """Send an e-mail to one address over TLS: from the start for smtps://, by STARTTLS for smtp://.
    Raises SMTPException if an smtp:// server does not offer STARTTLS.
    """
    url = urlsplit(section.mail_server or "")
    context = ssl.create_default_context(cafile=section.mail_ca and str(section.mail_ca))
    host, mail = url.hostname or "", _composed(section, message)
    server: smtplib.SMTP
    if url.scheme == "smtps":
        server = smtplib.SMTP_SSL(host, url.port or 465, timeout=PATIENCE_S, context=context)
    else:
        server = smtplib.SMTP(host, url.port or 587, timeout=PATIENCE_S)
    with server:
        if url.scheme != "smtps":
            server.starttls(context=context)
        if section.mail_user is not None and section.mail_password_file is not None:
            password = section.mail_password_file.read_text(encoding="utf-8").rstrip("\n")
            server.login(section.mail_user, password)
        server.send_message(mail, to_addrs=[to])


def _composed(section: NotifySection, message: Message) -> EmailMessage:
    mail = EmailMessage()
    mail["From"] = section.mail_from or section.mail_to[0]
    mail["To"] = ", ".join(section.mail_to)
    mail["Subject"] = message.title
    mail["Date"] = formatdate(message.at)
    mail["Message-ID"] = f"<{message.id}@{message.gateway}.onceway>"
    mail.set_content(message.text)
    return mail
