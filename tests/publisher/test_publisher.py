"""A publisher whose server refuses messages, loses sessions, closes connections and sends wrong
answers.
"""

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.mqtt.packets import Connack, Disconnect
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode as R
from gateway.payload.senml import decode
from onceway_publisher import (
    JournalError,
    JournalFull,
    NoIdentity,
    Publication,
    Publisher,
    PublisherError,
    Refused,
    StillWaiting,
    SyncPublisher,
    Unreadable,
    flow,
    publisher,
)
from tests.publisher.server import COUNTS, IGNORED, Server, identity, server


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(flow, "LONGEST_PAUSE_S", 0.1)
    monkeypatch.setattr(publisher, "FIRST_WAIT_S", 0.02)
    monkeypatch.setattr(publisher, "LONGEST_WAIT_S", 0.1)


def to(own: Server, folder: Path, **options: Any) -> Publisher:
    return Publisher(
        f"mqtt://127.0.0.1:{own.port}",
        device="boiler",
        journal=folder / "boiler.db",
        **{"wait_s": 30.0, "stop_s": 30.0, "incarnation": 7, **options},
    )


def kept(folder: Path) -> int:
    """Return the number of messages in the journal of a publisher that has ended."""
    with closing(sqlite3.connect(folder / "boiler.db")) as database:
        return int(database.execute("SELECT count(*) FROM messages").fetchone()[0])


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_value_arrives_as_senml_under_its_identity(tmp_path: Path) -> None:
    async with server() as own:
        async with to(own, tmp_path) as p:
            said = await p.publish("sensors/boiler/temp", 61.2, unit="Cel", wait=True)
            assert said == Publication("boiler", 7, 1)
            assert p.waiting == 0
        (sent,) = own.publishes
        (record,) = decode(sent.payload)
        assert (record.name, record.unit, record.value) == ("temp", "Cel", 61.2)
        assert abs(record.time - time.time()) < 60
        assert own.taken == [(7, 1)]
        assert own.connects[0].client_id == "boiler"
        assert kept(tmp_path) == 0


async def test_publish_outside_of_the_block_is_an_error(tmp_path: Path) -> None:
    async with server() as own:
        p = to(own, tmp_path)
        with pytest.raises(PublisherError, match="is not open"):
            await p.publish("t", 1)
        async with p:
            pass
        with pytest.raises(PublisherError, match="is not open"):
            await p.publish("t", 1)
    assert kept(tmp_path) == 0


async def test_end_of_a_publisher_leaves_no_accepted_message(tmp_path: Path) -> None:
    """A publisher that ends waits for the commit that deletes an accepted message."""
    async with server() as own:
        for _ in range(20):
            async with to(own, tmp_path) as p:
                await p.publish("t", 1)
            assert kept(tmp_path) == 0
        assert len(own.taken) == 20


@pytest.mark.parametrize("reason", [R.NOT_AUTHORIZED, R.QUOTA_EXCEEDED, R.TOPIC_NAME_INVALID])
async def test_a_refused_message_is_sent_again_under_the_same_identity(
    reason: R, tmp_path: Path
) -> None:
    async with server() as own:
        answers = iter([reason, reason])
        own.refuse = lambda packet: next(answers, R.SUCCESS)
        async with to(own, tmp_path) as p:
            await p.publish("t", 1, wait=True)
            assert p.problem is None
        assert [identity(one) for one in own.publishes] == [(7, 1)] * 3
        assert len(own.releases) == 1, "no PUBREL follows a refusal"


async def test_a_pubcomp_that_does_not_know_it_sends_it_again(tmp_path: Path) -> None:
    async with server() as own:
        answers = iter([R.PACKET_IDENTIFIER_NOT_FOUND])
        own.complete = lambda packet: next(answers, R.SUCCESS)
        async with to(own, tmp_path) as p:
            await p.publish("t", 1, wait=True)
        assert [identity(one) for one in own.publishes] == [(7, 1)] * 2


async def test_message_refused_for_good_is_reported_and_kept(tmp_path: Path) -> None:
    async with server() as own:
        own.refuse = lambda p: R.NOT_AUTHORIZED if p.topic == "no" else R.SUCCESS
        async with to(own, tmp_path, stop_s=0) as p:
            await p.publish("no", 1)
            await p.publish("yes", 2, wait=True)
            with pytest.raises(StillWaiting, match=r"that wait .*: 1: .*'no': PUBREC 0x87"):
                await p.flush(0.2)
        assert kept(tmp_path) == 1
        own.refuse = lambda p: R.SUCCESS
        async with to(own, tmp_path):
            pass
        assert kept(tmp_path) == 0
        assert own.taken == [(7, 2), (7, 1)]


