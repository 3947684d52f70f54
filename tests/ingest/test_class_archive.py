"""The archive of Java's classes is used only if it is complete and matches the jars."""

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.errors import OncewayError
from gateway.ingest import class_archive, cli, command, prepare
from gateway.system.lock import Locked, ProcessLock

pytest.importorskip("pyspark")

VERSION = ["-Xlog:class+load", "-version"]
"""Java options that print each loaded class with its source, and the version."""
FROM_ARCHIVE = "shared objects file (top)"


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return empty files with the names of Delta's jars, in a home folder with a space in
    its name.
    """
    monkeypatch.setenv("HOME", str(tmp_path / "a home"))
    monkeypatch.delenv("SPARK_DIST_CLASSPATH", raising=False)
    folder = tmp_path / "a home" / command.IVY / "jars"
    folder.mkdir(parents=True)
    for name in command.jars():
        (folder / name).touch()
    return [folder / name for name in command.jars()]


@pytest.fixture
def archive(jars: list[Path]) -> Path:
    """Let Java write an archive for these jars. Return its path."""
    written, _ = class_archive.options_to_write(jars)
    subprocess.run(["java", *shlex.split(written), "-version"], check=True, capture_output=True)
    return class_archive.keep(jars)


def started(jars: list[Path]) -> str:
    """Start Java with the ingest's options for these jars. Return its output."""
    found, _ = class_archive.options(jars)
    line = ["java", *shlex.split(found), *VERSION]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


class Practice(command.Job):
    """A job that runs a line of the shell in place of Spark. spark: the line."""

    def first(self) -> command.Command:
        return command.Command({}, ["sh", "-c", *self.spark])


