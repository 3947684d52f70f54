"""`[site] copies = 2`: an acknowledged message is on the disks of two gateways, or has landed."""

import json
import random
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.access.peer import DeviceIdentity
from gateway.mqtt.packets import (
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
)
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode
from gateway.site.errors import SiteError
from gateway.site.problems import copies_problems
from gateway.site.replication.messages import Rows, Told, encode
from gateway.site.replication.sending import WAIT_S
from gateway.store.copies import FILE, Copies
from gateway.uplink import copied
from gateway.uplink.manifest import Row
from gateway.uplink.numbers import Numbers
from gateway.uplink.spool import Cut, Spool, with_numbers
from tests.broker.harness import Client
from tests.site.wiring.test_local_member import Sites

SILENT_S = 600


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    return Sites("a", "b", "c", copies=tmp_path)


@pytest.fixture
def pair(tmp_path: Path) -> Sites:
    return Sites("a", "b", copies=tmp_path)


def publisher(sites: Sites, name: str, client_id: str = "p") -> Client:
    client = sites.connect(name, client_id, clean=True, wait=1.5)
    client.received.clear()
    return client


def kept(sites: Sites, name: str) -> list[bytes]:
    """Return the payloads of the replicas that a member has for other members."""
    folder = sites.members[name].folder
    assert folder is not None
    if not (folder / FILE).exists():
        return []
    with closing(sqlite3.connect(folder / FILE)) as database:
        return [row[0] for row in database.execute("SELECT payload FROM copy ORDER BY key")]


def figures(sites: Sites, name: str) -> dict[str, Any]:
    copies = sites.members[name].copies
    assert copies is not None
    return copies.figures()


