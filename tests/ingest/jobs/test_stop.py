"""A signal to stop reaches the Python process of the ingest's job, which then saves its state for
the next start. It does not reach Java, which would end at once, so that the job could save nothing.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ingest.processes import SHORT_LIVED_JAVA, START_S, Site
from tests.uplink.servers import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def _by_service(main: int) -> None:
    """Stop the job like a service manager: send SIGTERM to the main process."""
    os.kill(main, signal.SIGTERM)


def _by_keyboard(main: int) -> None:
    """Stop the job like Ctrl-C at a terminal: send SIGINT to all its processes."""
    os.killpg(main, signal.SIGINT)


@pytest.mark.parametrize(
    "stop",
    [
        pytest.param(_by_service, id="service"),
        pytest.param(_by_keyboard, id="keyboard", marks=pytest.mark.soak),
    ],
)
def test_a_stopped_ingest_saves_what_it_has_seen(
    tmp_path: Path, stop: Callable[[int], None]
) -> None:
    site = Site(tmp_path)
    with (tmp_path / "log").open("wb") as log:
        ingest = subprocess.Popen(
            [
                Path(sys.executable).with_name("onceway"),
                *("ingest", "run", "--landing", site.landing, "--table", site.table),
                *("--checkpoint", tmp_path / "checkpoint", "--every", "1s", "--memory", "1g"),
                *("--master", "local[1]", "--conf", "spark.sql.codegen.wholeStage=false"),
            ],
            env={**os.environ, **SHORT_LIVED_JAVA},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    said = (tmp_path / "log").read_text
    try:
        wait_until(lambda: "micro-batch 0" in said(), "the first micro-batch", 2 * START_S)
        assert not list(site.table.glob("_onceway/seen-*"))
        stop(ingest.pid)
        assert ingest.wait(60) == 0, said()
        wait_until(lambda: not _alive(ingest.pid), "the end of Java")
    finally:
        if _alive(ingest.pid):
            os.killpg(ingest.pid, signal.SIGKILL)
    assert list(site.table.glob("_onceway/seen-*")), said()
    assert not re.search("Traceback|Stage|log level", said())
    site.check()


@pytest.mark.soak
def test_a_stop_that_interrupts_a_micro_batch_is_no_failure(tmp_path: Path) -> None:
    site = Site(tmp_path)
    step = "gateway.ingest.sink.foreach_batch:Sink._append"
    ingest = site.start("interrupted", step, "1", every="1s")
    try:
        assert ingest.wait(2 * START_S) == 0, site.said()
    finally:
        if _alive(ingest.pid):
            os.killpg(ingest.pid, signal.SIGKILL)
    assert "the stop interrupted a micro-batch; the next start repeats it" in site.said()
    assert not (site.table / "_onceway" / "stopped.json").exists()
    assert "set aside" not in site.said()


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
