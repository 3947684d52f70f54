"""100,000 clients move to another gateway at once, with the real members on virtual time: `python
-m tests.site.crowd --clients 100000`.

In: the number of clients, whose sessions are all at one of three gateways. Out: the number of calls
between members that moved the sessions to another gateway, beside the number of clients. A frame
takes 1 ms, a commit 5 ms.
"""

import argparse
import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from gateway.site.rules.holder import NOBODY, Held, Outcome
from gateway.site.rules.member import Member
from gateway.site.rules.merge_window import WINDOW_S

FRAME_S = 0.001
COMMIT_S = 0.005
ARRIVE_S = 3.0
"""Time within which all clients arrive, in seconds."""
PARTS = (b"x" * 300,)


class CrowdHolder:
    """A gateway's sessions, which are all alike. A commit contains the changes that arrived during
    the previous commit.
    """

    def __init__(self, after: Callable[[float, Callable[[], None]], None]) -> None:
        self.records: dict[str, Held] = {}
        self.giving = 0
        self.most_giving = 0
        self._after = after
        self._waiting: list[Callable[[], None]] = []

    def _commit(self, done: Callable[[], None]) -> None:
        if not self._waiting:
            self._after(COMMIT_S, self._committed)
        self._waiting.append(done)

    def _committed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done()

    def record(self, client: str) -> Held | None:
        return self.records.get(client)

    def on_disk(self, done: Callable[[], None]) -> None:
        if self._waiting:
            self._commit(done)
        else:
            done()

    def give(self, client: str, to: str, done: Callable[[Sequence[bytes] | None], None]) -> None:
        self.records[client] = self.records[client]._replace(given_to=to)
        self.giving += 1
        self.most_giving = max(self.most_giving, self.giving)

        def given() -> None:
            self.giving -= 1
            done(PARTS)

        self._commit(given)

    def take(
        self,
        client: str,
        epoch: int,
        older: frozenset[str],
        suspect: bool,
        parts: Sequence[bytes],
        done: Callable[[str | None], None],
    ) -> None:
        self.records[client] = Held(epoch, True, None, older, suspect)
        self._commit(partial(done, None))

    def end(self, client: str, below: int, done: Callable[[], None]) -> None:
        if client in self.records and self.records[client].epoch < below:
            del self.records[client]
        self._commit(done)

    def confirmed(self, client: str, member: str) -> None:
        held = self.records[client]
        self.records[client] = held._replace(older=held.older - {member})

    def stand(
        self, client: str, epoch: int, older: frozenset[str], done: Callable[[], None]
    ) -> None:
        raise AssertionError("no record changes in another way here")

    def mark_suspect(self, client: str, done: Callable[[], None]) -> None:
        raise AssertionError("nothing is in doubt here")

    def mark_twofold(self, client: str) -> None:
        raise AssertionError("nothing is in doubt here")

    def mark_all_suspect(self, done: Callable[[], None]) -> None:
        raise AssertionError("nothing is in doubt here")

    def release(self, client: str, identifier: int, done: Callable[[bool], None]) -> None:
        done(False)

    def older_at(self, member: str) -> Iterable[str]:
        return ()

    def unsettled(self) -> Iterable[str]:
        return ()


class Crowd:
    """A site whose member `a` has all sessions. All clients connect to `b`."""

    def __init__(self, clients: int, members: int = 3) -> None:
        self.now = 10.0
        self.frames: Counter[str] = Counter()
        self.longest = 0.0
        self.here = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._armed: dict[str, float] = {}
        self.names = "abcdefgh"[:members]
        self.holders = {name: CrowdHolder(self._after) for name in self.names}
        self.members = {
            name: Member(
                name,
                set(self.names) - {name},
                self.holders[name],
                partial(self._send, name),
                partial(self._arm, name),
                self.now,
            )
            for name in self.names
        }
        for one in self.names:
            for other in set(self.names) - {one}:
                self.members[one].joined(other, self.now)
        self.clients = [f"client-{number:06}" for number in range(clients)]
        for client in self.clients:
            self.holders["a"].records[client] = Held(0, True, None, NOBODY, False)

    def _after(self, seconds: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, event))

    def _send(self, sender: str, receiver: str, frame: bytes) -> None:
        self.frames[sender] += 1
        self._after(FRAME_S, partial(self._receive, sender, receiver, frame))

    def _receive(self, sender: str, receiver: str, frame: bytes) -> None:
        self.members[receiver].received(sender, frame, self.now)

    def _arm(self, name: str, time: float) -> None:
        due = max(time, self.now)
        if due < self._armed.get(name, float("inf")):
            self._armed[name] = due
            self._after(due - self.now, partial(self._advance, name, due))

    def _advance(self, name: str, due: float) -> None:
        if self._armed.get(name) == due:
            del self._armed[name]
        self._arm(name, self.members[name].advance(self.now))

    def _come(self, client: str) -> None:
        begin = self.now

        def done(outcome: Outcome) -> None:
            assert outcome.kind == "here", outcome
            self.here += 1
            self.longest = max(self.longest, self.now - begin)

        self.members["b"].want_session(client, self.now, done)

    def run(self) -> None:
        """Run until each session is at `b`, and nowhere else."""
        for number, client in enumerate(self.clients):
            self._after(ARRIVE_S * number / len(self.clients), partial(self._come, client))
        end = self.now + 60
        while self._events and self.now < end:
            self.now, _, event = heapq.heappop(self._events)
            event()
            if self.here == len(self.clients) and not self.holders["a"].records:
                break

    @property
    def calls(self) -> int:
        """Number of calls and messages that all members received. A frame counts once."""
        return sum(member.statistics.calls for member in self.members.values())

    @property
    def windows(self) -> int:
        """Number of merge windows between the first move, at 10 s, and now."""
        return round((self.now - 10.0) / WINDOW_S) + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--members", type=int, default=3)
    arguments = parser.parse_args()
    begin = time.process_time()
    crowd = Crowd(arguments.clients, arguments.members)
    crowd.run()
    print(report(crowd))
    print(
        f"{time.process_time() - begin:.1f} s of CPU; {sum(crowd.frames.values()):,} frames in all"
    )


def report(crowd: Crowd) -> str:
    calls = crowd.calls
    one_each = len(crowd.clients) * (len(crowd.names) - 1)
    return (
        f"{crowd.here:,} clients came to another of {len(crowd.names)} gateways: {calls:,} calls in"
        f" {crowd.windows} windows of 30 ms (one question a client and member: {one_each:,});"
        f" the longest waited {crowd.longest:.2f} s"
    )


if __name__ == "__main__":
    main()
