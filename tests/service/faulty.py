"""Run `onceway gateway run` with a function that raises an exception when it handles the topic
`poison`.

ONCEWAY_FAULT names one of `FAULTS`. The functions of `OWN` work for one connection, here that of
the client `victim`. The functions of `SHARED` work on state that all clients share.
"""

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from gateway.access.rules import ByAcl
from gateway.broker.changes import Changes
from gateway.broker.connection import Connection
from gateway.broker.router import Router
from gateway.broker.spool import Spool
from gateway.links.tcp import TcpTransport
from gateway.mqtt.runs import Publishes
from gateway.mqtt.stream import PacketStream
from gateway.runtime.client_link import ClientLink
from gateway.store import writer

POISON = "poison"
VICTIM = "victim"


def _is_poison(item: Any) -> bool:
    return bool(item.topic.name == POISON)


def _is_victim(transport: Any) -> bool:
    link = transport._receiver
    return isinstance(link, ClientLink) and link.connection.client == VICTIM


OWN: dict[str, tuple[Any, str, Callable[..., bool]]] = {
    "take": (Connection, "take", lambda self: self.client == VICTIM and self.session is not None),
    "encode": (Publishes, "packets", lambda self, *_: _is_poison(self)),
    "decode": (PacketStream, "_decode", lambda self, *_: POISON.encode() in self.fresh),
    "judge": (ByAcl, "refuses_publish", lambda self, caller, topic: topic == POISON),
    "write": (TcpTransport, "write", lambda self, data: POISON.encode() in data),
    "close": (TcpTransport, "close", _is_victim),
    "look": (TcpTransport, "unsent", _is_victim),
}
SHARED: dict[str, tuple[Any, str, Callable[..., bool]]] = {
    "route": (Router, "match", lambda self, topic: topic.name == POISON),
    "spool": (Spool, "rows", lambda self, run, *_: _is_poison(run)),
    "seal": (Changes, "seal", lambda self, *_: any(POISON in row for row in self.spool)),
    "store": (writer, "apply", lambda _, commit, *__: any(POISON in row for row in commit.spool)),
}


def arm(owner: Any, name: str, concerns: Callable[..., bool]) -> None:
    """Let a function raise an exception from now on. concerns: takes the arguments of a call, and
    returns whether this call raises the exception.
    """
    found = vars(owner)[name]
    original = found.fget if isinstance(found, property) else found

    @wraps(original)
    def faulty(*args: Any, **more: Any) -> Any:
        if concerns(*args):
            raise ArithmeticError(f"injected into {name}")
        return original(*args, **more)

    setattr(owner, name, property(faulty) if isinstance(found, property) else faulty)


if __name__ == "__main__":
    arm(*(OWN | SHARED)[os.environ["ONCEWAY_FAULT"]])
    from gateway.commands.main import main

    sys.exit(main())
