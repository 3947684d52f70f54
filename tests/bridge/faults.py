"""Compare the bridges of mosquitto and Onceway under faults (`python -m tests.bridge.faults`; `make
soak` runs it). The bridge runs in the near broker and leads to the other broker, Debian's
mosquitto.

In: nothing. Out: the table in gateway/bridge/README.md. For each fault and each make of bridge, it
has three counts:

- messages at QoS 2 that the near broker acknowledged and that did not arrive at the other broker
within PATIENCE_S;
- messages that arrived at the other broker more than once;
- retained topics whose newest state is missing at one broker.

The program needs root, for a host name with two addresses.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.mqtt.packets import (
    Connect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
)
from tests.bridge.mosquitto import Mosquitto
from tests.links.certificates import Authority
from tests.service.process import GatewayProcess, free_port, start
from tests.service.wire import wire
from tests.system.test_dial import silent

PATIENCE_S = 30.0
"""Time limit, in seconds. Messages that are still missing after it count as lost, and topics that
still differ count as diverged.
"""
STATES = range(6)
LEVELS = "x/" * 198
"""Topic levels that the other broker accepts. With PREFIX in front, a topic has too many levels."""
PREFIX = "a/b/c/d/"


HOSTS = "127.0.0.1 localhost\n::1 two\n127.0.0.1 two\n"
"""A file /etc/hosts for the bridge: the host name `two` has two addresses. The first one never
answers.
"""
PACKETS = 14
"""Number of runs in which the near broker is killed: in run n, counted from 0, after n reads of the
proxy on the bridge's connection.
"""


class Proxy:
    """A proxy to a port of this machine. cuts: the next connection ends after the first number of
    bytes, the following connection after the second, and so on. rate: bytes per second; 0: no
    limit. packets: number of reads that are forwarded before the proxy sets `stopped` and forwards
    nothing more; None: no limit.
    """

    def __init__(self, port: int) -> None:
        self.cuts: list[int] = []
        self.rate = 0
        self.packets: int | None = None
        self.stopped = asyncio.Event()
        self.used = asyncio.Event()
        """Set as soon as the target of the proxy has sent bytes."""
        self.there = port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = self.cuts.pop(0) if self.cuts else sys.maxsize
        with suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.there)

            async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
                nonlocal left
                with suppress(OSError):
                    while left > 0 and (data := await source.read(min(left, 4096))):
                        if self.packets is not None:
                            if not self.packets:
                                self.stopped.set()
                                break
                            self.packets -= 1
                        left -= len(data)
                        target.write(data)
                        if source is far_reader:
                            self.used.set()
                        if self.rate:
                            await asyncio.sleep(len(data) / self.rate)
                writer.close()
                far_writer.close()

            await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))
        writer.close()


@dataclass(frozen=True)
class Place:
    """The address of the other broker. before: words in front of the near broker's command line.
    ca: the certificate authority of the other broker; None: no TLS.
    """

    host: str
    port: int
    before: tuple[str, ...] = ()
    ca: Path | None = None


class Near:
    """The near broker with its bridge. make: mosquitto or onceway. there: the other broker. both:
    whether all messages cross in both directions; otherwise only retained ones do.
    """

    def __init__(
        self, make: str, folder: Path, there: Place, prefix: str, bridges: int, both: bool
    ) -> None:
        self.port = free_port()
        self._make, self._there = make, there
        self._ours: GatewayProcess | None = None
        if make == "mosquitto":
            remote = f' "" {prefix}' if prefix else ""
            text = "allow_anonymous true\n" + "".join(
                f"connection b{number}\naddress {there.host}:{there.port}\n"
                f"bridge_protocol_version mqttv50\n"
                f"remote_clientid near-{number}\ncleansession false\nrestart_timeout 1\n"
                f"topic load/# {'both' if both else 'out'} 2{remote}\n"
                f"topic state/# both 2{remote}\n"
                + (f"bridge_cafile {there.ca}\n" if there.ca else "")
                for number in range(bridges)
            )
            self._theirs = Mosquitto(folder, text, there.before)
            self.port = self._theirs.port
            return
        folder.mkdir()
        self._file = folder / "gateway.toml"
        down = '["state/#", "load/#"]' if both else '["state/#"]'
        scheme, ca = ("mqtts", f'ca = "{there.ca}"\n') if there.ca else ("mqtt", "")
        self._file.write_text(
            f'gateway.name = "near"\ngateway.data = "{folder}/data"\nlimits.topic_levels = 300\n'
            f'[[listener]]\nbind = "127.0.0.1:{self.port}"\nanonymous = true\n'
            + "".join(
                f'[[bridge]]\nname = "b{number}"\nserver = "{scheme}://{there.host}:{there.port}"\n'
                f'{ca}up = ["load/#", "state/#"]\ndown = {down}\nprefix = "{prefix}"\n'
                for number in range(bridges)
            )
        )

    async def start(self) -> None:
        if self._make == "mosquitto":
            await self._theirs.start()
        else:
            self._ours = await start("--config", str(self._file), before=self._there.before)
            await self._ours.ready()

    async def end(self, number: int = signal.SIGTERM) -> None:
        if self._make == "mosquitto":
            await self._theirs.end(number)
        elif self._ours is not None:
            await self._ours.end(number)
            self._ours = None


class Pair:
    """Both brokers of a bridge, and the messages between the two."""

    def __init__(self, near: Near, far: Mosquitto, proxy: Proxy, prefix: str) -> None:
        self.near, self.far, self.proxy, self.prefix = near, far, proxy, prefix
        self.published: list[bytes] = []
        self.newest: dict[str, bytes] = {}
        """The retained messages that both brokers should have: payload by topic."""
        self.arrived: Counter[bytes] = Counter()
        self.renew: Callable[[], object] = lambda: None
        """A function that replaces the certificate of the other broker by a valid one. The broker
        uses it after its next start.
        """

    async def publish(self, count: int, topic: str = "load/x") -> None:
        """Publish messages at QoS 2 to the near broker, and wait for each PUBCOMP."""
        async with wire(self.near.port, Connect("publisher")) as client:
            for _ in range(count):
                payload = b"%d" % len(self.published)
                client.send(Publish(topic, payload, 2, 1))
                await client.pick(Pubrec)
                client.send(Pubrel(1))
                await client.pick(Pubcomp)
                self.published.append(payload)

    async def states(self, there: bool, text: bytes, *numbers: int) -> None:
        """Publish retained messages at QoS 0. there: at the other broker, otherwise at the near
        one. numbers: the topics. An empty text deletes the messages.
        """
        port, prefix = (self.far.port, self.prefix) if there else (self.near.port, "")
        async with wire(port, Connect("states")) as client:
            for number in numbers:
                topic = f"state/{number}"
                client.send(Publish(prefix + topic, text, 0, 0, True))
                self.newest[topic] = text
                if not text:
                    del self.newest[topic]
            client.send(Publish("end", b"", 0))
            await asyncio.sleep(0.2)

    async def listen(self) -> None:
        """Count the messages that arrive at the other broker, by payload. After each loss of the
        connection, connect and subscribe again.
        """
        while True:
            with suppress(OSError, AssertionError, TimeoutError):
                async with wire(self.far.port, Connect("listener")) as client:
                    client.send(Subscribe(1, [Subscription(f"{self.prefix}load/#", 1)]))
                    await client.pick(Suback)
                    while True:
                        packet = await client.pick(Publish, 3600)
                        if packet.qos:
                            client.send(Puback(packet.packet_id))
                        self.arrived[packet.payload] += 1
            await asyncio.sleep(0.05)

    async def held(self, there: bool) -> dict[str, bytes]:
        port, prefix = (self.far.port, self.prefix) if there else (self.near.port, "")
        found: dict[str, bytes] = {}
        with suppress(TimeoutError):
            async with wire(port, Connect("reader")) as client:
                client.send(Subscribe(1, [Subscription(f"{prefix}state/#", 0)]))
                while True:
                    packet = await client.pick(Publish, 0.3)
                    found[packet.topic.removeprefix(prefix)] = packet.payload
        return found

    async def outcome(self) -> tuple[int, int, int]:
        """Return the numbers of lost messages, of doubled messages, and of topics that differ. Wait
        at most PATIENCE_S until nothing is lost or differs.
        """
        loop = asyncio.get_running_loop()
        until, both = loop.time() + PATIENCE_S, list[dict[str, bytes]]()
        while loop.time() < until:
            both = [await self.held(False), await self.held(True)]
            if both[0] == both[1] == self.newest and not set(self.published) - set(self.arrived):
                break
        await asyncio.sleep(1)
        differ = set[tuple[str, bytes]]()
        for end in both:
            differ |= {*end.items()} ^ {*self.newest.items()}
        lost = len(set(self.published) - set(self.arrived))
        doubled = sum(self.arrived[one] > 1 for one in self.published)
        return lost, doubled, len({topic for topic, _ in differ})


@asynccontextmanager
async def pair(
    make: str,
    prefix: str = "",
    bridges: int = 1,
    far: str = "",
    loop: bool = False,
    dead: bool = False,
    expired: bool = False,
) -> AsyncIterator[Pair]:
    """Start both brokers. far: lines for the configuration of the other broker. loop: the other
    broker has a bridge back to the near one. dead: the first address of the other broker never
    answers. expired: the certificate of the other broker has expired.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        back = Proxy(0)
        text = f"allow_anonymous true\n{far}\n"
        if loop:
            port = await listen(stack, back)
            text += f"connection back\naddress 127.0.0.1:{port}\nbridge_protocol_version mqttv50\n"
            text += "cleansession false\nrestart_timeout 1\nnotifications false\n"
            text += "topic load/# out 2\n"
        authority, other = Authority(folder), free_port()
        if expired:
            certificate, key = authority.issue("far", expired=True)
            text += f"listener {other} 127.0.0.1\ncertfile {certificate}\nkeyfile {key}\n"
        there = Mosquitto(folder / "far", text)
        proxy = Proxy(other if expired else there.port)
        port = await listen(stack, proxy)
        place = Place("127.0.0.1", port, ca=authority.path if expired else None)
        if dead:
            (folder / "hosts").write_text(HOSTS)
            stack.enter_context(silent("::1", port))
            shell = f'mount --bind {folder}/hosts /etc/hosts && exec "$@"'
            place = Place("two", port, ("unshare", "-m", "sh", "-c", shell, "sh"))
        near = Near(make, folder / "near", place, prefix, bridges, bridges > 1)
        back.there = near.port
        for broker in (there, near):
            await broker.start()
            stack.push_async_callback(broker.end, signal.SIGKILL)
        if loop:
            await asyncio.wait_for(back.used.wait(), PATIENCE_S)
        both = Pair(near, there, proxy, prefix)
        both.renew = lambda: authority.issue("far")
        task = asyncio.create_task(both.listen())
        stack.callback(task.cancel)
        await both.states(False, b"first", *STATES)
        await both.publish(1)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while await both.held(True) != await both.held(False) or not both.arrived:
                    pass
        await asyncio.sleep(3)
        yield both


