"""Ports that a running gateway has. In: a port, and the data directory of the gateway that may have
it. Out: the port is free for as long as the context lasts; afterwards, however this process ends,
the gateway opens it again.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from gateway.commands.control_client import NotRunning, ask, lent


@contextmanager
def borrowed(folder: Path, port: str) -> Iterator[None]:
    """Nothing happens when the port is free, or no gateway runs there. Raises OncewayError when the
    gateway does not lend it.
    """
    with ExitStack() as stack:
        with suppress(NotRunning):
            stack.enter_context(lent(folder, port))
        yield


def ports_in_use(folder: Path) -> dict[str, str]:
    """Where each board is that is in session with the gateway on this data directory, by name; none
    when none runs there.
    """
    try:
        (row,) = ask(folder, do="status")
    except NotRunning:
        return {}
    return {port["device"]: port["port"] for port in row["ports"] if port["device"]}
