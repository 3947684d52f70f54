"""The gateway's HTTP endpoints: metrics for Prometheus, and its health."""

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.broker.broker import Broker
from gateway.broker.store_rows import Recovered
from gateway.commands.control_client import ask
from gateway.commands.exit_codes import of_status
from gateway.config import Config, parse
from gateway.links.serial_port import LENT, PortStatus
from gateway.links.statistics import LinkStatistics
from gateway.mqtt.packets import (
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Version,
)
from gateway.mqtt.reason import ReasonCode as R
from gateway.store.times import CommitTimes
from gateway.system.causes import FULL
from gateway.web.health import STUCK_S, problems
from gateway.web.server import MOST_CONNECTIONS, WebServer
from gateway.web.source import Source
from tests.service.process import GatewayProcess, gateway
from tests.service.test_bad_disk import build, faulty
from tests.service.wire import READS, wire
from tests.store.drain import drain

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def configured(folder: Path, text: str = "", trust_clock: bool = False) -> tuple[Path, str, str]:
    path = folder / "gateway.toml"
    path.write_text(
        f'[gateway]\ndata = "{folder / "data"}"\ntrust_clock = {str(trust_clock).lower()}\n'
        f'[[listener]]\nbind = "127.0.0.1:0"\nanonymous = true\n[web]\nbind = "127.0.0.1:0"\n{text}'
        + ("" if "[uplink]" in text else '[uplink]\nlanding = "file:///landing"\n')
    )
    return folder / "data", "--config", str(path)


async def address(running: GatewayProcess) -> str:
    await running.logged("metrics at")
    line = next(line for line in running.log if "metrics at" in line)
    return line.partition("metrics at ")[2].partition("/metrics")[0]


def parsed(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def metrics(url: str) -> Samples:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return parsed(await answer.text())


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"onceway_{name}", tuple(sorted(labels.items()))]


async def test_metrics_count_the_traffic_of_clients(tmp_path: Path) -> None:
    acl = '[[acl]]\nwrite = ["sensors/#"]\nread = ["#"]\n'
    async with gateway(*configured(tmp_path, acl)) as running:
        url = await address(running)
        async with wire(running.port, Connect("kept", Version.V3_1_1, False)) as subscriber:
            subscriber.send(Subscribe(1, [Subscription("sensors/#", 1)]))
            await subscriber.take(Suback)
        async with wire(running.port, Connect("publisher")) as publisher:
            for number, reason in ((1, R.SUCCESS), (2, R.SUCCESS)):
                publisher.send(Publish("sensors/a", b"four", 1, number, retain=number == 1))
                assert (await publisher.take(Puback)).reason == reason
            publisher.send(Publish("other", b"x", 1, 3))
            assert (await publisher.take(Puback)).reason == R.NOT_AUTHORIZED
            found = await metrics(url)
    assert value(found, "messages_received_total", qos="1") == 3
    assert value(found, "messages_received_total", qos="2") == 0
    assert value(found, "received_bytes_total") > value(found, "sent_bytes_total") > 0
    assert value(found, "refused_total", request="publish", reason="not_authorized") == 1
    assert value(found, "refused_total", request="connect", reason="bad_user_name_or_password") == 0
    assert value(found, "connections", listener="127.0.0.1:0") == 1
    assert value(found, "connections_accepted_total") == 2
    assert (
        value(found, "sessions", state="connected"),
        value(found, "sessions", state="away"),
    ) == (1, 1)
    assert (
        value(found, "sessions_durable"),
        value(found, "subscriptions"),
        value(found, "retained_messages"),
    ) == (1, 1, 1)
    assert (
        value(found, "queue_messages"),
        value(found, "queue_longest_messages"),
        value(found, "inflight_messages"),
    ) == (2, 2, 0)
    assert value(found, "queue_bytes") == 2 * (4 + 64)
    assert (
        value(found, "retained_bytes")
        > 0
        < value(found, "subscription_bytes")
        < value(found, "memory_limit_bytes")
    )
    assert value(found, "partial_packet_bytes") == 0
    assert (
        value(found, "spool_messages"),
        value(found, "spool_full"),
        value(found, "store_writable"),
    ) == (2, 0, 1)
    commits = value(found, "store_commit_seconds_count")
    assert (
        commits
        == value(found, "store_commit_seconds_bucket", le="+Inf")
        == value(found, "store_fsync_seconds_count")
        >= 2
    )
    assert 0 < value(found, "store_fsync_seconds_sum") < value(found, "store_commit_seconds_sum")
    assert value(found, "store_bytes", file="database") > 0 < value(found, "store_free_bytes")
    assert value(found, "healthy") == 1
    assert found["process_resident_memory_bytes", ()] > 1e6


