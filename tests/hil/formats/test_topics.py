"""The rig and the gateway agree which topics match a filter."""

import pytest
from hypothesis import given

from gateway.mqtt.topics import topic_matches
from hil.formats.topics import matches
from tests.mqtt.strategies import filters, names


@given(pattern=filters, topic=names)
def test_any_filter_and_any_topic(pattern: str, topic: str) -> None:
    assert matches(pattern, topic) == topic_matches(pattern, topic)


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("sensors/+/data", "sensors/a/data", True),
        ("sensors/+/data", "sensors/a/b/data", False),
        ("sensors/a/#", "sensors/a", True),
        ("sensors/a/#", "sensors/ab", False),
        ("sensors/a", "sensors/a/data", False),
        ("+/+", "/a", True),
        ("#", "$SYS/x", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/x", True),
    ],
)
def test_filters_of_section_4_7(pattern: str, topic: str, expected: bool) -> None:
    assert matches(pattern, topic) is expected
    assert topic_matches(pattern, topic) is expected
