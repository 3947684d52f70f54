"""A running gateway reads its configuration again at SIGHUP. It keeps all sessions, and never uses
a configuration with mistakes.
"""

import asyncio
import os
import signal
import sqlite3
import ssl
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import pytest

from gateway.access.users import Users
from gateway.config import LimitsSection, parse
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Version,
)
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode as R
from tests.benchmarks.load import connect_packet
from tests.links.board import Board, Pty, until
from tests.links.certificates import Authority
from tests.service.process import GatewayProcess, free_port, gateway
from tests.service.wire import READS, Wire, wire

DONE, REFUSED = "users and certificates read again", "not reloaded"


class Site:
    """A gateway with a configuration file. plain: the section of its first listener."""

    def __init__(self, folder: Path) -> None:
        self.plain = f'[[listener]]\nbind = "127.0.0.1:{free_port()}"\nanonymous = true\n'
        self.data = folder / "data"
        self.path = folder / "gateway.toml"
        self.arguments = self.data, "--config", str(self.path)

    def write(self, *parts: str, name: str = "site") -> None:
        new = self.path.with_suffix(".new")
        new.write_text(f'[gateway]\nname = "{name}"\ndata = "{self.data}"\n' + "".join(parts))
        new.replace(self.path)  # at once, because the gateway may be reading the file

    async def reload(
        self, running: GatewayProcess, *parts: str, expected: str = DONE, **more: str
    ) -> None:
        """Write a new configuration and send SIGHUP. Wait until the log has the `expected` text."""
        self.write(*parts, **more)
        del running.log[:]
        running.process.send_signal(signal.SIGHUP)
        await running.logged(expected)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def ask(client: Wire, packet: Publish | Subscribe) -> int:
    """Send a packet. Return the reason code of its answer."""
    client.send(packet)
    if isinstance(packet, Subscribe):
        return (await client.take(Suback)).reasons[0]
    return (await client.take(Puback)).reason


async def test_limits_and_access_count_at_once_for_a_session_that_stays(site: Site) -> None:
    site.write(site.plain)
    async with gateway(*site.arguments) as running:
        async with wire(running.port, Connect("c", properties=READS)) as client:
            assert await ask(client, Publish("a/b/c", b"x", 1, 1)) == R.SUCCESS
            await site.reload(running, site.plain)
            assert await ask(client, Subscribe(1, [Subscription("one", 1)])) == R.GRANTED_QOS_1
            await site.reload(
                running,
                site.plain,
                "[limits]\nsubscriptions = 1\n[spool]\ntopics = ['up/#']\nmax_bytes = 1\n"
                "[uplink]\nlanding = 'file:///landing'\n",
            )
            assert await ask(client, Subscribe(2, [Subscription("two", 1)])) == R.QUOTA_EXCEEDED
            assert await ask(client, Publish("a/b/c", b"x", 1, 1)) == R.SUCCESS
            assert await ask(client, Publish("up/b/c", b"x", 1, 1)) == R.QUOTA_EXCEEDED
            await site.reload(running, site.plain, '[[acl]]\nwrite = ["mine/#"]\nread = ["one"]\n')
            assert await ask(client, Publish("a/b/c", b"x", 1, 1)) == R.NOT_AUTHORIZED
            assert await ask(client, Publish("mine/c", b"x", 1, 1)) == R.SUCCESS
            assert await ask(client, Subscribe(3, [Subscription("two", 1)])) == R.NOT_AUTHORIZED
        assert await running.end() == 0


async def test_uplink_that_is_added_or_removed_counts_at_once(site: Site, tmp_path: Path) -> None:
    """Other keys of [uplink] concern only the uplink, which is another process."""
    uplink = '[uplink]\nlanding = "file:///tmp/nowhere"\n'

    def spooled() -> list[str]:
        with closing(sqlite3.connect(site.data / "gateway.db")) as database:
            found = database.execute("SELECT CAST(payload AS TEXT) FROM spool ORDER BY id")
            return [payload for (payload,) in found]

    site.write(site.plain)
    async with gateway(*site.arguments) as running:
        await running.logged("publications are not kept")
        async with wire(running.port, Connect("c")) as client:
            assert await ask(client, Publish("t", b"1", 1, 1)) == R.SUCCESS
            await site.reload(running, site.plain, uplink)
            assert any("there is an [uplink]" in line for line in running.log)
            assert not any("next start" in line for line in running.log)
            assert await ask(client, Publish("t", b"2", 1, 1)) == R.SUCCESS
            await site.reload(running, site.plain, uplink, "batch_count = 7\n")
            await running.logged("uplink.batch_count has changed")
            assert await ask(client, Publish("t", b"3", 1, 1)) == R.SUCCESS
            await site.reload(running, site.plain)
            assert any("2 messages" in line for line in running.log)
            assert await ask(client, Publish("t", b"4", 1, 1)) == R.SUCCESS
        assert spooled() == ["2", "3"]
        assert await running.end() == 0


