"""`onceway ingest run` reports mistakes before it starts Spark."""

import inspect
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from gateway.errors import OncewayError, UsageError
from gateway.ingest import cli, command
from gateway.ingest.cli import app
from gateway.system.durations import seconds
from gateway.uplink.signing import load_or_make


def _run(landing: Path, *more: str) -> OncewayError:
    where = ["--landing", str(landing), "--table", "/t", "--checkpoint", "/c"]
    error = CliRunner().invoke(app, ["run", *where, *more]).exception
    assert isinstance(error, OncewayError)
    return error


def test_a_missing_landing_place_is_named(tmp_path: Path) -> None:
    assert str(tmp_path / "none") in str(_run(tmp_path / "none"))


def test_invalid_time_is_refused(tmp_path: Path) -> None:
    assert "'soon' is not a time" in str(_run(tmp_path, "--every", "soon"))


def test_a_missing_java_names_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "apt-get install default-jre-headless" in str(_run(tmp_path))


def test_a_wrong_java_home_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert f"{tmp_path / 'jdk'}: JAVA_HOME has no bin/java" in str(_run(tmp_path))


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--conf", "spark.ui.enabled"], "a Spark setting is KEY=VALUE"),
        (["--every", "-5s"], "'-5s' is not a time"),
    ],
)
def test_settings_that_break_spark_are_refused_before_it_starts(
    tmp_path: Path, words: list[str], what: str
) -> None:
    assert what in str(_run(tmp_path, *words))


def test_a_micro_batch_has_room_for_a_row(tmp_path: Path) -> None:
    where = ["--landing", str(tmp_path), "--table", "/t", "--checkpoint", "/c"]
    assert CliRunner().invoke(app, ["run", *where, "--rows", "0"]).exit_code == 2


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--table", "/t"], "no gateway has landed a batch"),
        (["--table", "/t", "--until", "5"], "--until needs a feed"),
        ([], "name the table"),
        (["--feed", "site", "--until", "5"], "a feed is GATEWAY/EPOCH"),
        (["--feed", "site/0a1b2c3d"], "its batches begin at 1"),
        (["--feed", "site/0a1b2c3d", "--until", "5"], "there is no such feed"),
    ],
)
def test_cleaning_without_effect_is_reported(tmp_path: Path, words: list[str], what: str) -> None:
    error = CliRunner().invoke(app, ["clean", "--landing", str(tmp_path), *words]).exception
    assert isinstance(error, OncewayError)
    assert what in str(error)


@pytest.mark.parametrize(
    ("text", "value"),
    [("30s", 30), ("5m", 300), ("1h", 3600), ("250ms", 0.25), ("1.5s", 1.5), ("90d", 7_776_000)],
)
def test_times_as_people_type_them(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "30", "s", "-1s", "1 s", "1w"])
def test_invalid_times(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        seconds(text)


def test_pass_without_new_batches_reports_the_progress() -> None:
    pytest.importorskip("pyspark")
    from gateway.ingest.jobs.stream import progress_text

    feeds = {"roof/0a1b2c3d": 7, "roof/ffffffff": 2, "cellar/0a1b2c3d": 3}
    assert progress_text(feeds) == "the table has 12 batches of 2 gateways"


@pytest.mark.parametrize("made", [".", "site/0a1b2c3d/000000000001.parquet", None])
def test_landing_place_without_a_batch_is_an_error_before_spark_starts(
    tmp_path: Path, made: str | None
) -> None:
    """The landing place is a URL, which the command line does not check. A batch counts only with
    its manifest.
    """
    pytest.importorskip("pyspark")
    from gateway.ingest.jobs import stream

    landing = tmp_path / "landing"
    if made:
        (landing / made).mkdir(parents=True)
    where = ["--landing", f"file://{landing}", "--table", "/t", "--checkpoint", "/c"]
    with pytest.raises(OncewayError) as raised:
        stream.run(stream.parse_arguments([*where, "--available-now"]))
    what = "no gateway has landed a batch" if made else "there is no such landing place"
    assert what in str(raised.value)
    assert str(landing) in str(raised.value)


@pytest.mark.parametrize(
    ("landing", "table", "checkpoint"),
    [
        ("l", "./t", "t"),
        ("l", "./t", "t/checkpoint"),
        ("l", "./t", "file:{}/t_readings/c"),
        ("t/l", "./t", "c"),
        ("l", "./l", "c"),
        ("l", "./t", "l"),
        ("l", "lake.publications", "file://{}/l"),
    ],
)
def test_folders_that_would_delete_each_other_s_files_are_refused_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, landing: str, table: str, checkpoint: str
) -> None:
    pytest.importorskip("pyspark")
    from gateway.ingest.jobs import stream

    monkeypatch.chdir(tmp_path)
    where = ["--landing", landing, "--table", table, "--checkpoint", checkpoint.format(tmp_path)]
    with pytest.raises(OncewayError, match="Name another folder with --"):
        stream.run(stream.parse_arguments(where))
    assert not list(tmp_path.iterdir())