async def listen(stack: AsyncExitStack, proxy: Proxy) -> int:
    """Start a proxy, and return its port."""
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    stack.callback(server.close)
    return int(server.sockets[0].getsockname()[1])


async def changes(both: Pair) -> None:
    await both.far.end()
    await both.publish(20)
    await both.states(False, b"ours", 0, 1)
    await both.far.start()
    await both.states(True, b"theirs", 2, 3)


async def deletions(both: Pair) -> None:
    await both.far.end()
    await both.publish(20)
    await both.states(False, b"", 0, 1)
    await both.far.start()
    await both.states(True, b"", 2, 3)


async def far_without_store(both: Pair) -> None:
    await both.far.end(signal.SIGKILL)
    await both.publish(20)
    await both.far.start()


async def near_restart(both: Pair) -> None:
    await both.publish(20)
    await both.near.end()
    await both.states(True, b"theirs", 2, 3)
    await both.near.start()


async def near_killed(both: Pair) -> None:
    await both.publish(20)
    await both.near.end(signal.SIGKILL)
    await both.states(True, b"theirs", 2, 3)
    await both.near.start()


async def cuts(both: Pair) -> None:
    await both.far.end()
    await both.publish(20)
    both.proxy.cuts = [*range(150, 450, 15)]
    await both.far.start()
    async with asyncio.timeout(200):
        while both.proxy.cuts:  # without traffic, a connection would not reach its number of bytes
            await both.publish(1)
            await asyncio.sleep(1)


