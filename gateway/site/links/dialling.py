"""Connections to the other members of a site.

Of two members, the one whose name comes first in the alphabet dials, so there is one connection for
each pair. An absent member is dialled again after 0.1 s, and then less often, up to every 5 s.
After a link on which a keep-alive was answered, dialling begins with 0.1 s again. When another
member has joined, the network may be back, so each absent member is dialled, or knocked at, at
once.

The member of a pair that does not dial *knocks* while there is no link, at once after its start: it
connects, shows its certificate, and gets BYE. A member that hears a knock dials without waiting, at
most once a second. Onceway 0.2.0 refuses a knock, and gets no further knock for a minute. A knock
does not affect a link that is alive.
"""

import asyncio
import random
from collections.abc import Callable

from gateway.config import split_address
from gateway.site.links.certificate import OwnCertificate
from gateway.site.links.far_member import FarMember
from gateway.site.links.link import SHUTDOWN_S, SILENT, Link, Owner, State, silence_s
from gateway.site.links.seldom import QUIET_S
from gateway.site.pki.tls import why
from gateway.system.dial import connected

DIAL_S = 5.0
_TCP_S = 4.0
"""Timeout for name lookup and TCP connection, in seconds. It is a part of DIAL_S."""
MOST_WAIT_S = 5.0
_FIRST_WAIT_S = 0.1
_KNOCK_S = 1.0
"""Seconds after an answered knock in which further knocks of the member are ignored."""
_SLOW_S = 0.5
"""If an attempt to dial has lasted for more than this many seconds, a knock ends the attempt."""
_STALE_S = 0.75
"""If no byte has arrived on a link for this many seconds, a knock of the member ends the link.
Keep-alives come every TICK_S seconds.
"""
DIALS, HEARD = " that dials ", ": the knock is heard"
"""Parts of the answer to a knock. Onceway 0.2.0 answers without HEARD."""


class Dialling:
    """The attempts to connect to other members. refused: called with name, address and reason of a
    connection that failed, to log it.
    """

    def __init__(
        self,
        owner: Owner,
        certificate: OwnCertificate,
        refused: Callable[[str, str, str], None],
    ) -> None:
        self._owner, self._certificate, self._refused = owner, certificate, refused

    async def keep_dialling(self, far: FarMember) -> None:
        wait = _FIRST_WAIT_S
        while True:
            link = await self._dial(far)
            await link.ended
            if link.may_redial_soon:
                wait = _FIRST_WAIT_S
            wait = _FIRST_WAIT_S if await _pause(far, wait) else min(2 * wait, MOST_WAIT_S)

    async def _dial(self, far: FarMember) -> Link:
        """Dial once. Return the link once it has joined or has ended."""
        link = Link(self._owner, far.name)
        again, far.knocked = far.knocked, False
        try:
            async with asyncio.timeout(DIAL_S) as attempt:
                # the next knock must not end an attempt that follows a knock
                far.attempt = None if again else attempt
                await self._connect(far, link)
        except (OSError, TimeoutError, UnicodeError) as error:
            if link.state is not State.JOINED:  # the link may have joined meanwhile
                if not far.knocked:
                    self._refused(far.name, far.address, why(error))
                link.quit()
        except asyncio.CancelledError:
            link.quit()
            raise
        finally:
            far.attempt = None
        return link

    async def _connect(self, far: FarMember, link: Link) -> None:
        host, port = split_address(far.address)
        await asyncio.get_running_loop().create_connection(
            lambda: link,
            sock=await connected(host, port, _TCP_S),
            ssl=self._certificate.dialling,
            server_hostname="",
            ssl_handshake_timeout=DIAL_S,
            ssl_shutdown_timeout=SHUTDOWN_S,
        )
        await link.settled

    @staticmethod
    def answers(far: FarMember) -> None:
        """Note that the dialled member has proved its name. From now on, the attempt has DIAL_S
        seconds, and a knock does not end it.
        """
        if far.attempt is not None and not far.attempt.expired():
            far.attempt.reschedule(asyncio.get_running_loop().time() + DIAL_S)
        far.attempt = None

    def knocked(self, far: FarMember, late: bool) -> None:
        """Dial a knocking member at once, if it has no link. If it has a link on which it was
        silent for more than _STALE_S, end this link first. late: whether received bytes may still
        be unread, because this gateway itself hung. Then no link is ended.
        """
        now = asyncio.get_running_loop().time()
        if far.link is not None and silence_s(far.link, now) > _STALE_S and not late:
            far.link.end(SILENT)
        if far.link is not None or now - far.answered_knock < _KNOCK_S:
            return
        far.answered_knock = now
        far.knocked = True
        self.wake(far)

    @staticmethod
    def wake(far: FarMember) -> None:
        """Dial the member, or knock at it, at once. An attempt that has lasted more than _SLOW_S is
        ended first: the machine or the network may have been off.
        """
        far.wake.set()
        now, attempt = asyncio.get_running_loop().time(), far.attempt
        deadline = attempt and attempt.when()
        if attempt is None or deadline is None or attempt.expired():
            return
        if deadline - now < DIAL_S - _SLOW_S:
            attempt.reschedule(now)

    async def keep_knocking(self, far: FarMember) -> None:
        wait = 0.0
        while True:
            await _pause(far, wait)
            if (link := far.link) is not None:
                await link.ended
                wait = _FIRST_WAIT_S if link.may_redial_soon else MOST_WAIT_S
            elif await self._knock(far):
                wait = min(max(2 * wait, _FIRST_WAIT_S), MOST_WAIT_S)
            else:
                await asyncio.sleep(QUIET_S)
                wait = 0.0

    async def _knock(self, far: FarMember) -> bool:
        """Knock once. Return False if the member refuses knocks."""
        link = Link(self._owner, far.name, knock=True)
        try:
            async with asyncio.timeout(DIAL_S) as far.attempt:
                await self._connect(far, link)
        except (OSError, TimeoutError, UnicodeError):
            return True  # an unreachable member dials later
        finally:
            far.attempt = None
            link.quit()
        if not link.stop_reason or link.stop_reason.endswith(HEARD):
            return True
        if DIALS not in link.stop_reason:
            self._refused(far.name, far.address, link.reason)
        return False


async def _pause(far: FarMember, wait: float) -> bool:
    """Wait for `wait` seconds, up to 20 % more or less. Return True if `wake` has ended the wait
    early.
    """
    try:
        async with asyncio.timeout(wait * random.uniform(0.8, 1.2)):  # noqa: S311 - no secret
            await far.wake.wait()
    except TimeoutError:
        return False
    far.wake.clear()
    return True