def test_jars_that_were_downloaded_once_are_named_as_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / command.IVY / "jars"
    folder.mkdir(parents=True)
    first, *others = command.jars()
    for name in others:
        (folder / name).touch()
    assert "--packages" in command.build("jobs/stream.py", [], downloaded=True).spark
    (folder / first).touch()
    assert "--packages" in command.build("jobs/stream.py", []).spark
    arguments = command.build("jobs/stream.py", [], downloaded=True).spark
    assert "--packages" not in arguments
    jars = arguments[arguments.index("--jars") + 1].split(",")
    assert sorted(Path(jar).name for jar in jars) == sorted(command.jars())


def test_a_table_on_s3_brings_what_reaches_it_for_the_hadoop_in_spark() -> None:
    pyspark = pytest.importorskip("pyspark")
    (jar,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    version = jar.stem.removeprefix("hadoop-client-api-")
    line = command.build("jobs/stream.py", ["--table", "s3a://lake/publications"]).spark
    wanted = line[line.index("--packages") + 1].split(",")
    assert f"org.apache.hadoop:hadoop-aws:{version}" in wanted
    plain = command.build("jobs/stream.py", ["--table", "/lake/publications"]).spark
    assert "hadoop-aws" not in " ".join(plain)


def test_without_spark_in_this_python_the_command_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "SUBMIT", tmp_path / "spark-submit")
    text = str(_run(tmp_path))
    assert text.startswith(f"{tmp_path / 'spark-submit'}: Spark is not installed")
    assert "pip install" in text
    assert "[centre]" in text


@pytest.mark.parametrize(
    "words",
    [
        ["release", "--landing", "{}"],
        ["release", "--landing", "{}", "--trusted", "/srv/keys.json"],
        ["compact"],
        ["summarise"],
        ["expire", "--older-than", "400d"],
    ],
)
@pytest.mark.parametrize("stale", [False, True])
def test_upkeep_becomes_a_job_that_takes_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], stale: bool
) -> None:
    """A start without an archive of Java's classes names the command that writes the archive, but
    only if there was one before the update.
    """
    pytest.importorskip("pyspark")
    from gateway.ingest.jobs import upkeep

    started = []

    def execve(program: str, arguments: list[str], environment: Mapping[str, str]) -> None:
        assert program == arguments[0]
        assert environment["HOME"] == str(tmp_path), "the job has another environment"
        started.append(arguments)

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / command.IVY / "jars"
    folder.mkdir(parents=True)
    for name in [*command.jars(), *(["classes-old-1.jsa"] if stale else [])]:
        (folder / name).touch()
    words = [word.format(tmp_path) for word in words]
    done = CliRunner().invoke(app, [*words, "--table", "/srv/lake/publications"])
    assert done.exit_code == 0
    assert ("`onceway ingest prepare` shortens later starts" in done.stderr) is stale
    ((_, _, script, *options),) = started
    assert script == str(command.HERE / "jobs" / "upkeep.py")
    told = vars(upkeep.parse_arguments(options))
    expected = {"table": "/srv/lake/publications", "writer": "auto", "command": words[0]}
    if words[0] == "release":
        expected |= {"landing": str(tmp_path), "trusted": (*words, None)[4] if words[4:] else None}
    assert told == expected | ({"older_than": 400 * 86_400} if words[0] == "expire" else {})