async def test_a_farewell_for_lack_of_room_is_no_end(tmp_path: Path) -> None:
    async with server() as own:
        own.present = True
        own.farewell = Disconnect(R.QUOTA_EXCEEDED)
        async with to(own, tmp_path) as p:
            await p.publish("t", 1, wait=True)
        assert own.taken == [(7, 1)]
        assert [one.clean_start for one in own.connects] == [True, False]


async def test_a_resumed_session_gets_pubrel_and_no_second_publish(tmp_path: Path) -> None:
    async with server() as own:
        own.present = True
        cut = iter([None])
        own.complete = lambda packet: next(cut, R.SUCCESS)
        async with to(own, tmp_path) as p:
            await p.publish("t", 1, wait=True)
        assert len(own.publishes) == 1
        assert len(own.releases) == 2


async def test_a_session_that_another_program_took_is_not_resumed(tmp_path: Path) -> None:
    async with server() as own:
        own.present = True
        own.farewell = Disconnect(R.SESSION_TAKEN_OVER)
        async with to(own, tmp_path) as p:
            await p.publish("t", 1, wait=True)
        assert [one.clean_start for one in own.connects] == [True, True]


async def test_an_ignored_identity_refuses_the_start_and_names_the_line(tmp_path: Path) -> None:
    async with server() as own:
        own.connack = Connack(False, properties=IGNORED)
        with pytest.raises(NoIdentity) as error:
            async with to(own, tmp_path, user="heating"):
                raise AssertionError
        assert 'users = ["heating"]' in str(error.value)
        assert 'identity = ["boiler"]' in str(error.value)
        own.connack = Connack(False, properties={})
        with pytest.raises(NoIdentity, match="is not an Onceway gateway"):
            async with to(own, tmp_path):
                raise AssertionError
        assert own.publishes == []


async def test_a_client_that_is_not_let_in_does_not_start(tmp_path: Path) -> None:
    async with server() as own:
        own.connack = Connack(False, R.NOT_AUTHORIZED, {PropertyId.REASON_STRING: "no such user"})
        with pytest.raises(Refused, match=r"0x87 \(no such user\)") as error:
            async with to(own, tmp_path):
                raise AssertionError
        assert error.value.reason == 0x87


@pytest.mark.parametrize("reason", [0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C])
async def test_a_reason_that_only_a_person_can_remedy_is_an_error(
    reason: int, tmp_path: Path
) -> None:
    async with server() as own:
        own.connack = Connack(False, R(reason))
        with pytest.raises(Refused):
            async with to(own, tmp_path):
                raise AssertionError


@pytest.mark.parametrize("reason", [0x80, 0x83, 0x88, 0x89, 0x97, 0x9C, 0x9F])
async def test_a_gateway_that_refuses_for_a_while_gets_the_messages_later(
    reason: int, tmp_path: Path
) -> None:
    """reason: CONNACK's reason code, for example of a gateway that is busy, or whose login hook
    does not answer.
    """
    async with server() as own:
        own.connack = Connack(False, R(reason))
        async with to(own, tmp_path) as p:
            await p.publish("t", 1)
            await until(lambda: f"0x{reason:02x}" in (p.problem or ""))
            assert own.publishes == []
            own.connack = Connack(False, properties=COUNTS)
            await until(lambda: own.taken == [(7, 1)])
            assert p.problem is None


async def test_an_identity_that_ends_meanwhile_stops_publish_and_heals(tmp_path: Path) -> None:
    async with server() as own:
        async with to(own, tmp_path) as p:
            await p.publish("t", 1, wait=True)
            own.connack = Connack(False, properties=IGNORED)
            own.cut()
            await until(lambda: "ignores the identity" in (p.problem or ""))
            with pytest.raises(NoIdentity):
                await p.publish("t", 2)
            own.connack = Connack(False, properties=COUNTS)
            await until(lambda: p.problem is None)
            await p.publish("t", 3, wait=True)
        assert own.taken == [(7, 1), (7, 2)]


