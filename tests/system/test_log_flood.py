"""The limit of log lines for each logger call in the code, also for calls in libraries."""

import logging
from collections.abc import Iterator

import pytest

from gateway.system.log_flood import AT_ONCE, EVERY_S, LogFlood


class Log(logging.Handler):
    """A log handler with the limit. The test sets its clock."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.now = 0.0
        self.addFilter(LogFlood(now=lambda: self.now))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def log() -> Iterator[Log]:
    found = Log()
    logging.getLogger().addHandler(found)
    yield found
    logging.getLogger().removeHandler(found)


@pytest.mark.parametrize("name", ["gateway.x", "aiohttp.server", "asyncio", "aiohttp.websocket"])
@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING, logging.ERROR])
def test_a_flood_of_any_logger_is_some_lines_and_tells_how_many_more(
    log: Log, name: str, level: int
) -> None:
    logger = logging.getLogger(name)
    logger.setLevel(logging.INFO)

    def say(device: str) -> None:
        logger.log(level, "the device %r is unknown", device)

    for number in range(20_000):
        say(f"stranger-{number}")
    assert len(log.lines) == AT_ONCE
    assert log.lines[-1].endswith("(more lines like this are left out)")
    assert "stranger-0" in log.lines[0]
    log.now += EVERY_S
    say("later")
    assert len(log.lines) == AT_ONCE + 1
    assert f"lines like this left out before: {20_000 - AT_ONCE}" in log.lines[-1]
    log.now += AT_ONCE * EVERY_S
    say("100 %")
    assert log.lines[-1] == "the device '100 %' is unknown"


def test_a_flood_hides_no_line_of_another_place(log: Log) -> None:
    for _ in range(1000):
        logging.getLogger("gateway.x").warning("flood")
    logging.getLogger("gateway.x").warning("the disk is full")
    assert log.lines[-1] == "the disk is full"


def test_several_handlers_write_the_same_lines(log: Log) -> None:
    other = Log()
    other.filters = log.filters
    logging.getLogger().addHandler(other)
    for _ in range(1000):
        logging.getLogger("gateway.x").warning("flood")
    logging.getLogger().removeHandler(other)
    assert other.lines == log.lines


def test_debug_lines_have_no_limit(log: Log) -> None:
    logging.getLogger("gateway.x").setLevel(logging.DEBUG)
    for _ in range(1000):
        logging.getLogger("gateway.x").debug("step")
    assert len(log.lines) == 1000
