"""The certificate of this gateway while the gateway runs.

In: the site's folder, and renewed certificates. Out: the TLS contexts of new links, and renewals of
other members' certificates if this gateway holds the site's authority.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

from gateway.site.links.link import Link
from gateway.site.links.seldom import Seldom
from gateway.site.pki import renewal
from gateway.site.pki.authority import Membership, authority_of, membership
from gateway.site.pki.tls import dialling, serving
from gateway.system.jobs import Job

log = logging.getLogger(__name__)

RENEWAL_S = 86_400.0
"""Seconds for which renewals may fail before the failure is reported as a problem."""


class OwnCertificate:
    """The certificate of this gateway. spawn: starts a task that a stop of the gateway waits
    for.
    """

    own: Membership
    serving: ssl.SSLContext
    """Context of connections that other members open."""
    dialling: ssl.SSLContext
    """Context of connections that this gateway opens."""
    renews: bool
    """Whether this gateway holds the site's authority, and renews certificates."""

    def __init__(
        self,
        folder: Path,
        name: str,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        seldom: Seldom,
    ) -> None:
        self._folder, self._name = folder, name
        self._spawn, self._seldom = spawn, seldom
        self._logged: str | None = None
        text = f"{folder}: the certificate of this gateway, or of a member, cannot be renewed"
        self.job = Job("site_certificate", text, RENEWAL_S)

    def read(self) -> Membership:
        """Return the membership with this gateway's certificate. If its renewal is due and this
        gateway has the site's authority, renew it first. Raises OncewayError if there is no
        certificate.
        """
        own = membership(self._folder, self._name)
        self.renews = authority_of(self._folder) is not None
        if self.renews and renewal.is_due(own.certificate):
            own = renewal.renew_own(self._folder) or own
        self._use(own)
        return own

    def _use(self, own: Membership) -> None:
        self.own = own
        self.serving, self.dialling = serving(self._folder, own), dialling(self._folder, own)

    def received(self, link: Link, data: bytes) -> None:
        """Handle a member's message: a request to renew the member's certificate (`data` is empty),
        or the answer to this gateway's request.
        """
        if link.has_renewed if data else self.renews and not link.has_renewed:
            link.has_renewed = not data
            self._spawn(self._renew(link, data))

    async def _renew(self, link: Link | None, data: bytes = b"") -> None:
        """Renew this gateway's certificate if `link` is None. Otherwise handle a message of the
        member at the other end. Empty `data` is a request: answer it. Other `data` is the answer to
        a request: accept the certificate in it.
        """
        try:
            if link is not None and link.certificate is not None and not data:
                link.renew(await asyncio.to_thread(renewal.renewed, self._folder, link.certificate))
                self.job.succeed()
                return
            if link is None:
                own = await asyncio.to_thread(renewal.renew_own, self._folder)
            else:
                own = await asyncio.to_thread(renewal.accept, self._folder, data)
            if own is not None:
                self._use(own)
                log.info(
                    "this gateway's certificate is renewed, valid until %s",
                    f"{own.certificate.not_valid_after_utc:%Y-%m-%d}",
                )
            self.job.succeed()
        except Exception as error:
            self.job.fail(error)

    def look(self, links: Iterable[Link]) -> None:
        """If half of the lifetime of this gateway's certificate is over, log the certificate's
        problem, if any, and renew the certificate: here if this gateway has the site's authority,
        else by a request over each link whose member has it. links: all present links.
        """
        if not renewal.is_due(self.own.certificate):
            self._logged = None
            return
        text = renewal.problem(self.own.certificate)
        if text not in (None, self._logged):
            log.error("%s: %s", self._name, text)
        self._logged = text
        if self.renews:
            if self._seldom.allows("own renewal"):  # a failure is tried again a minute later
                self._spawn(self._renew(None))
            return
        for link in links:
            if link.renews and not link.has_renewed:
                link.renew()
