"""Retained messages at both ends of a bridge, at the end of a run."""

from typing import Any

import pytest

from hil.judge import states
from hil.observe.history import Event

RUN = {"bench": {"bridge": {"states": 1, "changes": 1}}}
NEWEST = {"states/here/0": "31", "states/there/0": "34"}


def history(here: dict[str, str] | None, there: dict[str, str] | None) -> list[Event]:
    """Return a run with two changes at each end. here, there: messages of each end at the end of
    the run; None: not recorded.
    """
    changes = [
        ("here", "states/here/1", "30"),
        ("there", "states/there/0", "34"),
        ("here", "states/here/0", "31"),
        ("there", "states/here/1", ""),
    ]
    events = [Event(0, "rig", "run", RUN)]
    for t, (end, topic, payload) in enumerate(changes, 1):
        events.append(
            Event(t, "states", "changed", {"end": end, "topic": topic, "payload": payload})
        )
    for end, messages in (("here", here), ("there", there)):
        if messages is not None:
            events.append(Event(5, "states", "held", {"end": end, "messages": {"states/x": "00"}}))
            events.append(Event(6, "states", "held", {"end": end, "messages": messages}))
    return [*events, Event(9, "rig", "end")]


def test_equal_and_newest_messages_hold() -> None:
    events = history(NEWEST, NEWEST)
    assert (states.wrong(events), list(states.doubts(events))) == ([], [])


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ({"states/here/1": "30"}, "states/here/1 is 0, but must be none"),
        ({"states/here/0": "30"}, "states/here/0 is 0, but must be 1"),
        ({"states/there/0": None}, "states/there/0 is none, but must be 4"),
    ],
)
def test_old_message_fails_even_if_both_ends_agree_on_it(harm: dict[str, Any], said: str) -> None:
    held = {topic: payload for topic, payload in (NEWEST | harm).items() if payload}
    for here, there, names in (
        (held, NEWEST, ["the gateway"]),
        (NEWEST, held, ["the other broker"]),
        (held, held, ["the gateway", "the other broker"]),
    ):
        found = states.wrong(history(here, there))
        assert found == [
            f"{name} has 1 retained message(s) that are not the newest: {said}" for name in names
        ]


def test_run_that_broke_off_shows_nothing() -> None:
    assert states.wrong(history({}, {})[:-1]) == []


def test_end_that_was_not_read_or_not_changed_is_a_doubt() -> None:
    assert list(states.doubts(history(NEWEST, None))) == [
        "the retained messages of the other broker were not read"
    ]
    few = [event for event in history(NEWEST, NEWEST) if event.t != 2]
    assert list(states.doubts(few)) == [
        "the other broker has got 1 of 2 planned changes of retained messages"
    ]


def test_run_without_a_bridge_has_no_doubts() -> None:
    events = [Event(0, "rig", "run", {"bench": {}}), Event(9, "rig", "end")]
    assert (states.wrong(events), list(states.doubts(events))) == ([], [])
