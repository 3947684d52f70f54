"""The table of MQTT's options, `hil/clients/walk.toml`: it has each property and option, and the
judge notices what differs from it.
"""

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.mqtt import properties
from hil.clients import records
from hil.formats.packets import Property
from hil.judge.checker import Verdict, check
from hil.judge.seen import Seen
from hil.judge.walked import MIRROR, doubts, mirrored, wrong
from hil.observe.history import Event
from tests.hil.judge.runs import DEVICES, S, run_of
from tests.hil.sabotage import ROOT

TABLE = tomllib.loads((ROOT / "hil/clients/walk.toml").read_text())
PACKETS = {
    "CONNECT": properties.CONNECT_PROPERTIES,
    "WILL": properties.WILL_PROPERTIES,
    "CONNACK": properties.CONNACK_PROPERTIES,
    "PUBLISH": properties.CLIENT_PUBLISH_PROPERTIES | properties.SERVER_PUBLISH_PROPERTIES,
    "PUBACK": properties.ACK_PROPERTIES,
    "SUBSCRIBE": properties.SUBSCRIBE_PROPERTIES,
    "SUBACK": properties.ACK_PROPERTIES,
    "UNSUBSCRIBE": properties.UNSUBSCRIBE_PROPERTIES,
    "UNSUBACK": properties.ACK_PROPERTIES,
    "DISCONNECT": properties.CLIENT_DISCONNECT_PROPERTIES | properties.SERVER_DISCONNECT_PROPERTIES,
    "AUTH": properties.AUTH_PROPERTIES,
}
"""Properties by packet. PUBACK stands for PUBREC, PUBREL and PUBCOMP, too."""
OTHERS = {
    "CONNECT": ("client_id", "clean_start", "keep_alive", "will", "will_qos", "will_retain"),
    "CONNACK": ("session_present", "reason"),
    "PUBLISH": ("dup", "qos", "retain"),
    "SUBSCRIBE": ("filter", "share", "qos", "no_local", "retain_as_published", "retain_handling"),
    "UNSUBSCRIBE": ("filter",),
    "UNSUBACK": ("reason",),
    "DISCONNECT": ("reason",),
}
"""Options of MQTT 5 outside of the properties, by packet (sections 3.1 to 3.14)."""
ALL = {f"{packet}.{one.name.lower()}" for packet, several in PACKETS.items() for one in several}
ALL |= {f"{packet}.{name}" for packet, names in OTHERS.items() for name in names}


def lacks(covered: set[str]) -> set[str]:
    return ALL - covered


def covered() -> set[str]:
    rows = [*TABLE["record"], *TABLE["not_judged"]]
    return {one for row in rows for one in row["covers"]}


def test_table_has_each_property_and_option_of_mqtt_5() -> None:
    assert lacks(covered()) == set()
    assert covered() <= ALL


def test_an_option_that_no_record_names_is_missed() -> None:
    assert lacks(covered() - {"PUBLISH.response_topic"}) == {"PUBLISH.response_topic"}


def test_no_option_is_both_judged_and_not_judged() -> None:
    judged = {one for row in TABLE["record"] for one in row["covers"]}
    left_out = [one for row in TABLE["not_judged"] for one in row["covers"]]
    assert not judged & set(left_out)
    assert all(row["reason"] for row in TABLE["not_judged"])


WORDS = {
    "retain_as_published": "as_published",
    "retain_handling": "handling",
    "share": "$share/",
    "client_id": "id=",
    "clean_start": "clean=",
    "session_present": "connack",
    "reason": "0x",
    "filter": "subscribe",
    "dup": "publish",
}


@pytest.mark.parametrize(
    "record", [row for row in TABLE["record"] if row["covers"]], ids=lambda row: row["name"]
)
def test_a_record_uses_what_it_covers(record: dict[str, Any]) -> None:
    said = "\n".join(
        [record["script"], record.get("after", ""), *record["sees"], *record.get("or_sees", [])]
    )
    for name in record["covers"]:
        word = name.partition(".")[2]
        assert WORDS.get(word, word) in said or f"{word}=" in said, name


