"""The socket on which a gateway listens for the other members of its site.

In: the host and port of `site.bind`, which may be an address that the machine does not have yet.
Out: links. A stranger can occupy handshakes only: there are at most MOST_HANDSHAKES at a time, each
takes at most HANDSHAKE_S, and if there are too many, the oldest one ends.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from gateway.config import Config
from gateway.errors import OncewayError
from gateway.site.links.certificate import OwnCertificate
from gateway.site.links.link import SHUTDOWN_S, Link, Owner, State, address_of
from gateway.site.links.seldom import Seldom
from gateway.site.pki.tls import why

log = logging.getLogger(__name__)

MOST_HANDSHAKES = 16
HANDSHAKE_S = 10.0
AGAIN_S = 2.0
"""Seconds between two attempts to listen on an address that this machine does not have yet."""
_PAUSE_S = 0.5
"""Pause in seconds after a connection that could not be accepted."""
_IP_FREEBIND = 15
"""The option of ip(7) that allows binding to an address that the machine does not have yet."""


def _is_here(host: str) -> bool:
    try:
        with socket.socket(_family(host)) as trial:
            trial.bind((host, 0))
    except OSError:
        return False
    return True


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _listen(host: str, port: int) -> socket.socket | None:
    """Return a listening socket, or None if the network interface of a link-local address does not
    exist yet. host: empty for every address, of IPv4 and IPv6 if the machine has both.
    """
    try:
        if host:
            made = socket.socket(_family(host))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # the address may come later (DHCP), and this gateway has to serve its boards meanwhile
            made.setsockopt(socket.SOL_IP, _IP_FREEBIND, 1)
            made.bind((host, port))
            made.listen(MOST_HANDSHAKES)
        else:
            both = socket.has_dualstack_ipv6()
            made = socket.create_server(
                ("", port),
                family=socket.AF_INET6 if both else socket.AF_INET,
                backlog=MOST_HANDSHAKES,
                dualstack_ipv6=both,
            )
    except socket.gaierror:
        return None
    except OSError as error:
        raise OncewayError(
            f"cannot listen for the site's other members ({error.strerror})",
            f"{host}:{port}",
            "Correct `site.bind`, or end the program that uses this port",
        ) from error
    made.setblocking(False)
    return made


class Listener:
    """The listening socket, and connections whose peers are not members yet. refused: logs a
    refused connection. Its arguments are the peer's name ("" if unknown), its address, and the
    reason.
    """

    def __init__(
        self,
        config: Config,
        owner: Owner,
        certificate: OwnCertificate,
        refused: Callable[[str, str, str], None],
        seldom: Seldom,
    ) -> None:
        self._config = config
        self._owner, self._certificate = owner, certificate
        self._refused, self._seldom = refused, seldom
        self._listening: socket.socket | None = None
        self.handshakes: dict[asyncio.Task[None], None] = {}
        """A task for each accepted connection whose member has not joined yet, the oldest task
        first.
        """

    @property
    def port(self) -> int:
        """Port on which this gateway listens, 0 while it does not listen."""
        return cast(int, self._listening.getsockname()[1]) if self._listening else 0

    def open(self) -> None:
        """Listen, or wait for an address that this machine does not have yet. Raises OncewayError
        if the address is in use.
        """
        self._listening = _listen(*self._config.site_bind)

    def close(self) -> None:
        if self._listening is not None:
            self._listening.close()

    def absent(self) -> str | None:
        """Return why no member can reach this gateway yet: the machine lacks the address. None if
        it has the address.
        """
        if _is_here(self._config.site_bind[0]):
            return None
        where = (self._config.site and self._config.site.bind) or "site.bind"
        return (
            f"{where}: this machine does not have that address. The gateway waits for the address"
        )

    async def keep_accepting(self) -> None:
        loop = asyncio.get_running_loop()
        while (listening := self._listening) is None:
            await asyncio.sleep(AGAIN_S)
            with suppress(OncewayError):
                self._listening = _listen(*self._config.site_bind)
        while True:
            try:
                channel, address = await loop.sock_accept(listening)
            except OSError as error:  # for example, too many open files
                if self._seldom.allows("accept"):
                    text = "no connection of a member can be accepted (%s)"
                    log.warning(text, error.strerror)
                await asyncio.sleep(_PAUSE_S)
                continue
            if len(self.handshakes) >= MOST_HANDSHAKES:
                oldest = next(iter(self.handshakes))
                del self.handshakes[oldest]
                oldest.cancel()
            task = loop.create_task(self._admit(channel, address_of(address)))
            self.handshakes[task] = None
            task.add_done_callback(lambda done: self.handshakes.pop(done, None))

    async def _admit(self, channel: socket.socket, address: str) -> None:
        """Accept a connection. Return when its member has joined, or the connection has ended."""
        link = Link(self._owner, None)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: link,
                    channel,
                    ssl=self._certificate.serving,
                    ssl_handshake_timeout=HANDSHAKE_S,
                    ssl_shutdown_timeout=SHUTDOWN_S,
                )
                await link.settled
        except (OSError, TimeoutError) as error:
            if link.state is not State.ENDED:
                self._refused(link.member, address, why(error))
        finally:
            if link.state is not State.JOINED:
                link.quit()
