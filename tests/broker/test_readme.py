"""The README's table of bounds names tests that exist, and has the numbers of the code."""

import re
from pathlib import Path

import pytest

from gateway.access import logins
from gateway.broker import (
    broker,
    connection,
    delivery,
    dispatch,
    exchanges,
    fan_out,
    marks,
    pause,
    pauses,
    receive_flow,
    retained_feed,
    router,
)
from gateway.config import Config
from gateway.links import counted_server, fragments, websocket
from gateway.mqtt import runs
from gateway.runtime import client_link, engine
from gateway.system import log_flood, log_throttle, usage
from gateway.web import page, page_logins, server

README = Path(__file__).parents[2] / "gateway" / "broker" / "README.md"
LINK = re.compile(r"\[([\w.]+)\]\((\.\./[^)]+)\)")


def test_each_bound_in_the_readme_names_an_existing_test() -> None:
    bounds = README.read_text().partition("## Bounds")[2]
    rows = [line for line in bounds.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    for row in rows:
        links = LINK.findall(row)
        assert links, row
        for name, path in links:
            text = (README.parent / path).read_text()
            assert name == Path(path).name or f"def {name}(" in text, name


def _row(begin: str) -> str:
    bounds = README.read_text().partition("## Bounds")[2]
    (found,) = (line for line in bounds.splitlines() if line.startswith(f"| {begin}"))
    return found


def _bytes(size: int) -> str:
    if size % 1_000_000 == 0:
        return f"{size // 1_000_000} MB"
    return f"{size // 1024} kB"


def test_defaults_of_keys_in_the_table_are_those_of_the_configuration() -> None:
    limits = Config().limits
    fields = {**limits.model_dump(), "receive_maximum": 1024}
    bounds = README.read_text().partition("## Bounds")[2]
    found = re.findall(r"`(\w+)`(?: of the listener,)? ([\d,]+)( MB)?", bounds)
    found += [("connects_per_s", "1000", "")]
    named = {key for key, _, _ in found if key in fields}
    for key, number, unit in found:
        if key in fields:
            value = int(number.replace(",", "")) * (1_000_000 if unit else 1)
            assert value == fields[key], key
    unnamed = {"session_expiry_s", "keep_alive_s"}  # these bound nothing that a flood fills
    assert fields.keys() - named == unnamed


@pytest.mark.parametrize(
    ("row", "phrases"),
    [
        (
            "passwords",
            [f"{logins.MOST_OF_ONE} of an address", f"| {logins.MOST_WAITING}, and as many"],
        ),
        (
            "TLS handshakes",
            [
                f"{counted_server.TIMEOUT_S:.0f} s; {counted_server.MOST_OF_ONE} of an address",
                f"| {counted_server.MOST} of each listener",
            ],
        ),
        (
            "connections that are no WebSocket",
            [
                f"{websocket._UPGRADE_TIMEOUT:.0f} s; {fragments.MOST_UPGRADING_OF_ONE} of an",
                f"| {fragments.MOST_UPGRADING} of each listener",
            ],
        ),
        (
            "WebSocket messages",
            [
                f"{_bytes(fragments.MOST_BYTES_BEFORE)} before CONNECT",
                f"{_bytes(fragments.MOST_BYTES)} after it",
            ],
        ),
        (
            "requests, logins",
            [
                f"{page.LIFETIME_S:.0f} s, of metrics {server.LIFETIME_S:.0f} s",
                f"{page_logins.MOST_OF_ONE} logins and {page.MOST_STREAMS // 2} streams of a user",
                f"not whole {page.MOST_CONNECTIONS}, of metrics {server.MOST_CONNECTIONS}",
                f"{page_logins.MOST_SESSIONS} logins; {page.MOST_STREAMS} streams",
                f"{page_logins.MOST_WAITING} passwords that wait",
            ],
        ),
        ("what comes before", [f"{dispatch._MOST_WAITING:,} bytes"]),
        (
            "QoS 2 messages",
            [
                f"the last {marks.PLACES} incarnations",
                f"an eighth of `memory_bytes`, {receive_flow._IDENTIFIER_BYTES} bytes each",
                f"{receive_flow._EACH} of each session",
            ],
        ),
        (
            "topic names",
            [f"{exchanges._ALIAS_BYTES:,} bytes", f"{connection._SMALL} bytes of each"],
        ),
        (
            "output",
            [
                f"more than {client_link._FEW // 1024} kB are read",
                f"more than {client_link.MANY:,} bytes",
            ],
        ),
        ("a large payload", [f"({_bytes(runs.LARGE)})"]),
        ("queues", [f"{delivery.MOST_PENDING:,} messages or {_bytes(delivery.PAGE_BYTES)}"]),
        ("subscriptions", [f"{router._DEEP_LEVELS:,} levels deeper than twelve"]),
        (
            "retained messages for",
            [f"{retained_feed._PAGE_TOPICS} topics or {_bytes(fan_out._PAGE_BYTES)}"],
        ),
        ("clients that are paused", [f"{pause.EACH_BYTES:,} bytes", f"{pauses.MOST:,} clients"]),
        ("time of the event loop", [f"{engine._TURN_S * 1000:.0f} ms"]),
        ("what comes due", [f"{broker._AT_ONCE} a second each"]),
        (
            "log lines about a client",
            [f"{log_throttle.MOST_AT_ONCE} at once, then one in {log_throttle._EVERY_S:.0f} s"],
        ),
        (
            "log lines about requests",
            [
                f"{log_throttle.MOST_AT_ONCE} of a listener or serial port at once",
                f"{log_flood.AT_ONCE} at once, then one in {log_flood.EVERY_S:.0f} s",
            ],
        ),
        (
            "what a message causes",
            [f"{delivery.PAGE_ROWS} messages or {_bytes(delivery.PAGE_BYTES)}"],
        ),
    ],
)
def test_numbers_in_the_table_are_those_of_the_code(row: str, phrases: list[str]) -> None:
    for phrase in phrases:
        assert phrase in _row(row)


def test_fractions_in_the_table_are_those_of_the_code() -> None:
    assert (usage._RESERVE, router._FREE_LEVELS, broker._FEEDS) == (5, 12, 4)
    assert (pause.PART, receive_flow._PART, connection._NAMELESS) == (8, 8, 8)
    assert (router._NAMES, connection._NAMES) == (4, 8)