class Table:
    """The table that the ingest makes of all landed batches, with one row for each key."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int, int], bytes] = {}
        self.landings = 0

    def land(self, sites: Sites, name: str, most: int = 1000) -> None:
        """Do the work of an uplink: cut a batch of at most `most` rows, land it, and remove its
        rows from the spool.
        """
        spool = uplink_of(sites, name)
        number, last = spool.last_cut()
        rows = spool.rows(last, most)
        if not rows:
            return
        numbered = with_numbers(rows, spool)
        cut = Cut(number + 1, rows[0][-1], rows[-1][-1], len(rows), 1, "", 0, None)
        nameless = spool.nameless()
        spool.record(cut, 1, b"", sum(row[0] == nameless for row in rows))
        for row in numbered:
            self.take(row)
        spool.landed(cut)
        lowest = spool.oldest()
        sites[name].broker.spool.landed(lowest)

    def take(self, row: Row) -> None:
        self.landings += 1
        key = row[0], row[1], row[2]
        assert self.rows.setdefault(key, row[5]) == row[5], f"two readings have the key {key}"

    def land_all(self, sites: Sites, *names: str) -> None:
        for name in names:
            while uplink_of(sites, name).waiting(1)[0]:
                self.land(sites, name)

    @property
    def payloads(self) -> list[bytes]:
        return sorted(self.rows.values())


def uplink_of(sites: Sites, name: str) -> Spool:
    spool = Spool.__new__(Spool)
    Numbers.__init__(spool, sites[name].database)
    return spool


def test_acknowledged_row_is_on_two_disks(pair: Sites) -> None:
    client = publisher(pair, "a")
    pair.members["b"].disk.stuck = True
    pair.say(client, Publish("spool/x", b"1", 1, 1))
    assert client.received == []
    pair.members["b"].disk.stuck = False
    pair.members["b"].disk.work()
    pair.settle()
    assert client.take(Puback) == Puback(1)
    assert kept(pair, "b") == [b"1"]
    assert figures(pair, "a") == {
        "copies_kept_bytes": 0,
        "copies_full": False,
        "copies_landed": 0,
        "copies_damaged": 0,
        "copies_at": "b",
        "copies_behind": 0,
        "copies_refusing": False,
    }


def test_landed_replicas_are_deleted(pair: Sites) -> None:
    client, table = publisher(pair, "a"), Table()
    for number in range(1, 6):
        pair.say(client, Publish("spool/x", b"%d" % number, 1, number), wait=0)
    table.land(pair, "a", 3)
    pair.pass_time(2)
    assert kept(pair, "b") == [b"4", b"5"]
    table.land(pair, "a")
    pair.pass_time(2)
    assert kept(pair, "b") == []
    assert figures(pair, "b")["copies_kept_bytes"] == 0


def test_a_burst_goes_in_few_frames_and_one_commit_confirms_it(pair: Sites) -> None:
    client = publisher(pair, "a")
    pair.frames.clear()
    sent: list[bytes] = []
    world = pair["a"]
    world.slow_disk = True
    pair.say(client, *(Publish("spool/x", b"m", 1, number) for number in range(1, 501)), wait=0)
    world.slow_disk = False
    while pair.step():
        sent += [frame for _, _, frame in pair.frames if frame[0] >= 0xA0]
    assert len(client.take_all(Puback)) == 500
    assert len(set(map(id, sent))) <= 4


def test_without_another_member_new_ones_are_refused(pair: Sites) -> None:
    client = publisher(pair, "a")
    pair.part("a", "b")
    pair.pass_time(WAIT_S + 2)
    assert figures(pair, "a")["copies_refusing"]
    pair.say(client, Publish("spool/x", b"1", 1, 1), Publish("other", b"2", 1, 2))
    refused, taken = client.take_all(Puback)
    assert (refused.reason, taken) == (ReasonCode.QUOTA_EXCEEDED, Puback(2))
    pair.join("a", "b")
    pair.pass_time(1)
    pair.say(client, Publish("spool/x", b"3", 1, 3))
    assert client.take(Puback) == Puback(3)
    assert kept(pair, "b") == [b"3"]


@pytest.mark.parametrize(("qos", "bound_s"), [(1, WAIT_S), (2, WAIT_S + SILENT_S)])
def test_client_without_a_replica_is_disconnected_with_the_reason(
    pair: Sites, qos: int, bound_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    """bound_s: seconds before the gateway closes the connection. A client with an unfinished QoS 2
    message has more time: at another gateway, its session may become suspect, and the client may
    then publish the message twice.
    """
    client, idle = publisher(pair, "a"), publisher(pair, "a", "idle")
    pair.part("a", "b")
    pair.say(client, Publish("spool/x", b"1", qos, 1), Publish("other", b"2", 1, 2))
    client.send(Pingreq())
    assert client.take_all() == [Pingresp()]
    pair.pass_time(bound_s - 2)
    assert not client.closed
    pair.pass_time(WAIT_S + 4)
    goodbye = client.take(Disconnect)
    assert client.closed
    assert goodbye.reason == ReasonCode.QUOTA_EXCEEDED
    assert "site.copies" in (goodbye.properties or {})[PropertyId.REASON_STRING]
    assert "connections closed: 1, no other gateway of the site has a copy" in caplog.text
    assert not idle.closed
    assert sum(map(len, pair["a"].broker.waits.copied.values())) == 0, "it takes no memory"
    back = publisher(pair, "a")
    pair.say(back, Publish("spool/x", b"3", 1, 3), Publish("other", b"4", 1, 4))
    refused, taken = back.take_all(Puback)
    assert (refused.reason, taken) == (ReasonCode.QUOTA_EXCEEDED, Puback(4))


def test_message_landed_within_the_qos_2_bound_is_acknowledged_on_the_same_connection(
    pair: Sites,
) -> None:
    client, table = publisher(pair, "a"), Table()
    pair.part("a", "b")
    pair.say(client, Publish("spool/x", b"1", 2, 1))
    pair.pass_time(SILENT_S - WAIT_S)
    table.land(pair, "a")
    pair.pass_time(2)
    assert client.take_all() == [Pubrec(1)]


def test_waiting_client_is_kept_until_each_member_was_tried(sites: Sites) -> None:
    client = publisher(sites, "a")
    sites.members["b"].disk.stuck = sites.members["c"].disk.stuck = True
    sites.say(client, Publish("spool/x", b"1", 1, 1))
    sites.pass_time(WAIT_S + 5)
    assert not client.closed
    sites.pass_time(WAIT_S)
    assert client.take(Disconnect).reason == ReasonCode.QUOTA_EXCEEDED


def test_a_board_waits_for_a_copy_as_long_as_it_takes(pair: Sites) -> None:
    """Member b is unreachable for three times WAIT_S. The board stays connected, and gets its
    PUBREC when b is back.
    """
    board = pair.connect("a", "uno-1", wait=1.5, device=DeviceIdentity("uno-1", 1, 1))
    board.received.clear()
    pair.part("a", "b")
    pair.say(board, Publish("spool/x", b"1", 2, 1))
    pair.pass_time(3 * WAIT_S)
    assert not board.closed
    pair.join("a", "b")
    pair.pass_time(1)
    assert board.take(Pubrec) == Pubrec(1)


def test_row_landed_meanwhile_is_acknowledged(pair: Sites) -> None:
    client, table = publisher(pair, "a"), Table()
    pair.part("a", "b")
    pair.say(client, Publish("spool/x", b"1", 2, 1))
    assert client.received == []
    table.land(pair, "a")
    pair.pass_time(2)
    assert client.take(Pubrec) == Pubrec(1)


def test_another_member_gets_what_has_not_landed_when_the_first_one_goes(sites: Sites) -> None:
    client, table = publisher(sites, "a"), Table()
    for number in range(1, 6):
        sites.say(client, Publish("spool/x", b"%d" % number, 1, number), wait=0)
    table.land(sites, "a", 2)
    assert kept(sites, "c") == []
    sites.part("a", "b")
    sites.say(client, Publish("spool/x", b"6", 1, 6))
    assert len(client.take_all(Puback)) == 6
    assert kept(sites, "c") == [b"3", b"4", b"5", b"6"]
    sites.join("a", "b")
    sites.pass_time(2)
    assert kept(sites, "b") == [b"3", b"4", b"5"]
    table.land(sites, "a")
    sites.pass_time(2)
    assert (kept(sites, "b"), kept(sites, "c")) == ([], [])


def test_a_member_that_does_not_confirm_is_left_for_another_one(sites: Sites) -> None:
    client = publisher(sites, "a")
    sites.members["b"].disk.stuck = True
    sites.say(client, Publish("spool/x", b"1", 1, 1))
    sites.pass_time(WAIT_S + 2)
    assert client.take(Puback) == Puback(1)
    assert figures(sites, "a")["copies_at"] == "c"


def test_rows_of_a_departed_gateway_are_landed_once_by_the_other(pair: Sites) -> None:
    client, table = publisher(pair, "a"), Table()
    stated = {PropertyId.USER_PROPERTY: [("incarnation", "7"), ("seq", "1")]}
    pair.say(client, Publish("spool/x", b"named", 1, 1, properties=stated))
    for number in range(2, 8):
        pair.say(client, Publish("spool/x", b"%d" % number, 1 + number % 2, number), wait=0)
    table.land(pair, "a", 3)
    pair.part("a", "b")
    pair.pass_time(SILENT_S - 5)
    assert pair["b"].rows("SELECT * FROM spool") == []
    pair.pass_time(10)
    assert kept(pair, "b") == []
    table.land_all(pair, "b")
    expected = sorted([b"named", *(b"%d" % number for number in range(2, 8))])
    assert table.payloads == expected
    # a was alive, and lands its own rows
    table.land_all(pair, "a")
    assert table.payloads == expected
    assert table.landings > len(expected)


def test_replica_that_the_disk_has_changed_is_a_problem_and_does_not_land(pair: Sites) -> None:
    client, table = publisher(pair, "a"), Table()
    for number in range(1, 4):
        pair.say(client, Publish("spool/x", b"%d" % number, 1, number), wait=0)
    assert kept(pair, "b") == [b"1", b"2", b"3"]
    folder = pair.members["b"].folder
    assert folder is not None
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        database.execute("UPDATE copy SET payload = x'39' WHERE payload = x'32'")
    assert copies_problems(figures(pair, "b")) == []
    pair.part("a", "b")
    pair.pass_time(SILENT_S + 5)
    table.land_all(pair, "b")
    assert table.payloads == [b"1", b"3"]
    assert figures(pair, "b")["copies_damaged"] == 1
    problem = copies_problems(figures(pair, "b"))[-1]
    assert "the disk has corrupted copies of other members' messages: 1 do not land" in problem


def test_member_without_uplink_keeps_what_another_one_leaves(
    pair: Sites, caplog: pytest.LogCaptureFixture
) -> None:
    """A member without an uplink could not land rows from its own spool, so it only stores the
    replicas.
    """
    with_uplink = pair["b"].broker.config
    pair["b"].broker.reconfigure(with_uplink.model_copy(update={"uplink": None}))
    client, table = publisher(pair, "a"), Table()
    pair.say(client, Publish("spool/x", b"1", 1, 1), Publish("spool/x", b"2", 1, 2))
    assert len(client.take_all(Puback)) == 2
    pair.part("a", "b")
    pair.pass_time(SILENT_S + 5)
    assert kept(pair, "b") == [b"1", b"2"]
    assert pair["b"].rows("SELECT * FROM spool") == []
    assert caplog.text.count("this gateway has no [uplink] that lands them") == 1
    pair["b"].broker.reconfigure(with_uplink)
    pair.pass_time(5)
    table.land_all(pair, "b")
    assert table.payloads == [b"1", b"2"]
    assert kept(pair, "b") == []


def test_without_uplink_no_second_disk_is_missed(
    pair: Sites, caplog: pytest.LogCaptureFixture
) -> None:
    for broker in (pair["a"].broker, pair["b"].broker):
        broker.reconfigure(broker.config.model_copy(update={"uplink": None}))
    client = publisher(pair, "a")
    pair.part("a", "b")
    pair.pass_time(WAIT_S + 5)
    pair.say(client, Publish("spool/x", b"1", 1, 1), Publish("spool/x", b"2", 2, 2))
    assert [packet.reason for packet in client.take_all()] == [ReasonCode.SUCCESS] * 2
    assert not figures(pair, "a")["copies_refusing"]
    assert "are refused" not in caplog.text
    assert pair["a"].rows("SELECT * FROM spool") == []


def test_copies_and_what_was_made_of_them_outlive_a_power_cut(pair: Sites) -> None:
    client, table = publisher(pair, "a"), Table()
    for number in range(1, 4):
        pair.say(client, Publish("spool/x", b"%d" % number, 1, number), wait=0)
    pair.members["a"].power_cut()
    pair.members["b"].power_cut()
    assert kept(pair, "b") == [b"1", b"2", b"3"]
    world = pair["b"]
    pair.members["b"].disk.stuck = False
    world.slow_disk = True
    pair.pass_time(SILENT_S + 5)
    pair.members["b"].power_cut()
    assert kept(pair, "b") == [b"1", b"2", b"3"], "they are not in its spool yet"
    world.slow_disk = False
    pair.pass_time(SILENT_S + 5)
    table.land_all(pair, "b")
    assert table.payloads == [b"1", b"2", b"3"]


@pytest.mark.parametrize("where", ["head", "inside"])
def test_a_shelf_that_cannot_be_read_is_put_aside_and_its_copies_come_again(
    pair: Sites, where: str
) -> None:
    client = publisher(pair, "a")
    for number in range(1, 101):
        pair.say(client, Publish("spool/x", bytes(500), 1, number), wait=0)
    assert len(client.take_all(Puback)) == 100
    member = pair.members["b"]
    assert member.folder is not None
    assert member.copies is not None
    member.copies._shelf.close()
    shelf = member.folder / FILE
    data = bytearray(shelf.read_bytes())
    begin = 0 if where == "head" else 3 * 4096
    data[begin : begin + 40_000] = bytes(40_000)
    shelf.write_bytes(data)
    member.power_cut()
    pair.join("a", "b")
    pair.pass_time(2)
    assert len(kept(pair, "b")) == 100
    assert shelf.with_name(f"{FILE}.damaged").exists()


def test_unstored_replica_is_not_landed(pair: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shelf does its work in the order of the calls. It repeats a write that fails until the
    write succeeds, and only then does the next piece of work.
    """
    client, table, write = publisher(pair, "a"), Table(), Copies.write
    fails = True

    def fail(*args: Any) -> None:
        if fails:
            raise sqlite3.OperationalError("disk I/O error")
        write(*args)

    monkeypatch.setattr(Copies, "write", fail)
    pair.say(client, *(Publish("spool/x", b"%d" % number, 1, number) for number in range(1, 4)))
    pair.part("a", "b")
    pair.pass_time(SILENT_S + 5)
    fails = False
    pair.pass_time(3)
    table.land_all(pair, "b")
    pair.join("a", "b")
    pair.pass_time(3)
    assert not client.take_all(Puback), "it was sent away"
    assert sorted([*kept(pair, "b"), *table.payloads]) == [b"1", b"2", b"3"]


