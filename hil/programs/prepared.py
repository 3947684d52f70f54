"""Preparation of gateways before a run: members of a site, made by a user's commands, or a gateway
with a store that is years old.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from gateway.errors import OncewayError
from hil.observe.folder import Folder
from hil.observe.membership import CONTACT_WITHIN, wait_for_contact
from hil.programs.process import free_port
from hil.programs.site import MemberLinks, Site


class Joining:
    """Sets up and starts a site. names: all gateways; the first one has the authority."""

    def __init__(self, names: Sequence[str]) -> None:
        self.links = MemberLinks({name: f"127.0.0.1:{free_port()}" for name in names})

    async def start(self, site: Site) -> None:
        """Start the gateways, and wait until all are in contact. Boards are provisioned at the
        first gateway; the other gateways begin with a copy of its registry. Raises OncewayError.
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
        folders = {name: member.folder.data for name, member in site.members.items()}
        if alone := await wait_for_contact(folders):
            raise OncewayError(
                f"{alone[0]} is not in contact with the others after {CONTACT_WITHIN:.0f} s",
                str(site.members[alone[0]].folder.config),
            )


OLD = 60_000
"""Age, in batches, of a batch that a used gateway still remembers. It may remember 50,000."""


def age(database: Path, first_row: int, first_batch: int) -> None:
    """Set the next row number and batch number of a stopped gateway. Rows and batches with lower
    numbers count as landed and deleted, except a batch that the gateway must forget (OLD) as soon
    as the next one lands.
    """
    with closing(sqlite3.connect(database)) as store, store:
        last = first_row - 1
        store.execute("INSERT OR REPLACE INTO meta VALUES ('spool.last', ?)", (str(last),))
        for number in {first_batch - 1, first_batch - OLD} if first_batch > 1 else ():
            if number > 0:
                store.execute(
                    "INSERT INTO batch (number, first, last, rows, bytes, sha256, cut, landed)"
                    " VALUES (?, ?, ?, 0, 0, ?, 0, 0)",
                    (number, last, last, "0" * 64),
                )


def _copy_registry(source: Folder, target: Folder) -> None:
    """Copy the registry, so that each gateway knows all boards from their first HELLO on."""
    with (
        closing(sqlite3.connect(source.registry)) as first,
        closing(sqlite3.connect(target.registry)) as other,
    ):
        first.backup(other)