def test_the_rig_knows_each_property_by_the_standards_name() -> None:
    assert {(one.name, one.value) for one in properties.PropertyId} == {
        (one.name, one.value) for one in Property
    }


def test_a_record_is_walked_only_at_a_gateway_with_its_settings() -> None:
    assert "topic-alias" in records({})
    assert "no-topic-alias" not in records({})
    without = records({"limits": {"topic_aliases": 0}})
    assert "topic-alias" not in without
    assert "no-topic-alias" in without


def tried(**other: dict[str, list[str]]) -> Iterator[Event]:
    """Yield the events of a run in which each client saw what the table demands, except those of
    the records in `other`.
    """
    for name, record in records({}).items():
        scripts = [("script", "sees"), *([("after", "after_sees")] if "after" in record else [])]
        for script, sees in scripts:
            saw: dict[str, list[str]] = {
                line.split()[0]: [] for line in record[script].splitlines() if line.strip()
            }
            saw.pop("wait", None)
            for line in record[sees]:
                client, _, seen = line.partition(": ")
                saw[client].append(_example(seen))
            saw = other.get(name.replace("-", "_"), saw) if script == "script" else saw
            data = {"record": name, "after": script == "after", "saw": saw}
            yield Event(5, "walk", "tried", data)


def _example(line: str) -> str:
    return " ".join(word.replace("=*", "=x").partition("..")[0] for word in line.split())


def walked(events: Iterator[Event]) -> list[Event]:
    history = run_of(2)
    history[0].data["bench"]["walk"] = True
    return [*history, *events]


def test_run_that_fits_the_table_holds() -> None:
    result = check(walked(tried()))
    assert (result.verdict, result.reasons) == (Verdict.HOLDS, [])


def test_a_run_that_has_not_tried_all_is_unknown() -> None:
    result = check(walked(event for event in tried() if event.data["record"] != "no-local"))
    assert result.verdict is Verdict.UNKNOWN
    assert result.reasons == ["1 record(s) of hil/clients/walk.toml were not tried: no-local"]


def test_a_bench_without_the_walk_needs_no_record() -> None:
    assert list(doubts(run_of(2))) == []


@pytest.mark.parametrize(
    "saw",
    [
        {"a": ["T/x other qos=1"], "b": ["T/x own qos=1"]},
        {"a": ["T/x own qos=1", "T/x other qos=1"], "b": ["T/x own qos=1", "T/x other qos=1"]},
        {"a": ["T/x other"], "b": ["T/x own qos=1", "T/x other qos=1"]},
        {"a": ["T/x other qos=1 retain"], "b": ["T/x own qos=1", "T/x other qos=1"]},
        {"a": ["closed"], "b": ["T/x own qos=1", "T/x other qos=1"]},
        {"a": ["T/x other qos=1"], "b": ["T/x other qos=1", "T/x own qos=1"]},
    ],
)
def test_run_that_differs_from_the_table_fails(saw: dict[str, list[str]]) -> None:
    result = check(walked(tried(no_local=saw)))
    assert result.verdict is Verdict.FAILS
    [reason] = result.reasons
    assert reason.startswith("option no-local (MQTT-3.8.3-3): client ")


@pytest.mark.parametrize(
    ("interval", "holds"), [(8996, True), (8997, True), (8998, False), (9000, False), (100, False)]
)
def test_a_range_of_the_table_has_two_ends(interval: int, holds: bool) -> None:
    late = f"message_expiry_interval={interval}"
    saw = {
        "a": ["connack present", f"T/x in-time qos=1 {late}", "T/x for-ever qos=1"],
        "b": [f"T/z in-time retain {late}"],
        "p": [],
    }
    assert (wrong(list(tried(message_expiry=saw))) == []) is holds


def test_alternative_of_the_table_holds() -> None:
    assert wrong(list(tried(own_keep_alive={"a": [], "b": [], "c": ["closed"]}))) == []
    assert wrong(list(tried(own_keep_alive={"a": [], "b": [], "c": []})))


