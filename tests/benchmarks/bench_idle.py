"""The CPU time of an idle broker. 100 clients are connected, with a Keep Alive of 60 seconds, and
send PINGREQ in time.
"""

import time
from pathlib import Path

from tests.benchmarks.brokers import side_by_side
from tests.benchmarks.load import Peer
from tests.benchmarks.report import Figure, main

CLIENTS = 100
KEEP_ALIVE = 60
SECONDS = 20.0


def measure(folder: Path, seconds: float = SECONDS, clients: int = CLIENTS) -> list[Figure]:
    with side_by_side(folder) as brokers:
        peers = [
            [Peer(broker.port, keep_alive=KEEP_ALIVE) for broker in brokers] for _ in range(clients)
        ]
        time.sleep(min(2.0, seconds))
        before, began = [broker.cpu_s for broker in brokers], time.monotonic()
        turn = 0
        while time.monotonic() - began < seconds:
            for peer in peers[turn % clients]:
                peer.socket.sendall(b"\xc0\0")
                peer.expect(0xD0)
            turn += 1
            time.sleep(KEEP_ALIVE / clients)
        elapsed = time.monotonic() - began
        shares = [
            (broker.cpu_s - start) / elapsed * 100
            for broker, start in zip(brokers, before, strict=True)
        ]
        for both in peers:
            for peer in both:
                peer.leave()
    return [
        Figure(
            f"CPU with {clients} idle clients, keep alive {KEEP_ALIVE}",
            shares[0],
            "% of a core",
            "≤ 0.5",
            (*shares, None)[1],
        )
    ]


if __name__ == "__main__":
    main(measure)
