"""The copies that a gateway of the run keeps of other gateways' spools, on its own disk.

In: the gateway, and frames of other members. Out: the real `SiteCopies`. Its database is SQLite in
memory, and each access takes some milliseconds.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, cast
from unittest.mock import patch

from gateway.site.replication.receiving import Line
from gateway.site.wiring.replicas import SiteCopies
from tests.sim.whole.gateway import NOWHERE, Gateway


class _Disk(Executor):
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._loop = gateway.loop

    def submit(self, call: Callable[..., Any], /, *args: Any, **more: Any) -> Any:
        self._loop.call_later(self._gateway.commit_s(), call, *args)


class Shelved(SiteCopies):
    """The copies that a gateway keeps for other members, during one life of the gateway."""

    def __init__(self, gateway: Gateway, send: Callable[[str, bytes], None]) -> None:
        assert gateway.site is not None
        self._opens = patch("gateway.store.copies.connect", lambda path: gateway.shelf)
        super().__init__(
            gateway.engine,
            gateway.site,
            NOWHERE,
            send,
            cast(asyncio.AbstractEventLoop, gateway.loop),
            restored=gateway.restored,
            executor=_Disk(gateway),
            opened=lambda: gateway.database,
        )

    def _kept(self) -> list[Line]:
        """Read the stored copies. The real method first looks for a database file, which does not
        exist here.
        """
        with self._opens:
            return self._read_shelf()