async def test_connack_properties_hold_until_the_client_leaves(site: Site) -> None:
    site.write(site.plain, "[limits]\npacket_bytes = 10_000\ntopic_aliases = 5\n")
    async with gateway(*site.arguments) as running, wire(running.port, Connect("old")) as old:
        await site.reload(running, site.plain, "[limits]\npacket_bytes = 1000\ntopic_aliases = 0\n")
        assert (
            await ask(old, Publish("t", bytes(5000), 1, 1, properties={PropertyId.TOPIC_ALIAS: 5}))
            == R.SUCCESS
        )
        new = Wire(*await asyncio.open_connection("127.0.0.1", running.port), Version.V5)
        new.send(Connect("new"))
        told = (await new.take(Connack)).properties or {}
        assert told[PropertyId.MAXIMUM_PACKET_SIZE] == 1000
        assert PropertyId.TOPIC_ALIAS_MAXIMUM not in told
        new.send(Publish("t", bytes(5000), 1, 1))
        assert (await new.take(Disconnect)).reason == R.PACKET_TOO_LARGE
        new.writer.close()


async def test_listeners_come_and_go_and_the_others_keep_their_connections(site: Site) -> None:
    site.write(site.plain)
    async with gateway(*site.arguments) as running:
        async with wire(running.port, Connect("stays")) as stays:
            v6 = free_port("::1")
            websocket = '[[listener]]\ntype = "websocket"\nbind = "127.0.0.1:0"\nanonymous = true\n'
            await site.reload(
                running,
                site.plain,
                websocket,
                f'[[listener]]\nbind = "[::1]:{v6}"\nanonymous = true\n',
            )
            leaves = Wire(*await asyncio.open_connection("::1", v6), Version.V5)
            leaves.send(Connect("leaves", properties={PropertyId.SESSION_EXPIRY_INTERVAL: 100}))
            await leaves.take(Connack)
            await site.reload(running, site.plain)
            assert (await leaves.take(Disconnect)).reason == R.ADMINISTRATIVE_ACTION
            with pytest.raises(OSError, match=r"Connect call failed|refused"):
                await asyncio.open_connection("::1", v6)
            assert await ask(stays, Publish("t", b"x", 1, 1)) == R.SUCCESS
            back = Wire(*await asyncio.open_connection("127.0.0.1", running.port), Version.V5)
            back.send(Connect("leaves", clean_start=False))
            assert (await back.take(Connack)).session_present
            back.writer.close()
        assert await running.end() == 0


