"""Topic Names, Topic Filters, shared subscriptions, and matching."""

import pytest
from hypothesis import given
from hypothesis.strategies import lists

from gateway.mqtt.topics import (
    NameIndex,
    shared_filter_problem,
    split_shared,
    topic_filter_problem,
    topic_matches,
    topic_name_problem,
)
from tests.mqtt.strategies import filters, names, shared_filters


@pytest.mark.mqtt(
    "MQTT-4.7.1-1",
    "MQTT-4.7.1-2",
    "MQTT-4.7.3-4",
    "311:MQTT-4.7.1-2",
    "311:MQTT-4.7.1-3",
    "311:MQTT-4.7.3-4",
)
@pytest.mark.parametrize(
    ("topic_filter", "name", "matches"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/c", False),
        ("a/b", "A/b", False),
        ("a/b", "a/b/", False),
        ("a/b", "/a/b", False),
        ("a", "a/b", False),
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/tennis/player1/#", "sport/tennis/player10", False),
        ("#", "a/b", True),
        ("#", "/", True),
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+", "finance", True),
        ("+", "/finance", False),
        ("/+", "/finance", True),
        ("+/+", "/finance", True),
        ("+/tennis/#", "sport/tennis", True),
        ("+/tennis/#", "tennis/sport", False),
        ("a/+/c", "a//c", True),
        ("a/+/c", "a/b/c/d", False),
        ("+/+/#", "a", False),
        ("é/#", "e\u0301/x", False),
        ("a/ b", "a/b", False),
    ],
)
def test_matching(topic_filter: str, name: str, matches: bool) -> None:
    assert topic_matches(topic_filter, name) is matches


@pytest.mark.mqtt("MQTT-4.7.2-1", "311:MQTT-4.7.2-1")
@pytest.mark.parametrize(
    ("topic_filter", "name", "matches"),
    [
        ("#", "$SYS/uptime", False),
        ("+/uptime", "$SYS/uptime", False),
        ("$SYS/#", "$SYS/uptime", True),
        ("$SYS/+", "$SYS/uptime", True),
        ("$SYS/uptime", "$SYS/uptime", True),
        ("a/#", "a/$b", True),
        ("+/$b", "a/$b", True),
    ],
)
def test_a_leading_wildcard_does_not_match_a_leading_dollar(
    topic_filter: str, name: str, matches: bool
) -> None:
    assert topic_matches(topic_filter, name) is matches


@given(names)
def test_every_name_is_a_filter_that_matches_itself(name: str) -> None:
    assert topic_name_problem(name) is None
    assert topic_filter_problem(name) is None
    assert topic_matches(name, name)
    if name[0] != "$":
        assert topic_matches("#", name)
        assert topic_matches("/".join("+" for _ in name.split("/")), name)


@given(filters)
def test_valid_filters_are_valid(topic_filter: str) -> None:
    assert topic_filter_problem(topic_filter) is None


@pytest.mark.mqtt(
    "MQTT-4.7.3-1",
    "MQTT-4.7.3-2",
    "MQTT-4.7.0-1",
    "311:MQTT-4.7.3-1",
    "311:MQTT-4.7.3-2",
    "311:MQTT-4.7.1-1",
)
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "empty"),
        ("a\0b", "U+0000"),
        ("a/#", "wildcard"),
        ("a/+/b", "wildcard"),
        ("a+b", "wildcard"),
    ],
)
def test_bad_names(name: str, problem: str) -> None:
    assert problem in str(topic_name_problem(name))


@pytest.mark.parametrize(
    ("topic_filter", "problem"),
    [
        ("", "empty"),
        ("a\0", "U+0000"),
        ("a#", "not alone in its level"),
        ("a/#b", "not alone in its level"),
        ("#/a", "last level"),
        ("a/#/#", "last level"),
        ("a+/b", "not alone in its level"),
        ("++", "not alone in its level"),
        ("+#", "not alone in its level"),
    ],
)
def test_bad_filters(topic_filter: str, problem: str) -> None:
    assert problem in str(topic_filter_problem(topic_filter))


@given(shared_filters)
@pytest.mark.mqtt("MQTT-4.8.2-1", "MQTT-4.8.2-2")
def test_shared_filters_come_apart(shared: str) -> None:
    assert shared_filter_problem(shared) is None
    share, inner = split_shared(shared)
    assert shared == f"$share/{share}/{inner}"
    assert topic_filter_problem(inner) is None


@pytest.mark.parametrize(
    "plain",
    [
        "a/b",
        "$share",
        "$shared/g/a",
        "$share/g",
        "$share//a",
        "$share/g/",
        "$share/+/a",
        "x/$share/g/a",
    ],
)
def test_other_filters_are_not_split(plain: str) -> None:
    assert split_shared(plain) == (None, plain)


@given(lists(names, max_size=5), filters)
def test_an_index_finds_each_name_that_a_filter_matches(known: list[str], wanted: str) -> None:
    index: NameIndex[str] = NameIndex()
    for name in known:
        index.add(name, name)
    near = index.near(wanted)
    assert near is not None
    assert {name for name in known if topic_matches(wanted, name)} <= set(near) <= set(known)
    assert index.clear() == known
    assert (index.near(wanted), len(index)) == ([], 0)


def test_an_index_says_if_too_many_names_may_match() -> None:
    index: NameIndex[int] = NameIndex()
    for number in range(2000):
        index.add(f"{number}/x", number)
    assert index.near("+/x") is None
    assert index.near("#") is None
    assert index.near("7/#") == [7]