async def test_without_a_gateway_messages_wait_and_go_at_the_next_start(tmp_path: Path) -> None:
    async with server() as own:
        options = {"device": "boiler", "journal": tmp_path / "boiler.db"}
        away = Publisher("mqtt://127.0.0.1:1", **options, start_s=0.1, stop_s=0, wait_s=0.1)  # type: ignore[arg-type]
        async with away as p:
            await p.publish("t", 1)
            with pytest.raises(StillWaiting, match="it waits in"):
                await p.publish("t", 2, wait=True)
        assert kept(tmp_path) == 2
        async with to(own, tmp_path):
            pass
        assert len(own.taken) == 2
        assert kept(tmp_path) == 0


async def test_a_journal_that_fails_in_a_new_way_is_reported_to_each_caller(tmp_path: Path) -> None:
    """Later messages are written and sent as usual."""

    def fail(*_: object) -> list[Any]:
        raise OverflowError("a bug")

    async with server() as own, to(own, tmp_path) as p:
        write = p._journal.write
        p._journal.write = fail  # type: ignore[method-assign, assignment]
        with pytest.raises(JournalError, match="a bug"):
            await p.publish("t", 1)
        p._journal.write = write  # type: ignore[method-assign]
        await p.publish("t", 2, wait=True)
        assert own.taken == [(7, 1)]


async def test_numbers_are_sent_with_all_their_digits(tmp_path: Path) -> None:
    numbers = [2**53, 2**53 + 1, -(2**63), 5e-324, 1.7976931348623157e308, 0.1 + 0.2, -0.0]
    async with server() as own, to(own, tmp_path) as p:
        for number in numbers:
            await p.publish("t", number)
        await p.flush(30)
        found = [json.loads(one.payload)[0]["v"] for one in own.publishes]
        assert [repr(one) for one in found] == [repr(one) for one in numbers]


async def test_sizes_over_decades_and_signs_of_four_bytes_arrive_whole(tmp_path: Path) -> None:
    contents = [bytes(10**power) for power in range(7)]
    async with server() as own, to(own, tmp_path) as p:
        for content in contents:
            await p.publish("kitchen/\U0001f321", content)
        await p.publish("kitchen/\U0001f321", "\U0001f525", name="fire")
        await p.flush(60)
        assert [one.payload for one in own.publishes[:-1]] == contents
        assert {one.topic for one in own.publishes} == {"kitchen/\U0001f321"}
        assert json.loads(own.publishes[-1].payload)[0]["vs"] == "\U0001f525"


async def test_a_full_journal_waits_for_room_and_then_raises(tmp_path: Path) -> None:
    async with server() as own:
        closed = True
        own.refuse = lambda packet: R.QUOTA_EXCEEDED if closed else R.SUCCESS
        async with to(own, tmp_path, max_messages=2, wait_s=0.2) as p:
            await p.publish("t", 1)
            await p.publish("t", 2)
            with pytest.raises(JournalFull, match=r"max_messages.*0x97"):
                await p.publish("t", 3)
            assert p.waiting == 2
            closed = False
            await p.flush(30)
            await p.publish("t", 4, wait=True)
        values = [decode(one.payload)[0].value for one in own.publishes]
        assert 3 not in values
        assert own.taken == [(7, 1), (7, 2), (7, 3)]


async def test_bytes_are_bounded_but_one_message_always_has_room(tmp_path: Path) -> None:
    async with server() as own:
        own.refuse = lambda packet: R.QUOTA_EXCEEDED
        async with to(own, tmp_path, max_bytes=1000, wait_s=0.1, stop_s=0) as p:
            await p.publish("t", bytes(5000))
            with pytest.raises(JournalFull):
                await p.publish("t", b"")


async def test_receive_maximum_bounds_what_is_in_flight(tmp_path: Path) -> None:
    async with server() as own:
        own.connack = Connack(False, properties={**COUNTS, PropertyId.RECEIVE_MAXIMUM: 1})
        async with to(own, tmp_path) as p:
            await asyncio.gather(*(p.publish("t", number) for number in range(50)))
        assert own.most == 1
        assert own.taken == [(7, number) for number in range(1, 51)]


async def test_server_keep_alive_is_kept(tmp_path: Path) -> None:
    async with server() as own:
        own.connack = Connack(False, properties={**COUNTS, PropertyId.SERVER_KEEP_ALIVE: 1})
        async with to(own, tmp_path) as p:
            await asyncio.sleep(2)
            assert p.problem is None
        assert len(own.connects) == 1


