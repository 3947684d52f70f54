"""Several gateways become one site, by the commands that a user types.

In: their names; the first one has the site's authority. Out: addresses for their configurations,
and gateways that run and are in contact.
"""

import asyncio
import sqlite3
from collections.abc import Collection, Sequence
from contextlib import closing

from gateway.errors import OncewayError
from hil.observe.folder import Folder
from hil.observe.membership import sure_of
from hil.programs.member_links import MemberLinks
from hil.programs.ports import free_port
from hil.programs.site import Member, Site

CONTACT_WITHIN = 60.0  # s, on a busy machine
LOOK_EVERY = 0.1  # s


class Joining:
    """names: of all gateways."""

    def __init__(self, names: Sequence[str]) -> None:
        self.links = MemberLinks({name: f"127.0.0.1:{free_port()}" for name in names})

    async def start(self, site: Site) -> None:
        """Returns when they are all in contact. The boards are provisioned at the first one, and
        the others have the same registry.
        """
        await self.links.start(site.children)
        site.links = self.links
        first, *others = site.members.values()
        await first.command("site", "init")
        await first.start_gateway()
        for member in others:
            _copy_registry(first.folder, member.folder)
            file = str(member.folder.root / f"{member.name}.invitation")
            await first.command("site", "invite", member.name, "--output", file)
            await member.command("site", "join", file)
            await member.start_gateway()
        await in_contact(site.members.values())


def _copy_registry(source: Folder, target: Folder) -> None:
    with (
        closing(sqlite3.connect(source.registry)) as first,
        closing(sqlite3.connect(target.registry)) as other,
    ):
        first.backup(other)


async def in_contact(members: Collection[Member], within: float = CONTACT_WITHIN) -> None:
    """Wait until each of them has promises of all others. Raises OncewayError."""
    for member in members:
        others = {one.name for one in members} - {member.name}
        try:
            async with asyncio.timeout(within):
                while not others <= await asyncio.to_thread(  # noqa: ASYNC110 - another process
                    sure_of, member.folder.data
                ):
                    await asyncio.sleep(LOOK_EVERY)
        except TimeoutError:
            raise OncewayError(
                f"{member.name} is not in contact with the other gateways after {within:.0f} s",
                str(member.folder.config),
            ) from None
