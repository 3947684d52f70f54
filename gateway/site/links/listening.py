"""The socket on which a gateway listens for the other members of its site.

In: the host and port of `site.bind`. Out: a listening socket, also on an address that the machine
does not have yet.
"""

import socket

from gateway.errors import OncewayError

MOST_HANDSHAKES = 16
_IP_FREEBIND = 15
"""The option of ip(7) that allows binding to an address that the machine does not have yet."""


def is_here(host: str) -> bool:
    """Whether this machine has the address."""
    try:
        with socket.socket(_family(host)) as trial:
            trial.bind((host, 0))
    except OSError:
        return False
    return True


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def listen(host: str, port: int) -> socket.socket | None:
    """Return a listening socket, or None if the network interface of a link-local address does not
    exist yet. host: empty for every address, of IPv4 and IPv6 if the machine has both.
    """
    try:
        if host:
            made = socket.socket(_family(host))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # the address may come later (DHCP), and this gateway has to serve its boards meanwhile
            made.setsockopt(socket.SOL_IP, _IP_FREEBIND, 1)
            made.bind((host, port))
            made.listen(MOST_HANDSHAKES)
        else:
            both = socket.has_dualstack_ipv6()
            made = socket.create_server(
                ("", port),
                family=socket.AF_INET6 if both else socket.AF_INET,
                backlog=MOST_HANDSHAKES,
                dualstack_ipv6=both,
            )
    except socket.gaierror:
        return None
    except OSError as error:
        raise OncewayError(
            f"cannot listen for the site's other members ({error.strerror})",
            f"{host}:{port}",
            "Correct `site.bind`, or end the program that has this port",
        ) from error
    made.setblocking(False)
    return made