BOARDS = {name: [{"firmware": name[-1] * 64}] for name in DEVICES}
LAST = dict.fromkeys(DEVICES, 3 * 7 % 1024 * 5 / 1024)
TIME = "2023-11-14T22:13:23Z"


def mirror(texts: dict[str, dict[str, Any]]) -> list[str]:
    """Return the mistakes in the mirror of a run with three readings of each board. texts:
    retained messages by topic, in addition to or instead of the right ones.
    """
    right: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(DEVICES, 1):
        reading = {"value": LAST[name], "unit": "V", "time": TIME, "quality": "synchronised"}
        right[f"readings/{name}/adc0"] = reading
        about = {"identifiers": [name], "name": name, "via_device": "x"}
        components = {"adc0": {"state_topic": f"readings/{name}/adc0"}}
        right[f"homeassistant/device/{name}/config"] = {
            "device": {**about, "sw_version": f"{number}" * 12},
            "components": components,
        }
    shown = {topic: text for topic, text in {**right, **texts}.items() if text}
    saw = [f"{topic} {json.dumps(text)} retain" for topic, text in shown.items()]
    saw.append("readings/uno-1/$state online retain")
    data = {"record": MIRROR, "after": True, "saw": {"a": saw}}
    seen = Seen()
    for event in (events := [*run_of(3, fault=False), Event(9, "walk", "tried", data)]):
        seen.take(event)
    return mirrored(events, seen.ways, BOARDS)


def test_right_mirror_holds() -> None:
    assert mirror({}) == []


@pytest.mark.parametrize(
    ("topic", "changed", "why"),
    [
        ("uno-1/adc0", {"value": 2.5}, "has not published"),
        ("uno-1/adc0", {"value": 2 * 7 * 5 / 1024}, "has not published"),  # not the last one
        ("uno-1/adc0", {"unit": "A"}, "has not published"),
        ("uno-1/adc0", {"time": "2023-11-14T22:13:24Z"}, "has not published"),
        ("uno-1/adc0", None, "the mirror lacks uno-1/adc0"),
        ("uno-2/adc7", {}, "has not published"),
    ],
)
def test_a_message_of_the_mirror_is_its_boards_last_reading(
    topic: str, changed: dict[str, Any] | None, why: str
) -> None:
    right = {"value": LAST["uno-1"], "unit": "V", "time": TIME, "quality": "synchronised"}
    [text] = mirror({f"readings/{topic}": {} if changed is None else {**right, **changed}})
    assert why in text


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({}, "which differs by uno-1"),
        ({"device": {"sw_version": "2" * 12}}, "uno-1 is announced with firmware 222222222222"),
        ({"device": {"name": "uno-2"}}, "which differs by uno-1"),
        ({"device": {"identifiers": ["uno-2"]}}, "two announcements are for one device"),
        (
            {"components": {"adc0": {"state_topic": "readings/uno-2/adc0"}}},
            "uno-1 is announced with topics of another board at adc0",
        ),
    ],
)
def test_an_announcement_fits_its_board(told: dict[str, Any], why: str) -> None:
    about = {"identifiers": ["uno-1"], "name": "uno-1", "via_device": "x", "sw_version": "1" * 12}
    text = told and {
        "device": about | told.get("device", {}),
        "components": told.get("components", {}),
    }
    assert why in " ".join(mirror({"homeassistant/device/uno-1/config": text}))


def test_a_fault_of_the_gateway_excuses_an_older_value_of_the_board() -> None:
    struck = Event(2 * S, "gateway", "happened", {"fault": "f", "kind": "kill -9 of the gateway"})
    older = {"value": 7 * 5 / 1024, "unit": "V", "time": "2023-11-14T22:13:21Z"}
    saw = [f"readings/{name}/adc0 {json.dumps(older)} retain" for name in DEVICES]
    data = {"record": MIRROR, "after": True, "saw": {"a": saw}}
    seen = Seen()
    for event in (events := [*run_of(3, fault=False), struck, Event(9, "walk", "tried", data)]):
        seen.take(event)
    boards: dict[str, list[dict[str, Any]]] = {name: [] for name in DEVICES}
    assert mirrored(events, seen.ways, boards) == [], "nor needs it an announcement"