def test_a_repeated_publish_is_not_answered_after_a_power_cut_before_it_is_safe(
    pair: Sites,
) -> None:
    client = pair.connect("a", "c")
    client.received.clear()
    pair.members["b"].disk.stuck = True
    pair.say(client, Publish("spool/x", b"1", 2, 9))
    pair.members["a"].power_cut()
    pair.join("a", "b")
    pair.pass_time(1)
    client = pair.connect("a", "c", wait=1.5)
    client.received.clear()
    pair.say(client, Publish("spool/x", b"1", 2, 9, dup=True))
    assert client.received == []
    pair.members["b"].disk.stuck = False
    pair.members["b"].disk.work()
    pair.pass_time(1)
    assert client.take(Pubrec) == Pubrec(9)
    assert kept(pair, "b") == [b"1"]


def test_restored_store_reuses_no_key(pair: Sites) -> None:
    """Rows that are missing in the restored store land at once, from the other member's copies."""
    client, table = publisher(pair, "a"), Table()
    pair.say(client, Publish("spool/x", b"before", 1, 1))
    backup = sqlite3.connect(":memory:", isolation_level=None)
    pair["a"].database.backup(backup)
    pair.say(client, Publish("spool/x", b"lost", 1, 2))
    assert len(client.take_all(Puback)) == 2
    member = pair.members["a"]
    pair["a"].database = backup
    member.restored = True
    member.power_cut()
    client = publisher(pair, "a")
    pair.say(client, Publish("spool/x", b"after", 1, 1), Publish("spool/x", b"more", 1, 2))
    pair.join("a", "b")
    pair.pass_time(3)
    assert client.take_all(Puback) == [Puback(1), Puback(2)]
    assert kept(pair, "b") == [b"before", b"after", b"more"]
    table.land_all(pair, "a", "b")
    assert table.payloads == [b"after", b"before", b"lost", b"more"]