def test_expiry_at_no_time_is_refused() -> None:
    done = CliRunner().invoke(app, ["expire", "--table", "/t", "--older-than", "a year"])
    assert isinstance(done.exception, UsageError)
    assert "--older-than: 'a year' is not a time" in str(done.exception)


def test_keys_are_given_by_the_line_that_the_gateway_prints(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    key = load_or_make(tmp_path).public
    table = str(tmp_path / "lake" / "publications")

    def trust(*arguments: str, lines: str = "") -> Result:
        return CliRunner().invoke(app, ["trust", "--table", table, *arguments], input=lines)

    assert trust("-", lines=f"{key} roof west\n").exit_code == 0
    assert trust("--unsigned-until", "roof west/0a1b2c3d:12", "--allow-unsigned").exit_code == 0
    told = json.loads(trust("--json").stdout)
    assert told == {
        "schema": 1,
        "unsigned": True,
        "until": {"roof west/0a1b2c3d": 12},
        "keys": {"roof west": [key]},
    }
    assert "roof west: " in trust().stdout
    assert trust("--distrust", "roof west", "--refuse-unsigned").exit_code == 0
    assert json.loads(trust("--json").stdout)["keys"] == {}


def test_keys_of_several_gateways_are_given_at_once(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    files = []
    for gateway in ("roof", "cellar"):
        (tmp_path / gateway).mkdir()
        files.append(tmp_path / f"{gateway}.key")
        files[-1].write_text(f"{load_or_make(tmp_path / gateway).public} {gateway}\n")
    table = str(tmp_path / "publications")
    given = CliRunner().invoke(app, ["trust", "--table", table, *map(str, files)])
    assert given.exit_code == 0
    told = CliRunner().invoke(app, ["trust", "--table", table, "--json"])
    assert json.loads(told.stdout)["keys"].keys() == {"roof", "cellar"}


def test_keys_that_cannot_be_read_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin").write_bytes(b"\xfcber")
    (tmp_path / "file").touch()
    key = f"{load_or_make(tmp_path).public} roof"
    (tmp_path / "good").write_text(key)
    (tmp_path / "no-name").write_text(key.split(maxsplit=1)[0])
    for arguments, what in (
        (["none"], "none: cannot read the keys"),
        (["latin"], "latin: cannot read the keys"),
        (["no-name"], "not a valid gateway name: ''"),
        (["good", "--trusted", "file/keys.json"], "the file of keys cannot be reached"),
        (["good", "--distrust", "cellar"], "cellar: no key of this gateway is trusted"),
    ):
        done = CliRunner().invoke(app, ["trust", "--table", "./t", *arguments])
        assert isinstance(done.exception, OncewayError)
        assert what in str(done.exception)
    assert not (tmp_path / "t_trusted.json").exists()


def test_the_keys_of_a_catalog_table_need_a_place() -> None:
    found = CliRunner().invoke(app, ["trust", "--table", "lake.publications"])
    assert isinstance(found.exception, OncewayError)
    assert "--trusted" in str(found.exception)


def test_a_landing_place_that_cannot_be_reached_is_called_that(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from gateway.ingest.jobs import stream

    (tmp_path / "file").touch()
    url = f"file://{tmp_path}/file/landing"
    where = ["--landing", url, "--table", "/t", "--checkpoint", "/c"]
    with pytest.raises(OncewayError, match="the landing place cannot be reached") as raised:
        stream.run(stream.parse_arguments(where))
    assert url in str(raised.value)


def test_defaults_are_those_of_the_guide() -> None:
    defaults = {
        (name, parameter): inspect.signature(getattr(cli, name)).parameters[parameter].default
        for name, parameter in (
            ("run", "every"),
            ("report_command", "max_lag"),
            ("clean", "older_than"),
        )
    }
    assert defaults == {
        ("run", "every"): "30s",
        ("report_command", "max_lag"): "1h",
        ("clean", "older_than"): "2d",
    }
    source = (Path(cli.__file__).parent / "jobs" / "stream.py").read_text()
    assert "default=30.0" in source.partition('"--every"')[2].partition(")")[0]
