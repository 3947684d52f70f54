"""Only one process may use a data directory: a second one is refused. Commands that only read it
disturb no process.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from gateway.errors import OncewayError
from gateway.system.lock import Locked, ProcessLock, holder

HOLD = """
import signal, sys
from pathlib import Path
from gateway.system.lock import ProcessLock
lock = ProcessLock(Path(sys.argv[1]))
print("held", flush=True)
signal.pause()
"""


def test_second_process_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "gateway.lock"
    with (
        closing(ProcessLock(path)),
        pytest.raises(Locked, match=f"already in use by process {os.getpid()}"),
    ):
        ProcessLock(path)
    ProcessLock(path).close()


def test_a_link_in_the_place_of_the_lock_changes_no_other_file(tmp_path: Path) -> None:
    other = tmp_path / "shadow"
    other.write_text("root")
    (tmp_path / "uplink.lock").symlink_to(other)
    with pytest.raises(OncewayError, match="cannot take the lock"):
        ProcessLock(tmp_path / "uplink.lock")
    assert other.read_text() == "root"


def test_a_holder_is_named_until_it_dies(tmp_path: Path) -> None:
    path = tmp_path / "gateway.lock"
    assert holder(path) is None
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert holder(path) == f"process {process.pid}"
        process.send_signal(signal.SIGKILL)
    assert holder(path) is None


def test_query_for_the_holder_blocks_no_process(tmp_path: Path) -> None:
    path = tmp_path / "gateway.lock"
    ProcessLock(path).close()
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            holder(path)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(3000):
            ProcessLock(path).close()
    finally:
        stop.set()
        asking.join()