async def test_a_plain_listener_becomes_a_tls_one_and_its_certificate_is_renewed(
    site: Site, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("gateway")
    context = ssl.create_default_context(cafile=str(authority.path))
    site.write(site.plain)
    async with gateway(*site.arguments) as running:
        tls = site.plain + f'tls = {{ certificate = "{certificate}", key = "{key}" }}\n'
        async with wire(running.port, Connect("plain")) as plain:
            await site.reload(running, tls)
            assert (await plain.take(Disconnect)).reason == R.ADMINISTRATIVE_ACTION

        async def secure() -> tuple[Wire, object]:
            client = Wire(
                *await asyncio.open_connection("127.0.0.1", running.port, ssl=context), Version.V5
            )
            client.send(Connect("secure"))
            assert (await client.take(Connack)).reason == R.SUCCESS
            return client, client.writer.get_extra_info("peercert")["serialNumber"]

        client, number = await secure()
        authority.issue("gateway")
        await site.reload(running, tls)
        assert await ask(client, Publish("t", b"x", 1, 1)) == R.SUCCESS
        other, renewed = await secure()
        assert renewed != number
        key.write_text("garbage")
        await site.reload(running, tls, expected=f"{REFUSED}, the old configuration stays in force")
        assert (await secure())[1] == renewed
        for item in (client, other):
            item.writer.close()


async def test_a_bad_file_leaves_the_old_one_in_force_and_says_key_value_and_reason(
    site: Site,
) -> None:
    site.write(site.plain)
    async with gateway(*site.arguments) as running, wire(running.port, Connect("c")) as client:
        taken = (
            f'[[listener]]\nbind = "127.0.0.1:{running.port}"\ntype ='
            ' "websocket"\n[[listener]]\nbind = "203.0.113.1:1883"\n'
        )
        for text, said in (
            (
                "[limits]\ninflight = 0\n" + site.plain,
                "limits.inflight = 0: input should be greater than or equal to 1",
            ),
            (site.plain + "colour = 1\n", "listener[1].colour: there is no such key"),
            ("[limits", "not TOML"),
            ("", "there is nothing to serve"),
            (taken, "this machine does not have that address"),
        ):
            await site.reload(running, text, expected=said)
            assert any(REFUSED in line for line in running.log)
            assert await ask(client, Publish("t", b"x", 1, 1)) == R.SUCCESS
            async with wire(running.port, Connect("d")) as other:
                assert await ask(other, Publish("t", b"x", 1, 1)) == R.SUCCESS
        await site.reload(
            running,
            site.plain,
            name="other",
            expected="gateway.name has changed: it takes effect at the next start",
        )
        assert await running.end() == 0


async def test_serial_ports_come_and_go_and_another_one_keeps_its_board(site: Site) -> None:
    stays, goes = Pty(), Pty()

    def serial(line: Pty, more: str = "open = true\n") -> str:
        return f'[[serial]]\nport = "{line.path}"\n{more}'

    site.write(site.plain, serial(stays))
    async with gateway(*site.arguments) as running:
        boards = [Board(stays, "roof-1"), Board(goes, "roof-2")]
        await until(lambda: boards[0].started)
        await site.reload(
            running, site.plain, serial(stays, "open = true\nreceive_maximum = 2\n"), serial(goes)
        )
        await until(lambda: boards[1].started)
        for number, board in enumerate(boards, 1):
            board.write(connect_packet(f"roof-{number}", clean=True))
        await until(lambda: all(board.received for board in boards))
        assert [board.received[3] for board in boards] == [R.SUCCESS, R.SUCCESS]
        await site.reload(running, site.plain, serial(stays, "open = false\n"))
        await until(lambda: boards[0].refused)  # the board is not registered
        files = f"/proc/{running.process.pid}/fd"
        opened = {os.readlink(f"{files}/{number}") for number in os.listdir(files)}
        assert [os.readlink(line.path) in opened for line in (stays, goes)] == [True, False]
        for board in boards:
            board.power_off()
        assert await running.end() == 0
    for line in (stays, goes):
        os.close(line.master)


async def test_reloads_in_the_middle_of_traffic_lose_nothing(site: Site) -> None:
    texts = [
        site.plain,
        site.plain.replace("anonymous", "receive_maximum = 2000\nanonymous")
        + "[limits]\ninflight = 500\n",
    ]
    site.write(texts[0])
    async with (
        gateway(*site.arguments) as running,
        wire(running.port, Connect("subscriber")) as subscriber,
        wire(running.port, Connect("publisher")) as publisher,
    ):
        assert await ask(subscriber, Subscribe(1, [Subscription("t", 1)])) == R.GRANTED_QOS_1
        for step in range(20):
            publisher.send(
                *(Publish("t", b"%d" % (50 * step + number), 1, number + 1) for number in range(50))
            )
            site.write(texts[step % 2])
            running.process.send_signal(signal.SIGHUP)
            for number in range(50):
                assert (await publisher.take(Puback)).packet_id == number + 1
                message = await subscriber.take(Publish)
                assert message.payload == b"%d" % (50 * step + number)
                subscriber.send(Puback(message.packet_id))
        assert not any(REFUSED in line for line in running.log)
        assert await running.end() == 0


async def test_client_no_longer_allowed_is_disconnected_with_the_reason(site: Site) -> None:
    site.plain = site.plain.replace("anonymous = true\n", "")
    site.write(site.plain)
    async with gateway(*site.arguments) as running, wire(running.port, Connect("nobody")) as nobody:
        Users(site.data / "users").add("alice", "right")
        await site.reload(running, site.plain)
        assert (await nobody.take(Disconnect)).reason == R.NOT_AUTHORIZED
        await running.logged("connections closed: 1, the listener no longer accepts such clients")
        async with wire(running.port, Connect("c", username="alice", password=b"right")) as alice:
            Users(site.data / "users").remove("alice")
            await site.reload(running, site.plain)
            assert (await alice.take(Disconnect)).reason == R.NOT_AUTHORIZED
        line = "connections closed: 1, the user was removed, or the password was changed: c ("
        await running.logged(line)
        assert await running.end() == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ""),
        (
            'tls = { certificate = "/nowhere/c", key = "/nowhere/k" }\n',
            "/nowhere/c: cannot be read",
        ),
        ('[access]\nusers = "/etc/hosts"\n', "/etc/hosts:1: this line does not describe a user"),
    ],
)
def test_check_config_looks_at_what_the_file_names(site: Site, text: str, said: str) -> None:
    site.write(site.plain, text)
    command = [
        sys.executable,
        "-m",
        "gateway",
        "gateway",
        "check-config",
        "--config",
        str(site.path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) is bool(said)
    assert said in done.stderr


def test_the_example_in_the_readme_is_a_configuration(tmp_path: Path) -> None:
    section = (
        (Path(__file__).parents[2] / "gateway/README.md")
        .read_text()
        .partition("## Users, access and limits")[2]
        .partition("\n## ")[0]
    )
    lines = [line.removeprefix("    ") for line in section.splitlines() if line.startswith("    ")]
    text = "\n".join(
        lines[next(index for index, line in enumerate(lines) if line.startswith("[[")) :]
    )
    found = parse(tomllib.loads(text), "gateway/README.md")
    assert [item.type for item in found.listener] == ["tcp", "websocket"]
    assert found.queueing("dashboard-1").full == "drop the oldest"
    defaults = LimitsSection()
    assert {
        key: getattr(defaults, key) for key in found.limits.model_fields_set
    } == found.limits.model_dump(exclude_unset=True)
