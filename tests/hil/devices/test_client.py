"""A program that publishes over TCP. Its journal tells which messages must arrive, even if the
gateway or a connection fails.
"""

import asyncio
import random
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import ValidationError

from gateway.errors import OncewayError
from hil import examples
from hil.bench.tables import ClientTable, SubscriberTable
from hil.clients.payloads import text_of
from hil.clients.publisher import InFlight
from hil.devices.client import Client
from hil.devices.subscriber import Subscriber
from hil.judge.sessions import wrong
from hil.observe.counters import wait_until
from hil.observe.history import Event, History, read
from hil.programs.process import Child, Children, Readiness, children, free_port
from hil.programs.site import onceway

Start = Callable[..., Awaitable[Child]]


@pytest.fixture
async def programs(tmp_path: Path) -> AsyncIterator[Children]:
    async with children(tmp_path / "logs") as made:
        yield made


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def gateway(tmp_path: Path, programs: Children, port: int) -> Start:
    """Return a function that starts a gateway. A later call starts it again with the same data."""

    async def start(spool: str = "") -> Child:
        config = tmp_path / "gateway.toml"
        config.write_text(
            f'[gateway]\nname = "g"\ndata = "{tmp_path / "data"}"\n[[listener]]\nbind ='
            f' "127.0.0.1:{port}"\nanonymous = true\n'
            '[uplink]\nlanding = "file:///landing"\n'
            f'[spool]\ntopics = ["sensors/#"]\n{spool}'
        )
        readiness = Readiness("gateway")
        child = await programs.start(
            "gateway", [onceway(), "gateway", "run", "--config", str(config)], env=readiness.env
        )
        await readiness.wait(child, 30)
        return child

    return start


def events(folder: Path, name: str) -> list[Event]:
    return [event for event in read(folder / "history.jsonl") if event.event == name]


def stored(folder: Path) -> list[tuple[str, int, int, bytes]]:
    with closing(sqlite3.connect(folder / "data" / "gateway.db")) as database:
        return list(
            database.execute("SELECT device, incarnation, sequence, payload FROM spool ORDER BY id")
        )


async def test_acknowledged_messages_are_stored_despite_a_kill(
    tmp_path: Path, programs: Children, gateway: Start, port: int
) -> None:
    running = await gateway()
    history = History(tmp_path / "history.jsonl")
    client = Client(
        "client-1", ClientTable(messages=40, payload_bytes=300, per_s=100), 1, programs, history
    )
    await client.start({"": port})
    following = asyncio.create_task(client.follow())
    await wait_until(lambda: client.journalled >= 10)
    await running.kill()
    await gateway()
    await asyncio.wait_for(following, 60)
    client.close()
    journal = [
        (event.data["device"], 1, event.data["sequence"], bytes.fromhex(event.data["payload"]))
        for event in events(tmp_path, "publication")
    ]
    assert [sequence for _, _, sequence, _ in journal] == list(range(1, 41))
    assert {event.data["qos"] for event in events(tmp_path, "publication")} == {2}
    assert events(tmp_path, "waiting") == []
    rows = stored(tmp_path)
    assert sorted(set(rows)) == journal
    assert len(rows) <= 40 + len(events(tmp_path, "again"))


async def test_a_message_that_is_refused_is_reported_and_sent_again_until_it_is_accepted(
    tmp_path: Path, programs: Children, gateway: Start, port: int
) -> None:
    running = await gateway("max_bytes = 3000\n")
    history = History(tmp_path / "history.jsonl")
    client = Client(
        "client-1", ClientTable(messages=12, payload_bytes=500, per_s=1000), 1, programs, history
    )
    await client.start({"": port})
    following = asyncio.create_task(client.follow())
    await wait_until(lambda: events(tmp_path, "again"))
    assert client.waiting == 1
    await running.stop()
    await gateway()  # with room for all
    await asyncio.wait_for(following, 60)
    assert [sequence for _, _, sequence, _ in stored(tmp_path)] == list(range(1, 13))


async def test_unacknowledged_messages_wait(
    tmp_path: Path, programs: Children, gateway: Start, port: int
) -> None:
    running = await gateway()
    history = History(tmp_path / "history.jsonl")
    client = Client("client-1", ClientTable(messages=10_000, per_s=1000), 1, programs, history)
    await client.start({"": port})
    following = asyncio.create_task(client.follow())
    await wait_until(lambda: client.journalled >= 5)
    await running.kill()
    await client.disconnect()
    await following
    client.close()
    assert len(events(tmp_path, "waiting")) <= 1
    assert len(events(tmp_path, "publication")) - len(events(tmp_path, "waiting")) <= len(
        stored(tmp_path)
    )


