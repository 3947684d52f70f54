"""The lease of the tables: only one job at a time works with them, and the next job waits."""

import errno
import fcntl
import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gateway.ingest.delta.lease import lease, lock_file

HOLD = (
    "import sys\nfrom gateway.ingest.delta.lease import lease\nwith lease(sys.argv[1]):\n   "
    " print('held', flush=True)\n    sys.stdin.read()\n"
)


def test_second_process_waits_and_names_the_holder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = f"file:{tmp_path}/a table #1? 100%41"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, table], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"

        class EndsTheOther(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                threading.Timer(0.2, other.kill).start()  # the lease of a dead process ends

        handler = EndsTheOther()
        logging.getLogger("onceway.ingest").addHandler(handler)
        try:
            with lease(table):
                assert caplog.text.count(f"process {other.pid} on ") == 1, "no line each time"
        finally:
            logging.getLogger("onceway.ingest").removeHandler(handler)
    assert lock_file(table) == tmp_path / ".a table #1? 100%41.lease"


def test_tables_elsewhere_need_no_lease() -> None:
    assert lock_file("s3a://lake/publications") is None


def test_a_disk_without_locks_is_an_error_and_not_a_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="No locks available"), lease(f"file:{tmp_path}/table"):
        pytest.fail("a job began without the lease")
