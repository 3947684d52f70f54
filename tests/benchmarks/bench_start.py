"""The time that a gateway needs to start with a million messages in its queues.

The store is filled as the broker would fill it: 20 sessions of clients that are away, each with
50,000 different messages of 32 bytes. The time counts from the start of the process to the first
connection that it accepts. Then a client comes back and gets its first message.
"""

from contextlib import closing
from pathlib import Path

from gateway.broker.store_rows import Commit
from gateway.store.apply import apply
from gateway.store.schema import make_folder, open_store
from tests.benchmarks.brokers import onceway
from tests.benchmarks.load import Peer
from tests.benchmarks.report import Figure, main

SESSIONS = 20
EACH = 50_000
STARTS = 3
_ROWS = 5000


def fill(folder: Path, sessions: int, each: int) -> None:
    """Create a store with `sessions` sessions that have `each` messages in their queues."""
    make_folder(folder)
    with closing(open_store(folder, "gateway")) as database:
        commit = Commit(1)
        commit.sessions = [
            (number, f"away-{number}", 0xFFFF_FFFF, 0, 0, None) for number in range(1, sessions + 1)
        ]
        commit.subscriptions = [
            (number, f"site/{number}/#", 1, 0) for number in range(1, sessions + 1)
        ]
        apply(database, commit)
        for start in range(0, sessions * each, _ROWS):
            commit = Commit(2)
            for index in range(start, min(start + _ROWS, sessions * each)):
                session, number = index // each + 1, index % each + 1
                commit.messages.append(
                    (index + 1, f"site/{session}/{number % 50}", 0, 1, b"", None, b"%032d" % index)
                )
                commit.queue.append((session, number, 1, index + 1, 0, 2, b"", "", 32))
            apply(database, commit)


def measure(
    folder: Path, sessions: int = SESSIONS, each: int = EACH, starts: int = STARTS
) -> list[Figure]:
    fill(folder / "data", sessions, each)
    times = []
    for client in range(1, starts + 1):
        with onceway(folder) as broker:
            times.append(broker.started_in)
            memory = broker.memory / 1e6
            peer = Peer(broker.port, clean=False, client=f"away-{client}")
            assert peer.expect(0x32).endswith(b"%032d" % ((client - 1) * each))
            peer.socket.close()
    name = f"start with {sessions * each:,} queued messages"
    return [Figure(name, min(times), "s", "≤ 3"), Figure(f"{name}: memory", memory, "MB")]


if __name__ == "__main__":
    main(measure)
