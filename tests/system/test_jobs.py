"""A background job that fails or hangs becomes a problem after its time limit, and makes one log
line.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.boards.admission import Registry
from gateway.boards.expected import Expected
from gateway.boards.reports import Boards
from gateway.config import Config
from gateway.mirror.last import LastReadings
from gateway.system.jobs import Job, SavedFile
from gateway.web.health import health, problems
from gateway.web.overview import History, overview
from tests.web.test_overview import source


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_job_is_a_problem_only_after_its_bound(caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    job = Job("tidy", "files are not tidied", 60, time)
    time.now = 1000
    assert (job.problem, job.age_s) == (None, 1000)
    job.begin()
    time.now = 1060
    job.begin()
    assert job.problem is None
    time.now = 1061
    assert job.problem == "files are not tidied for more than 60 s (the attempt does not end)"
    for _ in range(3):
        job.fail(OSError(28, "No space left on device"))
    assert job.problem is not None
    assert "the disk is full" in job.problem
    assert (job.failures, len(caplog.messages)) == (3, 1)
    job.succeed()
    time.now = 5000
    assert (job.problem, job.error, job.failures) == (None, None, 3)
    assert caplog.messages[-1].startswith("this problem is over: files are not tidied")
    assert len(caplog.messages) == 2


def test_loop_that_stops_is_a_problem() -> None:
    time = Time()
    job = Job("mirror", "the mirror stands still", 60, time)
    job.begin()
    for time.now in range(0, 500, 50):
        job.go_round()
        assert job.problem is None
    time.now += 61
    assert job.problem == "the mirror stands still for more than 60 s (the attempt does not end)"


def test_overdue_job_shows_in_status_health_and_page(tmp_path: Path) -> None:
    time = Time()
    job = Job("tidy", "files are not tidied", 60, time)
    seen = replace(source(tmp_path), jobs=[job])
    assert health(seen)["status"] == "ok"
    job.fail(OSError(30, "Read-only file system"))
    assert health(seen)["status"] == "ok", "not yet beyond its bound"
    time.now = 61
    assert health(seen)["status"] == "failing"
    (problem,) = problems(seen)
    assert problem.part == "jobs"
    (shown,) = [
        item
        for item in overview(seen, None, History(), (0, 0))["problems"]
        if item["part"] == "jobs"
    ]
    assert "read-only" in shown["what"]
    assert shown["todo"]


FILES = {
    "boards": lambda folder: Boards(folder).saved,
    "expected": lambda folder: Expected(folder).saved,
    "readings": lambda folder: LastReadings(folder).saved,
    "counts": lambda folder: LastReadings(folder).saved_counts,
    "topics": lambda folder: LastReadings(folder).saved_topics,
    "pending": lambda folder: Registry(folder).pending,
}


@pytest.mark.parametrize("name", FILES)
def test_saved_file_that_fails_is_kept_and_written_later(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    saved: SavedFile = FILES[name](tmp_path)
    saved.write("{}")
    written = tmp_path / saved.job.name
    assert written.read_text() == "{}"
    blocked = written.with_suffix(".new")
    blocked.mkdir()
    for _ in range(3):
        saved.write('{"a": 1}')
    assert (saved.job.failures, saved.unwritten) == (3, '{"a": 1}')
    assert len(caplog.messages) == 1
    assert str(written) in caplog.messages[0]
    blocked.rmdir()
    saved.write(saved.unwritten)
    assert (json.loads(written.read_text()), saved.unwritten) == ({"a": 1}, None)
    assert saved.job.error is None


def test_reports_that_were_not_written_are_news_again(tmp_path: Path) -> None:
    boards = Boards(tmp_path)
    blocked = (tmp_path / boards.saved.job.name).with_suffix(".new")
    blocked.mkdir()
    boards.write("{}")
    assert boards.news() == "{}"
    blocked.rmdir()
    boards.write("{}")
    assert boards.news() is None


def test_registry_that_cannot_be_read_is_a_failed_job_until_it_can(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    assert registry.reading.error is None, "there is no registry yet"
    file = tmp_path / "registry.db"
    file.write_bytes(b"not a database" * 100)
    registry.refresh()
    assert "damaged" in (registry.reading.error or "")
    file.unlink()
    file.mkdir()
    registry.refresh()
    assert registry.reading.failures == 2


def test_each_job_has_a_name_of_its_own(tmp_path: Path) -> None:
    names = [job.name for job in Registry(tmp_path).jobs]
    assert len(set(names)) == len(names)
    assert Config().notify is not None
