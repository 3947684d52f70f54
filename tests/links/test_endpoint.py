"""Endpoints: an address that comes later, sockets that vanish, and the errors of listening."""

import asyncio
import errno
import math
import socket

import pytest

from gateway.errors import OncewayError
from gateway.links import endpoint
from gateway.links.endpoint import AddressAbsent, AtEndpoint, Endpoint
from tests.links.board import until

ABSENT = "192.0.2.1"
"""An address for documentation, which no machine has (RFC 5737)."""


async def test_an_endpoint_tries_until_its_address_exists_and_is_free(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "AGAIN_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = AtEndpoint(Endpoint(ABSENT, port))
        await found._endpoint.listen(asyncio.Protocol, waits=True)
        text = f"{ABSENT}:{port}: this machine does not have that address."
        assert found.waits_for == f"{text} The gateway waits for the address"
        assert (found.stalled_s, found.addresses) == (0.0, [])
        await until(lambda: "The gateway tries again" in (found.waits_for or ""))
        monkeypatch.setattr(found._endpoint, "_host", "127.0.0.1")
        text = f"127.0.0.1:{port}: the address is in use. The gateway tries again"
        await until(lambda: found.waits_for == text)
        await found.change(None, ["192.0.2.7"])
        assert found.waits_for == text
    await until(lambda: found.waits_for is None)
    assert found.addresses == [("127.0.0.1", port)]
    assert caplog.messages[-1] == f"the address exists now: listening on 127.0.0.1:{port}"
    found.stop()


async def test_a_socket_that_was_closed_behind_the_listener_s_back_is_noticed() -> None:
    """The watchdog ends the gateway when a listener has stalled for long."""
    found = AtEndpoint(Endpoint("127.0.0.1", 0, proxies=["192.0.2.7"]))
    await found._endpoint.listen(asyncio.Protocol)
    assert found.stalled_s == 0.0
    (server,) = found._endpoint._servers
    server.close()
    assert found.stalled_s == math.inf
    found._endpoint._servers = []
    assert found.stalled_s == math.inf


@pytest.mark.parametrize(
    ("error", "said", "hint", "absent"),
    [
        (OSError(errno.EADDRINUSE, "in use"), "the address is in use", "stop it, or", False),
        (OSError(errno.EADDRNOTAVAIL, "no"), "does not have that address", "0.0.0.0", True),
        (OSError("could not bind on any address out of []"), "does not have that", "0.0.0.0", True),
        (OSError(errno.EACCES, "no"), "not allowed to listen there", "CAP_NET_BIND_SERVICE", False),
        (OSError(errno.ENOBUFS, "no room"), "cannot listen: no room", None, False),
        (OSError("of no number"), "cannot listen: of no number", None, False),
    ],
)
async def test_each_failure_to_listen_says_why(
    error: OSError,
    said: str,
    hint: str | None,
    absent: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: object) -> None:
        raise error

    found = Endpoint("::1", 1883, sockets=[socket.socket()])
    monkeypatch.setattr(found, "_serve", fail)
    with pytest.raises(OncewayError, match=said) as caught:
        await found.listen(asyncio.Protocol)
    assert caught.value.where == "[::1]:1883"
    assert isinstance(caught.value, AddressAbsent) == absent
    assert (caught.value.hint is None) == (hint is None)
    assert (hint or "") in (caught.value.hint or "")
