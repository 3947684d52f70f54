"""The rig's strict publisher after it has lost its broker or was ordered to move: the next broker
to which it connects, and its report about a move.
"""

import json
from typing import cast

import pytest

from hil.clients import IDENTIFIERS, strict
from hil.clients.connection import Connection
from hil.clients.flows import Flows
from hil.formats.packets import Answer, Kind, Packet

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
    """The first broker accepts the client, then the connection breaks. Until the last one in
    `tried`, all later connections are refused. waits: the pauses in seconds before new attempts.
    """
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


@pytest.mark.parametrize(("reason", "told"), [(0, "acknowledged"), (0x92, "forgotten")])
def test_a_gateway_that_forgets_an_identifier_in_a_move_is_noticed(
    capsys: pytest.CaptureFixture[str], reason: int, told: str
) -> None:
    """The client moves between PUBREC and PUBREL. If the next gateway answers the client's first
    PUBREL with 0x92, the site has lost the identifier.
    """
    sent: list[Packet] = []
    connection = cast(
        Connection, type("_", (), {"send": lambda self, *packets: sent.extend(packets)})()
    )
    flows = Flows(1, IDENTIFIERS)
    publisher = strict.Publisher("c", [b"x"], 2, 5.0, 1, flows, moves=[1])
    flows.connected(False)
    publisher._publish(connection, 1)
    with pytest.raises(strict.MovedError):
        publisher._take(connection, Answer(Kind.PUBREC, 1))
    assert len(sent) == 1, "the PUBLISH alone"
    assert flows.connected(True) == ([Answer(Kind.PUBREL, 1)], [])
    publisher._take(connection, Answer(Kind.PUBCOMP, 1, reason))
    events = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    assert told in events