def test_a_disk_that_has_lost_rows_loses_no_reading(pair: Sites) -> None:
    """The disk loses rows that the other member has confirmed. The other member lands its
    copies.
    """
    client, table = publisher(pair, "a"), Table()
    for number in range(1, 4):
        pair.say(client, Publish("spool/x", b"%d" % number, 1, number), wait=0)
    pair["a"].database.execute("DELETE FROM spool WHERE id > 1")
    pair.members["a"].power_cut()
    pair.join("a", "b")
    client = publisher(pair, "a")
    pair.say(client, Publish("spool/x", b"4", 1, 1), wait=3)
    table.land_all(pair, "a", "b")
    assert table.payloads == [b"1", b"2", b"3", b"4"]


def test_a_disk_that_has_lost_rows_and_has_others_by_then_loses_no_reading(pair: Sites) -> None:
    """a's disk has lost rows 2 and 3. When the link to b, which has copies of them, comes back, new
    rows at a already have these ids.
    """
    client, table = publisher(pair, "a"), Table()
    for number in range(1, 4):
        pair.say(client, Publish("spool/x", b"%d" % number, 1, number), wait=0)
    pair["a"].database.execute("DELETE FROM spool WHERE id > 1")
    pair["a"].database.execute("UPDATE meta SET value = 1 WHERE key = 'spool.last'")
    pair.members["a"].power_cut()
    client = publisher(pair, "a")
    pair.say(client, *(Publish("spool/x", b"%d" % number, 1, number) for number in range(4, 8)))
    assert client.received == []
    pair.join("a", "b")
    pair.pass_time(3)
    assert len(client.take_all(Puback)) == 4
    assert kept(pair, "b") == [b"1", b"4", b"5", b"6", b"7"]
    table.land_all(pair, "a", "b")
    assert table.payloads == [b"%d" % number for number in range(1, 8)]


