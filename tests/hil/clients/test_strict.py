"""The next broker of a strict client that loses its broker."""

import pytest

from hil.clients import IDENTIFIERS, strict
from hil.clients.flows import Flows

ATTIC, BARN = 1, 2


class _FoundError(Exception):
    """Raised to end a search for a broker after enough tries."""


@pytest.mark.parametrize(
    ("hops", "tried", "waits"),
    [
        (False, [ATTIC] * 11 + [BARN], [strict.RECONNECT_WAIT] * 11),
        (True, [ATTIC, BARN, ATTIC, BARN], [strict.RECONNECT_WAIT] * 2),
    ],
)
def test_hopping_client_connects_to_the_next_broker_at_once(
    monkeypatch: pytest.MonkeyPatch, hops: bool, tried: list[int], waits: list[float]
) -> None:
    """The first broker accepts the client, and the connection breaks."""
    ports: list[int] = []
    slept: list[float] = []

    class Connection:
        def __init__(self, port: int, *_: object) -> None:
            ports.append(port)
            if len(ports) == len(tried):
                raise _FoundError
            if len(ports) > 1:
                raise ConnectionRefusedError

        def __enter__(self) -> "Connection":
            return self

        def __exit__(self, *_: object) -> None: ...

        @property
        def connack(self) -> object:
            return type("Connack", (), {"session_present": False, "properties": ()})

    monkeypatch.setattr(strict, "Connection", Connection)
    monkeypatch.setattr(strict.time, "sleep", slept.append)
    monkeypatch.setattr(
        strict.Publisher, "_talk", lambda self, connection: (_ for _ in ()).throw(OSError)
    )
    flows = Flows(1, IDENTIFIERS)
    publisher = strict.Publisher("c", [b"x"], 2, 5.0, 1, flows, hops=hops)
    with pytest.raises(_FoundError):
        publisher.run(ATTIC, BARN)
    assert ports == tried
    assert slept == waits