async def test_age_of_the_oldest_reading_is_known_after_a_restart(
    tmp_path: Path,
) -> None:
    arguments = configured(tmp_path, trust_clock=True)
    async with gateway(*arguments) as running, wire(running.port, Connect("c")) as client:
        for number in (1, 2, 3):
            client.send(Publish("t", b"x", 1, number))
            await client.take(Puback)
        await running.end()
    with closing(sqlite3.connect(tmp_path / "data" / "gateway.db")) as database, database:
        database.execute("UPDATE spool SET received = received - 3600000000")
        database.execute("DELETE FROM spool WHERE id = 1")
    async with gateway(*arguments) as running:
        url = await address(running)
        async with asyncio.timeout(30):
            while True:
                found = await metrics(url)
                if ("onceway_spool_oldest_seconds", ()) in found:
                    break
                await asyncio.sleep(0.05)
    assert 3600 <= value(found, "spool_oldest_seconds") < 3700
    assert value(found, "spool_messages") == 2


async def test_metrics_count_the_work_of_the_uplink(tmp_path: Path) -> None:
    landing, uplink = (
        tmp_path / "landing",
        f'[spool]\ntopics = ["#"]\n[uplink]\nlanding = "file://{tmp_path}/landing"\n',
    )
    data, *options = configured(tmp_path, uplink, trust_clock=True)

    async def run() -> int:
        command = [
            sys.executable,
            "-c",
            "from gateway.commands.main import main; main()",
            "uplink",
            "run",
            "--once",
            *options,
        ]
        return await (
            await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        ).wait()

    async with gateway(data, *options) as running:
        url = await address(running)
        async with wire(running.port, Connect("publisher")) as publisher:
            publisher.send(Publish("sensors/a", b"four", 1, 1))
            await publisher.take(Puback)
        before = await metrics(url)
        landing.write_text("in the way")
        assert await run() != 0
        failed = await metrics(url)
        landing.unlink()
        assert await run() == 0
        after = await metrics(url)
    names = (
        "uplink_running",
        "uplink_batch_landed",
        "uplink_batches_total",
        "uplink_readings_total",
        "uplink_failures_total",
    )
    assert [value(before, name) for name in names] == [0, 0, 0, 0, 0]
    assert [value(failed, name) for name in names] == [0, 0, 0, 0, 1]
    assert [value(after, name) for name in names] == [0, 1, 1, 1, 1]
    (batch,) = landing.glob("*/[!.]*/*.parquet")
    assert value(after, "uplink_sent_bytes_total") == batch.stat().st_size
    assert abs(value(after, "uplink_landed_timestamp_seconds") - batch.stat().st_mtime) < 60


