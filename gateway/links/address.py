"""Addresses of sockets, for logs."""

from typing import Any


def format_address(address: Any) -> str:
    """Return a socket address as `127.0.0.1:1883` or `[::1]:1883`. An address that is not a tuple,
    such as the path of a Unix socket, is returned as it is.
    """
    if not isinstance(address, tuple):
        return str(address)
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