def practise(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Let the runs of `prepare` be these lines of the shell, one after the other."""
    told = iter(lines)
    monkeypatch.setattr(prepare, "build", lambda *_, **__: Practice([next(told)], []))


def test_java_takes_classes_from_the_archive_in_a_folder_with_a_space(
    jars: list[Path], archive: Path
) -> None:
    assert FROM_ARCHIVE in started(jars)
    job = command.build("jobs/stream.py", [], downloaded=True)
    assert str(archive) in job.first().environment["PYSPARK_SUBMIT_ARGS"]
    assert job.first().environment["SPARK_DIST_CLASSPATH"].split(":") == [*map(str, jars)]
    assert "SharedArchive" not in str(command.build("jobs/stream.py", []).submitted())


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_archive_is_no_harm(jars: list[Path], archive: Path, seed: int) -> None:
    draw = random.Random(seed)
    data = bytearray(archive.read_bytes())
    at = draw.randrange(len(data)) if seed else 0
    data[at : at + 64] = draw.randbytes(len(data[at : at + 64]))
    archive.unlink()
    archive.write_bytes(data)
    said = started(jars)
    assert "openjdk version" in said.lower() or "java version" in said.lower()
    assert "warning" not in said


@pytest.mark.parametrize("size", [0, 1, 4096, -4096, -1])
def test_an_archive_that_is_cut_is_not_used(jars: list[Path], archive: Path, size: int) -> None:
    """If Java used such an archive, it would read beyond the end of the file and crash."""
    data = archive.read_bytes()
    archive.unlink()
    archive.write_bytes(data[:size])
    assert class_archive.options(jars) == ("", {})
    assert class_archive.is_stale(jars)


def test_an_archive_of_another_java_is_not_used_and_a_start_says_what_to_do(
    jars: list[Path], archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not class_archive.is_stale(jars)
    other = tmp_path / "java"
    (other / "bin").mkdir(parents=True)
    shutil.copy(sys.executable, other / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(other))
    assert class_archive.options(jars) == ("", {})
    assert class_archive.is_stale(jars)
    line = [str(Path(sys.executable).with_name("onceway")), "ingest", "run"]
    places = [f"--{what}={tmp_path}" for what in ("landing", "table", "checkpoint")]
    (other / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    done = subprocess.run([*line, *places], capture_output=True, text=True, check=False)
    assert "onceway ingest prepare" in done.stderr


def test_an_updated_java_does_not_use_the_archive(
    jars: list[Path], archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    (jars[0].parent / class_archive.PART).touch()
    kept = class_archive.keep(jars)
    assert str(kept) in class_archive.options(jars)[0]
    assert not archive.exists(), "an older archive stays for ever"
    os.utime(java, (1, 1))
    assert class_archive.options(jars) == ("", {})


def test_jars_of_the_user_stay_first_in_the_class_path(
    jars: list[Path], archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_DIST_CLASSPATH", "/opt/ours.jar:/opt/theirs/*")
    _, environment = class_archive.options(jars)
    found = environment["SPARK_DIST_CLASSPATH"].split(":")
    assert found == ["/opt/ours.jar", "/opt/theirs/*", *map(str, jars)]


def test_a_java_that_writes_no_archive_is_named_and_an_interrupted_one_is_not_kept(
    jars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (jars[0].parent / class_archive.PART).write_bytes(b"a part, of a prepare that was killed")
    monkeypatch.setattr(prepare, "_practise", lambda *_: "")
    with pytest.raises(OncewayError, match="Java wrote no archive of its classes"):
        prepare.prepare(None, lambda _: None)
    assert not list(jars[0].parent.glob("*.jsa"))


def test_an_archive_of_the_same_name_is_replaced_and_not_deleted(jars: list[Path]) -> None:
    for text in (b"first", b"again"):
        (jars[0].parent / class_archive.PART).write_bytes(text)
        kept = class_archive.keep(jars)
    assert kept.read_bytes() == b"again"
    assert str(kept) in class_archive.options(jars)[0]


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_prepare_downloads_delta_first_and_the_practice_batch_is_one_that_the_ingest_takes(
    jars: list[Path], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    for jar in jars:
        jar.unlink()
    folder, runs = jars[0].parent, []

    def build(script: str, options: list[str], **how: Any) -> Practice:
        from gateway.ingest.jobs.stream import parse_arguments
        from gateway.ingest.landing.keys import keys_url
        from gateway.ingest.landing.offsets import Feeds
        from gateway.ingest.landing.place import Landing
        from gateway.ingest.landing.trust import Trust

        runs.append(how["archive"])
        told = parse_arguments(options)
        feeds = Feeds(Landing(told.landing), trust=Trust(keys_url(told.table), True))
        (taken,) = feeds.between({}, feeds.advance({}, 100))
        assert (taken.feed, taken.rows, taken.flaw) == ("practice/00000001", 3, None)
        line = f"touch {' '.join(map(repr, map(str, jars)))}"
        wrote = f"echo classes > '{folder / class_archive.PART}'"
        return Practice([wrote if how["archive"] == "write" else line], [])

    monkeypatch.setattr(prepare, "build", build)
    done = CliRunner().invoke(cli.app, ["prepare", *words])
    assert done.exit_code == 0
    (archive,) = folder.glob("*.jsa")
    assert runs == ["leave", "write"]
    if words:
        assert json.loads(done.stdout) == {"archive": str(archive), "bytes": 8}
        assert not done.stderr
    else:
        assert done.stdout == f"Prepared: {archive}, 0 MB\n"
        assert [line[-4:] for line in done.stderr.splitlines()] == [" ...", " ..."]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("echo downloading; echo no route to host; exit 1", "no route to host: the ingest cannot"),
        ("exit 1", "the ingest cannot run on this machine"),
        ("echo done", "Delta's jars are missing after the test run"),
    ],
)
def test_a_failed_practice_says_why(
    jars: list[Path], monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    jars[0].unlink()
    practise(monkeypatch, line)
    with pytest.raises(OncewayError) as raised:
        prepare.prepare(None, lambda _: None)
    assert str(raised.value).startswith(said)


def test_practice_without_downloaded_jars_uses_no_archive(jars: list[Path], archive: Path) -> None:
    """Prepare downloads Delta with `leave`: an archive of an earlier Delta must not be used."""
    job = command.build("jobs/stream.py", [], downloaded=True, archive="leave")
    assert "--jars" in job.spark
    assert "SharedArchive" not in str(job.first())


def test_one_process_prepares_at_a_time(jars: list[Path]) -> None:
    with (
        closing(ProcessLock(jars[0].parent / prepare.LOCK)),
        pytest.raises(Locked, match="already in use by process"),
    ):
        prepare.prepare(None, lambda _: None)


@pytest.mark.soak
def test_a_prepared_ingest_runs_from_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test uses the jars that are downloaded on this machine."""
    found = command.downloaded_jars()
    if found is None:
        pytest.skip("no jars of Delta are downloaded")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / command.IVY / "jars").mkdir(parents=True)
    for jar in found:
        (tmp_path / command.IVY / "jars" / jar.name).symlink_to(jar)
    line = [
        Path(sys.executable).with_name("onceway"),
        "ingest",
        "prepare",
        "--memory",
        "1g",
        "--json",
    ]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert not done.stderr
    assert json.loads(done.stdout)["bytes"] > 50e6
    monkeypatch.setenv("JDK_JAVA_OPTIONS", f"-Xlog:class+load:file={tmp_path}/loaded.log")
    prepare._practise("1g", "use")
    loaded = (tmp_path / "loaded.log").read_text().splitlines()
    assert sum(FROM_ARCHIVE in line for line in loaded) > 5000
    read = [line for line in loaded if ".sql.delta." in line and "source: file:" in line]
    assert not read, "classes of Delta were read from jars"
