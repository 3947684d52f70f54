"""`onceway radio status` and `onceway radio listen`, with the rows of a gateway as its control
socket sends them.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from gateway.errors import OncewayError
from gateway.links.lora import cli
from gateway.links.lora.status import BoardSignal, Overheard, RadioStatus

RADIO = RadioStatus(
    "/dev/modem",
    True,
    "KISS modem, firmware 2",
    None,
    "EN 300 220-2 band P",
    36.0,
    360.0,
    {"turns": 7, "foreign": 1},
    ["roof-1"],
    [BoardSignal("roof-1", 5.2, -91.4, 6.25, 1.5), BoardSignal("roof-2", 700.0, None, None, 0.2)],
    load=54.6,
    workable=546.0,
)
FRAME = Overheard("/dev/modem", "07" * 20, -90.4, 5.25, "roof-1", "turns")

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(command: str, *words: str, radios: list[Any], frames: Iterable[Any] = ()) -> Result:
        monkeypatch.setattr(cli.control, "ask", lambda folder, do: {"radios": radios}[do])
        monkeypatch.setattr(cli.control, "follow", lambda folder, do: {"listen": frames}[do])
        return CliRunner().invoke(cli.app, [command, *words, "--data", str(tmp_path)])

    return run


def test_status_shows_each_radio_and_its_boards(run: Run) -> None:
    done = run("status", radios=[asdict(RADIO), asdict(replace(RADIO, path="/dev/other"))])
    assert done.exit_code == 0
    first, second = done.stdout.split("/dev/other")
    assert first.splitlines() == [
        "/dev/modem: KISS modem, firmware 2",
        "  law     EN 300 220-2 band P",
        "  hour    36.0 of 360.0 s sent: 10% of its budget",
        "  heard   54.6 s within an hour: 10% of the 546 s that a full channel carries",
        "  frames  7 turns, 1 foreign",
        "  roof-1: heard 5 s ago, in session, -91 dBm, SNR 6.2 dB, 1.5 s of airtime within an hour",
        "  roof-2: heard 700 s ago, no session, 0.2 s of airtime within an hour",
    ]
    assert second.splitlines() == [": KISS modem, firmware 2", *first.splitlines()[1:]]


@pytest.mark.parametrize("as_json", [False, True])
def test_status_of_a_radio_that_does_not_work_is_exit_code_1(as_json: bool, run: Run) -> None:
    broken = asdict(replace(RADIO, is_open=False, problem="gone. Waiting for it to come back"))
    rows = [asdict(RADIO), broken]
    done = run("status", *["--json"][: int(as_json)], radios=rows)
    assert done.exit_code == 1
    if as_json:
        assert json.loads(done.stdout) == rows
    else:
        assert "/dev/modem: gone. Waiting for it to come back\n" in done.stdout


def test_gateway_without_a_radio_says_how_to_add_one(run: Run) -> None:
    done = run("status", radios=[])
    assert (done.exit_code, done.stdout) == (0, "no radios: a [[lora]] section adds one\n")
    done = run("status", "--json", radios=[])
    assert (done.exit_code, done.stdout) == (0, "[]\n")
    done = run("listen", radios=[])
    assert isinstance(done.exception, OncewayError)
    assert "no radios: a [[lora]] section adds one" in str(done.exception)


@pytest.mark.parametrize(
    ("frame", "line"),
    [
        (FRAME, " -90 dBm, SNR   5.2 dB   20 bytes  roof-1  turns  070707070707070707070707…"),
        (
            replace(FRAME, frame="0703", rssi=None, snr=None, device=None, result="malformed"),
            "    2 bytes  -  malformed  0703",
        ),
    ],
)
def test_each_frame_is_one_line_until_the_listener_is_interrupted(
    frame: Overheard, line: str, run: Run
) -> None:
    def frames() -> Iterator[Any]:
        yield {}  # no frame within some seconds
        yield asdict(frame)
        raise KeyboardInterrupt

    done = run("listen", radios=[{}], frames=frames())
    assert (done.exit_code, done.stderr) == (0, "")
    assert re.sub(r"^\d\d:\d\d:\d\d  ", "", done.stdout) == line + "\n"


def test_frames_as_json_have_the_time_at_which_they_were_heard(run: Run) -> None:
    before = datetime.now(UTC).timestamp()
    done = run("listen", "--json", radios=[{}], frames=iter([{}, asdict(FRAME), {}]))
    found = json.loads(done.stdout)
    assert before <= found.pop("utc") <= datetime.now(UTC).timestamp()
    assert found == asdict(FRAME)