async def slow(both: Pair) -> None:
    both.proxy.rate = 2_000
    await both.near.end()
    await both.near.start()
    await both.publish(20)
    await both.states(False, b"ours", 0, 1)


async def traffic(both: Pair) -> None:
    await both.publish(20)
    await both.states(False, b"ours", 0, 1)


async def killed_at_each_packet(both: Pair) -> None:
    for number in range(PACKETS):
        await both.near.end(signal.SIGKILL)
        both.proxy.stopped.clear()
        both.proxy.packets = number
        await both.near.start()
        await both.publish(1)
        with suppress(TimeoutError):
            await asyncio.wait_for(both.proxy.stopped.wait(), 5)
    await both.near.end(signal.SIGKILL)
    both.proxy.packets = None
    await both.near.start()


async def renewed(both: Pair) -> None:
    await both.publish(20)
    assert not both.arrived, "the certificate has expired"
    both.renew()
    await both.far.end()
    await both.far.start()


async def deep(both: Pair) -> None:
    await both.publish(1, f"load/{LEVELS}x")
    both.published.pop()  # the other broker refuses this message
    await both.publish(20)


FAULTS: dict[str, tuple[Callable[[Pair], Awaitable[None]], dict[str, object]]] = {
    "outage with changes at both ends": (changes, {}),
    "outage with deletions at both ends": (deletions, {}),
    "other broker killed without its store": (far_without_store, {}),
    "restart here, with changes there": (near_restart, {}),
    "killed here, with changes there": (near_killed, {}),
    "killed here at each of 14 packets": (killed_at_each_packet, {}),
    "a line of 2 kB/s": (slow, {}),
    "other broker has one message in flight": (traffic, {"far": "max_inflight_messages 1"}),
    "other broker takes QoS 0 only": (traffic, {"far": "max_qos 0"}),
    "a topic with 203 levels before others": (deep, {"prefix": PREFIX}),
    "connection cut at 20 places": (cuts, {}),
    "two bridges over the same topics": (traffic, {"bridges": 2}),
    "two bridges into each other": (traffic, {"loop": True}),
    "a name whose first address is silent": (traffic, {"dead": True}),
    "expired certificate, renewed later": (renewed, {"expired": True}),
}
"""Faults by name: the function that causes the fault, and arguments of `pair`."""


async def outcome(fault: str, make: str) -> str:
    """Run one fault with one make of bridge. Return the three counts of the table, separated by
    slashes, or "no end" after 600 s.
    """
    act, more = FAULTS[fault]
    try:
        async with asyncio.timeout(600), pair(make, **more) as both:  # type: ignore[arg-type]
            await act(both)
            return " / ".join(map(str, await both.outcome()))
    except TimeoutError:
        return "no end"


async def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.bridge.faults")
    parser.add_argument("faults", nargs="*", default=[], help="begin with these words")
    wanted = tuple(parser.parse_args().faults)
    sys.stdout.write(row("fault", "mosquitto's", "this one"))
    for fault in FAULTS:
        if not wanted or fault.startswith(wanted):
            found = [await outcome(fault, make) for make in ("mosquitto", "onceway")]
            sys.stdout.write(row(fault, *found))
            sys.stdout.flush()


def row(fault: str, theirs: str, ours: str) -> str:
    """Return a line of the table in gateway/bridge/README.md."""
    return f"    {fault:42}{theirs:14}{ours}\n"


if __name__ == "__main__":
    asyncio.run(main())
