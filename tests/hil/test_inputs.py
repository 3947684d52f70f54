from hil.judge.known import EVENTS
from tests.hil.inputs import PAGE, WORDS, origin, page, read, written


def test_page_is_that_of_the_source() -> None:
    assert PAGE.read_text() == page(), "run `make docs`"


def test_each_event_has_an_origin_outside_the_judge() -> None:
    modules = written()
    assert WORDS - set().union(*modules.values()) == set()
    assert [path for path in modules if not origin(path)] == []


def test_judge_reads_no_event_without_an_origin() -> None:
    read_there = set().union(*read().values())
    assert read_there <= set().union(*written().values())
    assert {"publication", "reading", "count"} <= read_there <= set().union(*EVENTS.values())
