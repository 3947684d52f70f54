"""The address of a client behind a proxy: `X-Forwarded-For`, accepted only from configured proxies.

In: an HTTP request. Out: the address of its client. A proxy appends the address that it sees to a
list. So the list is read from its end, up to the first address that is not a configured proxy.
Earlier addresses in the list may be invented.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web

_MOST = 64
"""Largest number of addresses that are read from the end of `X-Forwarded-For`."""


class Proxies:
    """The proxies that a listener trusts. networks: addresses and networks, such as 10.0.0.0/24."""

    def __init__(self, networks: Collection[str] = ()) -> None:
        self._networks = [ip_network(item, strict=False) for item in networks]

    def __contains__(self, host: str) -> bool:
        found = _parse(host)
        return found is not None and any(found in network for network in self._networks)

    def client(self, request: web.BaseRequest) -> str:
        """Return the client's address, without a port; empty if the connection is gone."""
        found = _parse(request.remote or "")
        if found is None or not self._networks:
            return request.remote or ""
        lines = request.headers.getall("X-Forwarded-For", ())
        for text in reversed(",".join(lines).split(",")[-_MOST:]):
            if not any(found in network for network in self._networks):
                break
            before = _parse(text.strip())
            if before is None:
                break
            found = before
        return str(found)


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address in a text, which may have a port, brackets and a zone; None if the text
    has no address.
    """
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
