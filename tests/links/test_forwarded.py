"""The address of a client behind proxies: the gateway believes only proxies that its configuration
names.
"""

import aiohttp
import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from gateway.config import ConfigError, parse
from gateway.links.forwarded import Proxies
from gateway.links.websocket import WebSocketListener
from tests.links.board import Broker, until

OURS = ["10.0.0.0/24", "192.0.2.7", "2001:db8:1::/48"]


@pytest.mark.parametrize(
    ("remote", "lines", "client"),
    [
        ("198.51.100.1", [], "198.51.100.1"),
        ("198.51.100.1", ["203.0.113.9"], "198.51.100.1"),
        ("10.0.0.2", [], "10.0.0.2"),
        ("10.0.0.2", ["203.0.113.9"], "203.0.113.9"),
        ("10.0.0.2", ["1.1.1.1, 203.0.113.9"], "203.0.113.9"),
        ("10.0.0.2", ["1.1.1.1", "203.0.113.9"], "203.0.113.9"),
        ("10.0.0.2", ["1.1.1.1, 203.0.113.9, 192.0.2.7"], "203.0.113.9"),
        ("10.0.0.2", ["203.0.113.9, 10.0.0.9, 192.0.2.7"], "203.0.113.9"),
        ("10.0.0.2", ["10.0.0.9"], "10.0.0.9"),
        ("10.0.0.2", ["203.0.113.9:4711"], "203.0.113.9"),
        ("10.0.0.2", ["[2001:db8::9]:4711"], "2001:db8::9"),
        ("10.0.0.2", ["2001:db8::9"], "2001:db8::9"),
        ("2001:db8:1::5", ["203.0.113.9"], "203.0.113.9"),
        ("::ffff:10.0.0.2", ["203.0.113.9"], "203.0.113.9"),
        ("10.0.0.2", ["unknown"], "10.0.0.2"),
        ("10.0.0.2", ["203.0.113.9, unknown"], "10.0.0.2"),
        ("10.0.0.2", ["203.0.113.9, "], "10.0.0.2"),
        ("10.0.0.2", [""], "10.0.0.2"),
        ("10.0.0.2", ["1.2.3"], "10.0.0.2"),
        ("10.0.0.2", [", ".join(["10.0.0.9"] * 10_000)], "10.0.0.9"),
    ],
)
def test_only_what_a_named_proxy_says_counts(remote: str, lines: list[str], client: str) -> None:
    headers = CIMultiDict([("X-Forwarded-For", line) for line in lines])
    request = make_mocked_request("GET", "/", headers=headers).clone(remote=remote)
    assert Proxies(OURS).client(request) == client
    assert Proxies().client(request) == remote


async def test_a_websocket_behind_a_proxy_has_the_address_of_its_client() -> None:
    broker = Broker()
    listener = WebSocketListener(broker.accept, "127.0.0.1", 0, proxies=["127.0.0.1"])
    await listener.start()
    url = f"http://127.0.0.1:{listener.addresses[0][1]}/mqtt"
    async with aiohttp.ClientSession() as session:
        for proxies, address in ((["127.0.0.1"], "203.0.113.9:"), ([], "127.0.0.1:")):
            listener.change_proxies(proxies)
            async with session.ws_connect(
                url, protocols=["mqtt"], headers={"X-Forwarded-For": "203.0.113.9"}
            ):
                await until(lambda: broker.connections)
                assert broker.connections.pop().transport.peer.address.startswith(address)
    await listener.close()


@pytest.mark.parametrize("section", ["page", "listener"])
@pytest.mark.parametrize("wrong", ["proxy.example", "10.0.0.0/33", "", "10.0.0.1:80"])
def test_a_proxy_is_an_address_or_a_network(section: str, wrong: str) -> None:
    body = {"type": "websocket", "bind": "127.0.0.1:0"} if section == "listener" else {}
    found = body | {"proxies": [wrong]}
    with pytest.raises(ConfigError, match="must be an address or a network"):
        parse({section: [found] if section == "listener" else found}, "here")
