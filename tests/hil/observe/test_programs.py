"""Errors that a program has logged without ending: the rig notes each traceback in the history."""

import logging
import sys
from pathlib import Path

from gateway.system.logs import JsonFormatter
from hil.observe.history import History, read
from hil.observe.programs import note_errors

LOG = """\
INFO gateway.links.serial_port: ports/uno-1: uno-1 greets, boot 2, next sequence 53
ERROR asyncio: Exception in callback <bound method Engine._end_turn>
  Traceback (most recent call last):
    File "serial_port.py", line 315, in _arm
      if self._timer.when() <= deadline:
         ^^^^^^^^^^^^^^^^
  AttributeError: 'uvloop.loop.Handle' object has no attribute 'when'
WARNING gateway.links.serial_port: ports/uno-1: Traceback is not at the begin of this line
"""


def test_each_traceback_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "gateway.log"
    log.write_text(LOG)
    history = History(tmp_path / "history.jsonl")
    note_errors(history, "gateway", log)
    note_errors(history, "uplink", tmp_path / "uplink.log")
    history.close()
    assert [(event.hop, event.event, event.data) for event in read(history.path)] == [
        (
            "gateway",
            "erred",
            {"error": "AttributeError: 'uvloop.loop.Handle' object has no attribute 'when'"},
        )
    ]


def test_a_traceback_in_a_log_of_json_is_reported(tmp_path: Path) -> None:
    log, why = tmp_path / "gateway.log", 'no "x" in C:\\name'
    try:
        raise KeyError(why)
    except KeyError:
        caught = sys.exc_info()
    record = logging.LogRecord("onceway", logging.ERROR, "f.py", 1, "failed", (), caught)
    quiet = logging.LogRecord("onceway", logging.ERROR, "f.py", 1, "Traceback of none", (), None)
    log.write_text("".join(f"{JsonFormatter().format(one)}\n" for one in (quiet, record)))
    history = History(tmp_path / "history.jsonl")
    note_errors(history, "gateway", log)
    history.close()
    [found] = read(history.path)
    assert found.data["error"].startswith("KeyError: ")