async def test_full_spool_makes_the_gateway_unhealthy_until_it_has_room(tmp_path: Path) -> None:
    async with gateway(
        *configured(tmp_path, "[spool]\ndevices_share = 0.0\nmax_bytes = 190\n")
    ) as running:
        url = await address(running)
        connect = Connect("c", properties=READS)
        async with aiohttp.ClientSession() as session, wire(running.port, connect) as client:
            async with session.get(f"{url}/healthz") as answer:
                assert answer.status == 200
                assert (await answer.json())["status"] == "ok"
            for number, reason in ((1, R.SUCCESS), (2, R.SUCCESS), (3, R.QUOTA_EXCEEDED)):
                client.send(Publish("t", b"x", 1, number))
                assert (await client.take(Puback)).reason == reason
            async with session.get(f"{url}/healthz") as answer:
                assert answer.status == 503
                body = await answer.json()
                assert body["status"] == "failing"
                assert [item["part"] for item in body["problems"]] == ["spool"]
                assert "full (2 messages" in body["problems"][0]["what"]
            assert (
                value(
                    await metrics(url), "refused_total", request="publish", reason="quota_exceeded"
                )
                == 1
            )
            with closing(sqlite3.connect(tmp_path / "data" / "gateway.db")) as database, database:
                drain(database)
            async with asyncio.timeout(30):
                while True:
                    async with session.get(f"{url}/healthz") as answer:
                        if answer.status == 200:
                            break
                    await asyncio.sleep(0.05)


async def test_publishers_that_are_paused_are_shown_with_the_reason(tmp_path: Path) -> None:
    queue = "[limits]\nqueue_messages = 1\n[[queue]]\nfull = 'refuse the publisher'\n"
    async with gateway(*configured(tmp_path, queue)) as running:
        url = await address(running)
        async with aiohttp.ClientSession() as session:
            kept = Connect("kept", Version.V3_1_1, False)
            async with wire(running.port, kept) as subscriber:
                subscriber.send(Subscribe(1, [Subscription("t", 1)]))
                await subscriber.take(Suback)
            async with wire(running.port, Connect("c")) as client:
                client.send(Publish("t", b"x", 1, 1), Publish("t", b"x", 1, 2))
                await client.take(Puback)
                assert (await client.take(Disconnect)).reason == R.QUOTA_EXCEEDED
            async with session.get(f"{url}/healthz") as answer:
                (problem,) = (await answer.json())["problems"]
            assert problem == {
                "part": "publishers",
                "what": "1 publisher is paused: the queue of a subscriber has no room (1)",
            }
            found = await metrics(url)
            assert value(found, "publishers_paused", bound="queue") == 1
            assert value(found, "publishers_paused", bound="spool") == 0
            assert value(found, "turned_away_total", bound="queue") == 1
            # the problem is shown for five seconds: on a busy machine, a new process may need
            # longer
            (told,) = await asyncio.to_thread(ask, tmp_path / "data", do="status")
            assert (of_status(told), told["problems"]) == (1, [problem])
            async with (
                wire(running.port, kept) as subscriber,
                wire(running.port, Connect("c")) as c,
            ):
                subscriber.send(Puback((await subscriber.take(Publish)).packet_id), Pingreq())
                await subscriber.take(Pingresp)
                c.send(Publish("t", b"x", 1, 2, dup=True))
                assert await c.take(Puback) == Puback(2)
            async with session.get(f"{url}/healthz") as answer:
                assert answer.status == 200


async def test_disk_that_refuses_writes_makes_the_gateway_unhealthy_until_it_accepts_them(
    tmp_path: Path,
) -> None:
    library, plan = await asyncio.to_thread(build, "faults", tmp_path), tmp_path / "plan"
    environment = faulty(library, plan)
    async with (
        gateway(*configured(tmp_path), env=environment) as running,
        wire(running.port, Connect("c")) as client,
    ):
        url = await address(running)
        await asyncio.to_thread(plan.write_text, "enospc")
        client.send(Publish("t", b"x", 1, 1))
        await running.logged("the store accepts no data")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{url}/healthz") as answer:
                assert answer.status == 503
                (problem,) = (await answer.json())["problems"]
                assert (problem["part"], "accepts no data (" in problem["what"]) == ("store", True)
            found = await metrics(url)
            assert value(found, "store_writable") == value(found, "healthy") == 0
            assert value(found, "store_failures_total") >= 1
            await asyncio.to_thread(plan.write_text, "")
            await client.take(Puback)
            async with session.get(f"{url}/healthz") as answer:
                assert answer.status == 200