async def test_a_silent_server_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceway_publisher.alive.STALLED_S", 0.2)
    async with server() as own:
        never = asyncio.Event()
        answer = own._answer
        calls = iter([True])

        async def silent(wire: Any) -> bool:
            if next(calls, False):
                await never.wait()
            return await answer(wire)

        own._answer = silent  # type: ignore[method-assign]
        async with to(own, tmp_path) as p:
            await p.publish("t", 1, wait=True)
        never.set()
        assert len(own.connects) == 2
        assert own.taken == [(7, 1)]


async def test_many_cuts_lose_and_double_nothing(tmp_path: Path) -> None:
    async with server() as own:
        own.present = True
        async with to(own, tmp_path) as p:
            for number in range(100):
                await p.publish("t", number)
                if number % 10 == 9:
                    own.cut()
        assert sorted(own.taken) == [(7, number) for number in range(1, 101)]


async def test_a_quiet_publisher_logs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "onceway_publisher")
    async with server() as own, to(own, tmp_path) as p:
        await p.publish("t", 1, wait=True)
    assert caplog.records == []


async def test_an_outage_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    away = Publisher(
        "mqtt://127.0.0.1:1", device="d", journal=tmp_path / "j", start_s=0.5, stop_s=0
    )
    async with away:
        pass
    assert len(caplog.records) == 1


async def test_a_callback_that_fails_harms_nothing(tmp_path: Path) -> None:
    told: list[Publication] = []

    def fails(publication: Publication) -> None:
        told.append(publication)
        raise RuntimeError

    async with server() as own:
        p = to(own, tmp_path)
        p.on_taken = fails
        async with p:
            await p.publish("t", 1, wait=True)
            await p.publish("t", 2, wait=True)
    assert told == [Publication("boiler", 7, 1), Publication("boiler", 7, 2)]


@pytest.mark.parametrize(
    ("topic", "value", "options"),
    [
        ("a/+", 1, {}),
        ("", 1, {}),
        ("$SYS/x", 1, {}),
        ("t" * 70_000, 1, {}),
        ("t", float("nan"), {}),
        ("t", [1], {}),
        ("t", b"x", {"unit": "Cel"}),
        ("a/b c", 1, {}),
        ("t", 1, {"time": float("inf")}),
        ("t", "\ud800", {}),
        ("t", 10**400, {}),
        ("t", 1, {"time": 10**400}),
        ("t", 1, {"unit": 5}),
        ("t", 1, {"name": 5}),
        ("t", 1, {"retain": 2**70}),
        (5, 1, {}),
        ("\ud800", 1, {}),
    ],
)
async def test_unpublishable_payload_is_refused_before_the_journal(
    topic: str, value: Any, options: dict[str, Any], tmp_path: Path
) -> None:
    async with server() as own, to(own, tmp_path) as p:
        with pytest.raises(Unreadable):
            await p.publish(topic, value, **options)
        assert p.waiting == 0
    assert own.publishes == []


@pytest.mark.parametrize(
    "url", ["pi", "http://pi", "mqtt://", "mqtts://pi:x", "mqtt://pi/x", "mqtts://u:p@pi:99999"]
)
def test_bad_address_is_reported_without_its_password(url: str, tmp_path: Path) -> None:
    with pytest.raises(Unreadable) as error:
        Publisher(url, device="boiler", journal=tmp_path / "j")
    assert ":p@" not in str(error.value)


@pytest.mark.parametrize("device", ["", "a/b", "#", "x" * 300, "\ud800"])
def test_bad_device_name_is_refused(device: str, tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="not a name of a device"):
        Publisher("mqtt://pi", device=device, journal=tmp_path / "j")


async def test_the_synchronous_form_does_the_same(tmp_path: Path) -> None:
    async with server() as own:
        url = f"mqtt://127.0.0.1:{own.port}"

        def work() -> None:
            journal = tmp_path / "boiler.db"
            with SyncPublisher(url, device="boiler", journal=journal, incarnation=7) as p:
                assert p.publish("t", True, wait=True) == Publication("boiler", 7, 1)
                p.publish("t", "text", name="door")
                p.flush(30)
                assert (p.waiting, p.problem) == (0, None)
                with pytest.raises(Unreadable):
                    p.publish("#", 1)
            with pytest.raises(PublisherError), SyncPublisher(url, device="x", journal=journal):
                raise AssertionError

        await asyncio.to_thread(work)
        said = [json.loads(one.payload)[0] for one in own.publishes]
        assert [(it["n"], it.get("vb", it.get("vs"))) for it in said] == [
            ("t", True),
            ("door", "text"),
        ]
