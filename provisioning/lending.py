"""Ports that a running gateway lends. In: a port, and the data directory of the gateway that may
hold it. Out: the port is free for as long as the context lasts. However this process ends, the
gateway then opens the port again.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from gateway.commands.control_client import NotRunning, ask, lent


@contextmanager
def borrowed(folder: Path, port: str) -> Iterator[None]:
    """Borrow a port from the gateway on this data directory. Do nothing if the port is free or no
    gateway runs. Raises OncewayError if the gateway refuses.
    """
    with ExitStack() as stack:
        with suppress(NotRunning):
            stack.enter_context(lent(folder, port))
        yield


def ports_in_use(folder: Path) -> dict[str, str]:
    """Return the port of each board in session with the gateway on this data directory, by the
    board's name. Empty if no gateway runs on it.
    """
    try:
        (row,) = ask(folder, do="status")
    except NotRunning:
        return {}
    return {port["device"]: port["port"] for port in row["ports"] if port["device"]}