async def test_a_missing_serial_port_is_named_but_a_pattern_may_match_none(tmp_path: Path) -> None:
    port = tmp_path / "ttyNone"
    async with gateway(
        *configured(
            tmp_path, f'[[serial]]\nport = "{port}"\n[[serial]]\nport = "{tmp_path}/by-id/*"\n'
        )
    ) as running:
        url = await address(running)
        async with aiohttp.ClientSession() as session, session.get(f"{url}/healthz") as answer:
            assert answer.status == 503
            found = {item["what"].partition(":")[0] for item in (await answer.json())["problems"]}
            assert found == {str(port)}
        assert value(await metrics(url), "link_open", port=str(port)) == 0


# -- without a gateway process


def a_source(
    folder: Path,
    config: Config | None = None,
    ports: list[PortStatus] | None = None,
    waits_s: float = 0.0,
) -> Source:
    return Source(
        Broker(config or Config(), Recovered()),
        CommitTimes(),
        lambda: waits_s,
        lambda: ports or [],
        folder,
    )


def _fail(source: Source) -> None:
    source.broker.disk_lack = FULL.reason
    source.times.error = "database or disk is full"


def test_a_store_that_takes_no_data_is_a_problem(tmp_path: Path) -> None:
    source = a_source(tmp_path)
    assert problems(source) == []
    _fail(source)
    (problem,) = problems(source)
    assert (problem.part, "database or disk is full" in problem.what) == ("store", True)


def test_commit_that_never_ends_is_a_problem(tmp_path: Path) -> None:
    assert problems(a_source(tmp_path, waits_s=STUCK_S)) == []
    assert [problem.part for problem in problems(a_source(tmp_path, waits_s=STUCK_S + 1))] == [
        "store"
    ]


def a_port(path: str, is_open: bool, device: str | None = None) -> PortStatus:
    statistics = LinkStatistics(
        frames_received=7, crc_errors=2, retransmissions=1, reboots=3, round_trip=0.25
    )
    return PortStatus(path, is_open, device, None, None if is_open else "gone", statistics)


def test_lent_port_is_not_a_problem(tmp_path: Path) -> None:
    config = parse({"serial": [{"port": "/dev/ttyS1"}]}, "here")
    for problem, count in (("gone", 1), (LENT, 0)):
        ports = [replace(a_port("/dev/ttyS1", False), problem=problem)]
        assert len(problems(a_source(tmp_path, config, ports))) == count


def test_pattern_without_a_port_is_not_a_problem(tmp_path: Path) -> None:
    """For a pattern of ports, boards may be plugged in or not: a missing board is reported only if
    it is expected. A port that is named in full must exist.
    """
    config = parse({"serial": [{"port": "/dev/ttyACM*"}, {"port": "/dev/ttyS1"}]}, "here")
    ports = [
        a_port("/dev/ttyACM0", False),
        a_port("/dev/ttyACM1", True),
        a_port("/dev/ttyS1", True),
    ]
    assert problems(a_source(tmp_path, config, ports)) == []
    found = problems(a_source(tmp_path, config, ports[:1]))
    assert [problem.what for problem in found] == ["/dev/ttyS1: no such port"]
    assert problems(a_source(tmp_path, config, [ports[0], ports[2]])) == []