def test_a_member_without_room_confirms_nothing(pair: Sites) -> None:
    client = publisher(pair, "a")
    pair["b"].disk_full(True)
    pair.say(client, Publish("spool/x", b"1", 1, 1), wait=2)
    assert client.received == []
    assert figures(pair, "b")["copies_full"]
    pair["b"].disk_full(False)
    pair.pass_time(2)
    assert client.take(Puback) == Puback(1)


def test_a_session_moves_when_what_it_has_received_is_safe(pair: Sites) -> None:
    """The other gateway then knows the client's packet identifiers."""
    pair.members["b"].disk.stuck = True
    client = pair.connect("a", "c")
    client.received.clear()
    pair.say(client, Publish("spool/x", b"1", 2, 9))
    client.break_line()
    pair.settle()
    client = pair.connect("b", "c")
    assert client.received == []
    pair.members["b"].disk.stuck = False
    pair.members["b"].disk.work()
    pair.pass_time(0.5)
    client.received.pop(0)
    pair.say(client, Publish("spool/x", b"1", 2, 9, dup=True), Pubrel(9))
    assert client.take(Pubrec) == Pubrec(9)
    assert (kept(pair, "b"), pair["b"].rows("SELECT * FROM spool")) == ([b"1"], [])


def test_a_long_backlog_goes_from_the_disk_with_the_keys_that_it_has_here(pair: Sites) -> None:
    """The backlog is larger than the part of it in memory, and longer than one page."""
    clients, table = [publisher(pair, "a", f"p-{number}") for number in range(3)], Table()
    pair.part("a", "b")
    for begin in range(1, 3001, 500):
        packets = [
            Publish(
                "spool/x",
                b"%d" % number + bytes(2000),
                1,
                number,
                properties={PropertyId.USER_PROPERTY: [("incarnation", "7"), ("seq", f"{number}")]}
                if number % 3
                else None,
            )
            for number in range(begin, begin + 500)
        ]
        pair.say(clients[begin // 1000], *packets, wait=0)
    table.land(pair, "a", 100)
    assert [client.received for client in clients] == [[], [], []]
    pair.join("a", "b")
    pair.pass_time(1)
    assert [len(client.take_all(Puback)) for client in clients] == [1000, 1000, 1000]
    assert len(kept(pair, "b")) == 2900
    pair.part("a", "b")
    pair.pass_time(SILENT_S + 10)
    table.land_all(pair, "b")
    table.land_all(pair, "a")
    assert (len(table.rows), table.landings) == (3000, 3000 + 2900)


def test_landing_during_a_backlog_changes_no_key(
    pair: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper comes back and gets the rows that it lacks, page by page. Before the third page,
    the uplink lands rows and removes them from the spool.
    """
    clients, table = [publisher(pair, "a", f"p-{number}") for number in range(3)], Table()
    pair.part("a", "b")
    for begin in range(1, 3001, 500):
        packets = [
            Publish("spool/x", b"%d" % number + bytes(2000), 1, number)
            for number in range(begin, begin + 500)
        ]
        pair.say(clients[begin // 1000], *packets, wait=0)
    pages, read = 0, copied.rows

    def land_before_the_third_page(*args: Any) -> Any:
        nonlocal pages
        pages += 1
        if pages == 3:
            table.land(pair, "a", 600)
        return read(*args)

    monkeypatch.setattr(copied, "rows", land_before_the_third_page)
    pair.join("a", "b")
    pair.pass_time(1)
    assert pages > 3
    assert [len(client.take_all(Puback)) for client in clients] == [1000, 1000, 1000]
    pair.part("a", "b")
    pair.pass_time(SILENT_S + 10)
    table.land_all(pair, "b")
    table.land_all(pair, "a")
    assert len(table.rows) == 3000


@pytest.mark.parametrize(
    ("epochs", "clock", "monotonic"),
    [(((0, 1 << 64),), None, 1), (((9, 7),), None, 1), (((0, 7),), 1 << 61, (1 << 63) - 1)],
    ids=["an epoch that is no number of SQLite", "a row of no epoch", "a time that is none"],
)
def test_invalid_messages_of_a_member_stop_no_rows(
    pair: Sites, epochs: tuple[tuple[int, int], ...], clock: int | None, monotonic: int
) -> None:
    """If the gateway stored copies from such messages, they could not land, or would stop the
    store.
    """
    line = "f" * 16
    told = Told(line=line, keep=True, first=1, name="a", epochs=((0, 7),), boot=1, clock=None)
    nameless = (1, None, None, 1, "c", "spool/x", b"mad", 1, monotonic, None)
    said = encode(told)
    for name, value in ("epochs", epochs), ("clock", clock):
        before = json.dumps(told.model_dump()[name], separators=(",", ":"))
        said = said.replace(f'"{name}":{before}'.encode(), f'"{name}":{json.dumps(value)}'.encode())
    with suppress(SiteError):
        pair.members["b"].received("a", said)
        pair.members["b"].received("a", encode(Rows(line, [nameless])))
    pair.part("a", "b")
    pair.pass_time(SILENT_S + 5)
    pair.join("a", "b")
    client = publisher(pair, "b")
    pair.say(client, Publish("spool/x", b"1", 1, 1))
    assert client.take(Puback) == Puback(1)
    assert figures(pair, "b")["copies_kept_bytes"] == 0


class Schedule:
    """Members, publishers, links, disks and uplinks, with events drawn from a seed. acknowledged:
    payloads that a gateway has acknowledged.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.sites = Sites("a", "b", "c", copies=folder)
        self.table = Table()
        self.acknowledged: set[bytes] = set()
        self.clients: dict[str, Client] = {}
        self.published: dict[tuple[str, int], bytes] = {}
        self.number = 0

    def collect(self) -> None:
        for name, client in self.clients.items():
            packets: list[Packet] = client.received
            for packet in packets:
                if isinstance(packet, Puback | Pubrec) and packet.reason == 0:
                    self.acknowledged.add(self.published[name, packet.packet_id])
            client.received = []

    def step(self) -> None:
        sites, draw = self.sites, self.random
        name = draw.choice(sites.names)
        pair = draw.sample(sites.names, 2)
        match draw.choices(
            ("publish", "part", "join", "cut", "stick", "free", "land", "wait", "long"),
            (12, 2, 4, 1, 1, 2, 3, 3, 0.3),
        )[0]:
            case "publish":
                self.publish(name)
            case "part":
                sites.part(*pair)
            case "join":
                if frozenset(pair) not in sites.links:
                    sites.join(*pair)
            case "cut":
                self.cut(name)
            case "stick":
                sites.members[name].disk.stuck = True
            case "free":
                self.free(name)
            case "land":
                self.table.land(sites, name, draw.randint(1, 10))
            case "wait":
                sites.pass_time(draw.choice((0.02, 0.5, 2)))
            case "long":
                sites.pass_time(WAIT_S + 2)
        self.collect()

    def publish(self, name: str) -> None:
        client = self.clients.get(name)
        if client is None or client.closed:
            client = self.clients[name] = publisher(self.sites, name, f"p-{name}")
            self.collect()
        packets = []
        for _ in range(self.random.randint(1, 5)):
            self.number += 1
            payload = b"%d" % self.number
            identifier = self.number
            self.published[name, identifier] = payload
            stated = {PropertyId.USER_PROPERTY: [("incarnation", "7"), ("seq", f"{self.number}")]}
            properties = stated if self.random.random() < 0.4 else None
            packets.append(Publish("spool/x", payload, 1, identifier, properties=properties))
        self.sites.say(client, *packets, wait=self.random.choice((0, 0.02)))

    def cut(self, name: str) -> None:
        self.collect()
        self.sites.members[name].power_cut()
        self.clients.pop(name, None)

    def free(self, name: str) -> None:
        disk = self.sites.members[name].disk
        disk.stuck = False
        disk.work()
        self.sites.settle()

    def end(self) -> None:
        """Let one member die for good, with its disk. Assert that each acknowledged message is in
        the table.
        """
        sites = self.sites
        self.collect()
        dead = self.random.choice(sites.names)
        left = [name for name in sites.names if name != dead]
        for name in left:
            sites.part(dead, name)
            if self.random.random() < 0.5:
                self.cut(name)  # what was not on disk is lost
            self.free(name)
        sites.members[dead].disk.stuck = True
        if frozenset(left) not in sites.links:
            sites.join(*left)
        sites.pass_time(SILENT_S + 10)
        self.table.land_all(sites, *left)
        missing = self.acknowledged - set(self.table.payloads)
        assert not missing, f"{dead} has died; acknowledged and lost: {missing}"


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(12))
def test_death_of_any_member_loses_no_acknowledged_reading(tmp_path: Path, seed: int) -> None:
    schedule = Schedule(tmp_path, seed)
    for _ in range(120):
        schedule.step()
    schedule.end()
    assert len(schedule.acknowledged) > 50
    payloads = schedule.table.payloads
    assert len(payloads) == len(set(payloads)), "a reading under two keys"
