"""Random schedules of a site: `python -m tests.site.soak --seeds 100000`.

Each schedule has a number; `--replay N` runs only schedule N. At the end, a table shows how often
each event happened: if, for example, no session moved, the schedules prove nothing. If a promise is
broken, the exit code is 1, and the schedule's number is printed.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from functools import partial
from random import Random

from tests.site.world import World

STEPS = 30
_PAUSES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.2, 3.0)

REACHED = (
    "0x92",
    "blackout",
    "PUBCOMP",
    "PUBREC",
    "broken off",
    "called back",
    "crash",
    "crash at a commit",
    "cut",
    "doubt",
    "here",
    "moved",
    "none",
    "paused",
    "restarted",
    "restored",
    "silent",
)


class Schedule:
    """A random schedule. number: its seed."""

    def __init__(self, number: int) -> None:
        self.random = random = Random(number)
        self.world = World(
            random, members=random.choice((2, 3, 3, 3)), clients=random.choice((1, 2))
        )
        self.world.eager = random.choice((0.0, 0.3, 1.0))
        self.copies = {
            name: (dict(gateway.disk), set(gateway.written))
            for name, gateway in self.world.gateways.items()
        }
        harm = random.choice((0, 1, 1, 3))
        self.acts = (
            *[self.come] * 5,
            self.bounce,
            *[self.publish] * 8,
            self.leave,
            *[self.crash, self.cut, self.cut, self.pause] * harm,
            *[self.restart, self.blackout] * (harm > 0),
            *[self.slow_disk, self.expire, self.copy],
            *[self.restore] * (harm > 1),
        )
        if harm:
            self.world.crashes = random.choice((0, 0, 0.01, 0.05))
            self.world.breaks = random.choice((0, 0, 0.02, 0.1))

    def run(self) -> Counter[str]:
        """Run the schedule; return how often each event happened. Raises AssertionError if a
        promise is broken.
        """
        for _ in range(STEPS):
            self.random.choice(self.acts)()
            self.world.run(self.random.choice(_PAUSES))
        self.world.settle()
        self.quiet()
        return self.world.reached

    def quiet(self) -> None:
        """Check that each client finds its complete session at every gateway after all faults are
        over.
        """
        world = self.world
        for client in world.clients:
            for visit, name in enumerate(self.random.sample(world.names, len(world.names))):
                before = world.reached["doubt"]
                if visit:
                    client.marked = False
                client.connect(name)
                for _ in range(20):
                    world.run(0.1)
                    if client.accepted:
                        break
                assert client.accepted, f"{client.name} is not let in at {name}"
                assert world.reached["doubt"] == before or not visit, "a doubt in quiet times"
                client.publish()
                client.publish()
                world.run(0.05)
        world.settle(3.0)
        for client in world.clients:
            assert len(world.places(client.name)) == 1, f"{client.name} has no place"
        for gateway in world.gateways.values():
            if gateway.member is not None:
                statistics = gateway.member.statistics
                world.reached["moved"] += statistics.moved_in
                world.reached["silent"] += statistics.silent

    def come(self) -> None:
        client = self.random.choice(self.world.clients)
        if self.random.random() < 0.3:
            client.leave(notice=False)
        client.connect(self.random.choice(self.world.names), self.random.random() < 0.15)

    def bounce(self) -> None:
        """Connect a client to a member. During the session lookup there, move the client to another
        member and back.
        """
        client = self.random.choice(self.world.clients)
        there, back = self.random.sample(self.world.names, 2)
        client.connect(back)
        moment = self.random.choice((0.03, 0.1, 0.7))
        self.world.after(moment, partial(client.connect, there))
        moment += self.random.choice((0.03, 0.1, 0.7))
        self.world.after(moment, client.publish)
        self.world.after(moment + 0.02, partial(client.connect, back))

    def publish(self) -> None:
        client = self.random.choice(self.world.clients)
        for identifier, (_, said) in list(client.flight.items()):
            if said == "PUBREL" and self.random.random() < 0.5:
                client._say(identifier)
        client.publish()

    def leave(self) -> None:
        self.random.choice(self.world.clients).leave(self.random.random() < 0.5)

    def crash(self) -> None:
        name = self.random.choice(self.world.names)
        self.world.crash(name)
        self.world.after(self.random.choice((0.0, 0.3, 2.0, 9.0)), partial(self.world.start, name))

    def blackout(self) -> None:
        """Crash all members at once, and start them in any order."""
        self.world.reached["blackout"] += 1
        for name in self.random.sample(self.world.names, len(self.world.names)):
            self.world.crash(name)
            self.world.after(self.random.choice((0.0, 0.3, 2.0)), partial(self.world.start, name))

    def restart(self) -> None:
        """Stop a member and start it again, as for a new version. The other members hear that it
        stops.
        """
        name = self.random.choice(self.world.names)
        self.world.reached["restarted"] += 1
        self.world.crash(name, stopped=True)
        self.world.after(self.random.choice((0.3, 2.0, 4.0)), partial(self.world.start, name))

    def cut(self) -> None:
        one, other = self.random.sample(self.world.names, 2)
        self.world.cut(one, other)
        seconds = self.random.choice((0.1, 0.6, 1.0, 2.5, 8.0))
        self.world.after(seconds, partial(self.world.heal, one, other))

    def pause(self) -> None:
        gateway = self.world.gateways[self.random.choice(self.world.names)]
        self.world.reached["paused"] += 1
        gateway.paused = True
        self.world.after(self.random.choice((0.1, 0.8, 2.0)), gateway.resume)

    def slow_disk(self) -> None:
        self.world.commit_max = self.random.choice((0.0, 0.02, 0.02, 0.5))

    def expire(self) -> None:
        client = self.random.choice(self.world.clients)
        for name, record in self.world.places(client.name):
            gateway = self.world.gateways[name]
            if client.connection is None and record.session is not None:
                gateway.run(partial(gateway.expire, client.name))

    def copy(self) -> None:
        name = self.random.choice(self.world.names)
        gateway = self.world.gateways[name]
        self.copies[name] = (dict(gateway.disk), set(gateway.written))

    def restore(self) -> None:
        name = self.random.choice(self.world.names)
        self.world.crash(name)
        self.world.reached["restored"] += 1
        self.world.gateways[name].restore(*self.copies[name])
        for client in self.world.clients:
            client.marked = True
        self.world.start(name)


def run_schedule(number: int) -> Counter[str]:
    """Run one schedule. Return how often each event happened."""
    return Schedule(number).run()


def _try(number: int) -> tuple[int, Counter[str], str]:
    try:
        return number, run_schedule(number), ""
    except Exception as error:
        return number, Counter(), f"{type(error).__name__}: {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--replay", type=int)
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--all", action="store_true", help="do not stop at the first failure")
    arguments = parser.parse_args()
    if "PYTHONHASHSEED" not in os.environ:  # the order of sets matters, too
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONHASHSEED": "0"})
    if arguments.replay is not None:
        print(dict(run_schedule(arguments.replay)))
        return
    begin, reached, failed = time.monotonic(), Counter[str](), 0
    numbers = range(arguments.first, arguments.first + arguments.seeds)
    with multiprocessing.Pool(arguments.jobs) as pool:
        for number, counts, problem in pool.imap_unordered(_try, numbers, 20):
            reached += counts
            if problem:
                failed += 1
                print(f"schedule {number}: {problem} (--replay {number})", flush=True)
                if not arguments.all:
                    sys.exit(1)
    for what in REACHED:
        print(f"{what:20} {reached[what]:10,}")
    print(f"{len(numbers):,} schedules in {time.monotonic() - begin:.0f} s, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
