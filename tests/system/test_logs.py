"""Log lines as text, as JSON and for the journal. A client cannot forge lines."""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.mqtt.packets import Connack, Connect, Version
from gateway.mqtt.reason import ReasonCode as R
from gateway.system.logs import Form, HumanFormatter, JsonFormatter, about, configure
from tests.service.process import gateway, start
from tests.service.wire import Wire

FORGED = "roof\n\x1b[2JERROR gateway.store: all is lost\x85\u2028"


def a_record(text: str, *arguments: object, **fields: str | None) -> logging.LogRecord:
    record = logging.LogRecord("gateway.x", logging.WARNING, __file__, 1, text, arguments, None)
    record.about = about(**fields)["about"]
    return record


def test_client_chosen_text_stays_within_its_line() -> None:
    text = HumanFormatter().format(a_record("%s: refused", FORGED))
    assert text.isprintable()
    assert (
        text == "WARNING gateway.x: roof\\x0a\\x1b[2JERROR gateway.store: all is lost\\x85\\u2028:"
        " refused"
    )
    line = JsonFormatter().format(a_record("%s: refused", FORGED, client=FORGED))
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["client"] == FORGED


def test_an_exception_cannot_be_made_to_look_like_a_record() -> None:
    try:
        raise ValueError("bad\nERROR gateway.store: all is lost")
    except ValueError:
        record = a_record("internal error")
        record.exc_info = sys.exc_info()
    lines = HumanFormatter().format(record).split("\n")
    assert len(lines) > 2
    assert all(line.startswith("  ") for line in lines[1:])
    assert "all is lost" in json.loads(JsonFormatter().format(record))["exception"]


def test_json_has_keys_of_its_own_and_leaves_out_what_is_not_known() -> None:
    line = json.loads(
        JsonFormatter().format(a_record("%s: gone", "/dev/ttyS0", port="/dev/ttyS0", device=None))
    )
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "warning",
        "logger": "gateway.x",
        "message": "/dev/ttyS0: gone",
        "port": "/dev/ttyS0",
    }


@pytest.fixture
def root() -> Iterator[None]:
    """Restore the root logger after the test, because `configure` changes it."""
    logger, talkative = logging.getLogger(), logging.getLogger("talkative")
    handlers, level = logger.handlers[:], logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)
    talkative.setLevel(logging.NOTSET)


@pytest.mark.usefixtures("root")
def test_lines_for_the_journal_begin_with_their_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "journal").open("w+") as journal:
        monkeypatch.setattr(sys, "stderr", journal)
        status = os.fstat(journal.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        configure(Form.HUMAN, None, ("talkative",))
        logging.getLogger("talkative").info("one")
        logging.getLogger("other").info("not said")
        logging.getLogger("other").error("two\nthree")
        journal.seek(0)
        assert journal.read() == "<6>INFO talkative: one\n<3>ERROR other: two\\x0athree\n"


async def test_a_gateway_logs_json_with_client_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    text = (
        f'[gateway]\ndata = "{tmp_path}"\n[[listener]]\nbind = "127.0.0.1:0"\nanonymous ='
        ' false\n[log]\nformat = "json"\nlevel = "info"\n'
    )
    await asyncio.to_thread(path.write_text, text)
    async with gateway(tmp_path, "--config", str(path)) as running:
        client = Wire(*await asyncio.open_connection("127.0.0.1", running.port), Version.V5)
        client.send(Connect(FORGED, password=b"secret", username=None))
        assert (await client.take(Connack)).reason == R.NOT_AUTHORIZED
        client.writer.close()
        await running.logged('"reason": "not_authorized"')
        assert await running.end() == 0
    lines = [json.loads(line) for line in running.log]
    (refused,) = [line for line in lines if line.get("reason") == "not_authorized"]
    assert (refused["level"], refused["client"], refused["listener"]) == (
        "warning",
        FORGED,
        "127.0.0.1:0",
    )
    assert refused["address"].startswith("127.0.0.1:")
    assert not any("secret" in line for line in running.log)


async def test_the_command_line_may_ask_for_json(tmp_path: Path) -> None:
    running = await start(
        "--listen", "127.0.0.1:0", "--data", str(tmp_path), "--log-format", "json"
    )
    await running.ready()
    assert await running.end() == 0
    assert {json.loads(line)["logger"] for line in running.log} >= {"gateway.service.gateway"}