async def test_the_longest_message_is_reported_whole(
    tmp_path: Path, programs: Children, gateway: Start, port: int
) -> None:
    await gateway()
    history = History(tmp_path / "history.jsonl")
    client = Client(
        "client-1", ClientTable(messages=2, payload_bytes=100_000, per_s=1000), 1, programs, history
    )
    await client.start({"": port})
    await asyncio.wait_for(client.follow(), 60)
    assert [bytes.fromhex(event.data["payload"]) for event in events(tmp_path, "publication")] == [
        row[3] for row in stored(tmp_path)
    ]
    assert [len(row[3]) for row in stored(tmp_path)] == [100_000, 100_000]


@pytest.mark.parametrize("qos", [1, 2])
async def test_the_strict_client_uses_its_identifiers_over_and_over_and_resumes_its_session(
    tmp_path: Path, programs: Children, gateway: Start, port: int, qos: int
) -> None:
    running = await gateway()
    history = History(tmp_path / "history.jsonl")
    table = ClientTable.model_validate(
        {
            "program": "strict",
            "qos": qos,
            "messages": 60,
            "per_s": 100,
            "in_flight": 3,
            "identifiers": 3,
            "first_identifier": 65_534,
        }
    )
    client = Client("client-1", table, 1, programs, history)
    await client.start({"": port})
    following = asyncio.create_task(client.follow())
    await wait_until(lambda: client.journalled >= 20)
    await running.kill()
    await gateway()
    await asyncio.wait_for(following, 60)
    client.close()
    assert events(tmp_path, "waiting") == events(tmp_path, "again") == []
    assert sorted(client.acknowledged) == list(range(1, 61))
    sequences = [sequence for _, _, sequence, _ in stored(tmp_path)]
    assert sorted(set(sequences)) == list(range(1, 61))
    assert len(sequences) <= 60 + (len(events(tmp_path, "resent")) if qos == 1 else 0)


async def test_a_subscriber_gets_what_it_is_owed_though_the_gateway_is_killed(
    tmp_path: Path, programs: Children, gateway: Start, port: int
) -> None:
    running = await gateway()
    history = History(tmp_path / "history.jsonl")
    subscriber = Subscriber(
        "subscriber-1", SubscriberTable(stays_s=0.3, away_s=0.2), programs, history
    )
    table = ClientTable(program="strict", messages=60, per_s=60, in_flight=5)
    client = Client("client-1", table, 1, programs, history)
    await subscriber.start(port)
    listening = asyncio.create_task(subscriber.follow())
    await asyncio.wait_for(subscriber.until_subscribed(), 30)
    await client.start({"": port})
    following = asyncio.create_task(client.follow())
    await wait_until(lambda: client.journalled >= 20)
    assert subscriber.owed([client]) >= 0
    await running.kill()
    await gateway()
    await asyncio.wait_for(following, 60)
    async with asyncio.timeout(60):
        await wait_until(lambda: not subscriber.owed([client]))
    await subscriber.disconnect()
    await listening
    history.add("rig", "run", bench={"subscriber": [SubscriberTable().model_dump()]})
    subscriber.close()
    assert wrong(read(tmp_path / "history.jsonl")) == []
    assert {event.data["sequence"] for event in events(tmp_path, "received")} == set(range(1, 61))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"in_flight": 2}, 'need program = "strict"'),
        ({"first_identifier": 2}, 'need program = "strict"'),
        ({"hops": True}, 'hops needs program = "strict"'),
        (
            {"program": "strict", "in_flight": 3, "identifiers": 2},
            "need as many packet identifiers",
        ),
    ],
)
def test_an_impossible_table_is_refused(table: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ClientTable.model_validate(table)


def test_a_payload_has_its_size_and_says_whose_it_is() -> None:
    for size in (0, 1, 11, 100, 100_000):
        payload = text_of("client-1", 7, size, random.Random(1))
        assert len(payload) == size
        assert payload == b"client-1 7 "[:size] + payload[11:]
    assert text_of("client-1", 7, 50, random.Random(1)) == text_of(
        "client-1", 7, 50, random.Random(1)
    )


def test_message_republished_by_paho_after_pubrec_is_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    under_way = InFlight()

    def log(*texts: str) -> None:
        for text in texts:
            under_way.follow(None, None, 0, text)  # type: ignore[arg-type]

    under_way.begin(7)
    log(
        "Sending PUBLISH (d0, q2, r0, m7)",
        "Received PUBREC (Mid: 7)",
        "Sending PUBREL (Mid: 7)",
    )
    assert capsys.readouterr().out == ""
    log("Sending PUBLISH (d1, q2, r0, m7)", "Sending PUBLISH (d1, q2, r0, m7)")
    said, once_more = capsys.readouterr().out.splitlines()
    assert '"event": "again", "sequence": 7' in said
    assert '"event": "resent", "sequence": 7' in once_more
    under_way.begin(8)
    log("Sending PUBLISH (d0, q2, r0, m8)")
    assert capsys.readouterr().out == ""


PUBLISHED = '{"event": "publication", "sequence": 1, "topic": "sensors/a", "payload": "61"}'
HAS = '{"event": "acknowledged", "sequence": 1}'


async def says(tmp_path: Path, programs: Children, *lines: str, qos: int = 2) -> Client:
    """Run a foreign client that prints these lines and ends. Follow it until then."""
    script = tmp_path / "says.sh"
    script.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join([*lines, "END", ""]))
    script.chmod(0o755)
    table = ClientTable.model_validate({"command": [str(script)], "messages": 1, "qos": qos})
    client = Client("client-1", table, 1, programs, History(tmp_path / "history.jsonl"))
    await client.start({"": 1883})
    await asyncio.wait_for(client.follow(), 60)
    return client