def test_pattern_with_an_existing_port_that_does_not_open_is_a_problem(tmp_path: Path) -> None:
    """/dev/null stands for a port that another program has open. Regular files are ignored, and so
    are second names of an open port.
    """
    (tmp_path / "ttyACM1").symlink_to("/dev/null")
    (tmp_path / "ttyACM2").touch()
    (tmp_path / "ttyACM3").symlink_to("/dev/zero")
    config = parse({"serial": [{"port": f"{tmp_path}/ttyACM*"}, {"port": "/dev/zero"}]}, "here")
    ports = [a_port(f"{tmp_path}/ttyACM{number}", number == 0) for number in range(5)] + [
        a_port("/dev/zero", True)
    ]
    assert [problem.what for problem in problems(a_source(tmp_path, config, ports))] == [
        f"{tmp_path}/ttyACM1: gone"
    ]


@asynccontextmanager
async def served(source: Source) -> AsyncIterator[tuple[str, int]]:
    server = WebServer("127.0.0.1", 0, source)
    await server.start()
    try:
        yield server.addresses[0]
    finally:
        await server.close()


async def test_links_are_shown_by_port_with_the_device_on_them(tmp_path: Path) -> None:
    ports = [a_port('/dev/"odd\\', True, "roof\n1"), a_port("/dev/ttyS0", False)]
    async with served(a_source(tmp_path, ports=ports)) as (host, port):
        found = await metrics(f"http://{host}:{port}")
    assert value(found, "link_open", port='/dev/"odd\\') == 1
    assert value(found, "link_open", port="/dev/ttyS0") == 0
    assert value(found, "link_device", port='/dev/"odd\\', device="roof\n1") == 1
    for name, count in (
        ("frames_received", 7),
        ("crc_errors", 2),
        ("retransmissions", 1),
        ("reboots", 3),
    ):
        assert value(found, f"link_{name}_total", port="/dev/ttyS0") == count
    assert value(found, "link_round_trip_seconds", port="/dev/ttyS0") == 0.25


async def test_the_number_of_series_does_not_follow_the_number_of_clients_or_ports(
    tmp_path: Path,
) -> None:
    few, many = a_source(tmp_path), a_source(tmp_path)
    for number in range(500):
        many.broker.new_session(f"c{number}", 0, 0, f"u{number}")
    async with served(few) as (_, first), served(many) as (_, second):
        assert (await metrics(f"http://127.0.0.1:{first}")).keys() == (
            await metrics(f"http://127.0.0.1:{second}")
        ).keys()
    ports = [a_port(f"/dev/pts/{number}", True) for number in range(1000)]
    async with served(a_source(tmp_path, ports=ports)) as (_, port):
        found = await metrics(f"http://127.0.0.1:{port}")
    assert sum(name == "onceway_link_open" for name, _ in found) == 256


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [("/", "GET", 404), ("/metrics", "POST", 405), ("/healthz", "HEAD", 503)],
)
async def test_unknown_path_or_method_gets_its_status_code(
    tmp_path: Path, path: str, method: str, status: int
) -> None:
    source = a_source(tmp_path)
    _fail(source)
    async with (
        served(source) as (host, port),
        aiohttp.ClientSession() as session,
        session.request(
            method, f"http://{host}:{port}{path}", headers={"Accept": "text/plain;version=x"}
        ) as answer,
    ):
        assert answer.status == status


async def test_number_of_silent_http_connections_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.web.server.LIFETIME_S", 1000.0)
    async with served(a_source(tmp_path)) as (host, port):
        silent = [await asyncio.open_connection(host, port) for _ in range(MOST_CONNECTIONS)]
        assert value(await metrics(f"http://{host}:{port}"), "healthy") == 1
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(silent[0][0].readexactly(1), 20)
        for _, kept in silent:
            kept.close()


async def test_silent_http_connection_is_soon_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.web.server.LIFETIME_S", 0.2)
    async with served(a_source(tmp_path)) as (host, port):
        for reader, writer in [
            await asyncio.open_connection(host, port) for _ in range(MOST_CONNECTIONS)
        ]:
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await asyncio.wait_for(reader.readexactly(1), 20)
            writer.close()
        monkeypatch.undo()
        assert value(await metrics(f"http://{host}:{port}"), "healthy") == 1