async def test_foreign_program_reports_by_the_line_protocol(
    tmp_path: Path, programs: Children
) -> None:
    """If a line has no time, its event gets the time at which the rig read the previous line. At
    that moment, the program had not yet sent the message.
    """
    before = time.monotonic_ns()
    client = await says(tmp_path, programs, PUBLISHED, HAS)
    assert client.done
    [told] = events(tmp_path, "publication")
    assert before <= told.t <= time.monotonic_ns()
    assert (told.data["topic"], told.data["payload"]) == ("sensors/a", "61")


@pytest.mark.parametrize(
    ("lines", "line", "why"),
    [
        (["hello"], 1, "it is not JSON"),
        ([PUBLISHED, PUBLISHED], 2, "sequence 1 was already published"),
        ([HAS], 1, "sequence 1 was never published"),
        ([PUBLISHED, HAS, HAS], 3, "sequence 1 waits for no acknowledgement"),
        ([PUBLISHED, "x" * 2_000_000], 2, "longer than"),
    ],
)
async def test_program_that_breaks_the_line_protocol_is_named_with_its_line(
    tmp_path: Path, programs: Children, lines: list[str], line: int, why: str
) -> None:
    with pytest.raises(OncewayError) as told:
        await says(tmp_path, programs, *lines)
    assert told.value.what.startswith(f"client-1: line {line} of its standard output is not of the")
    assert why in told.value.what


async def test_program_at_qos_0_acknowledges_nothing(tmp_path: Path, programs: Children) -> None:
    with pytest.raises(OncewayError, match="waits for no acknowledgement"):
        await says(tmp_path, programs, PUBLISHED, HAS, qos=0)


async def test_example_programs_publish_the_reported_messages(
    tmp_path: Path, programs: Children, gateway: Start, port: int
) -> None:
    await gateway()
    history = History(tmp_path / "history.jsonl")
    folder = Path(examples.__file__).parent
    commands = [
        [sys.executable, str(folder / "aiomqtt_client.py")],
        [str(folder / "mosquitto_pub.sh")],
    ]
    clients = [
        Client(
            f"client-{number}",
            ClientTable.model_validate({"command": command, "messages": 3, "per_s": 50}),
            1,
            programs,
            history,
        )
        for number, command in enumerate(commands, 1)
    ]
    for client in clients:
        await client.start({"": port})
    await asyncio.wait_for(asyncio.gather(*(client.follow() for client in clients)), 60)
    assert all(client.done for client in clients)
    told = {
        (one.data["device"], 1, one.data["sequence"], bytes.fromhex(one.data["payload"]))
        for one in events(tmp_path, "publication")
    }
    assert len(told) == 6
    assert sorted(stored(tmp_path)) == sorted(told)
