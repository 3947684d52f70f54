"""A table has the same name for every command: the job, the trusted keys and the report use one
folder.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from gateway.errors import OncewayError
from gateway.ingest import cli, places
from gateway.ingest.cli import app
from gateway.ingest.delta.tables import Table, absolute, is_named
from gateway.ingest.jobs import stream, upkeep
from gateway.ingest.landing.keys import Keys, keys_url, load, save
from gateway.ingest.sink.publications import PUBLICATIONS
from gateway.uplink.delta_reader import query
from gateway.uplink.signing import load_or_make
from tests.ingest.batches import land, row
from tests.ingest.lake import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ODD = [
    "a%20b",
    "a b",
    "a#b",
    "a?b",
    "größe-λ",
    "a+b",
    "100%",
    "a%2Fb",
    "a&b=c",
    "a'b",
    "a\\b",
    "a`b",
]


@pytest.mark.parametrize("folder", ODD)
@pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}"])
def test_reader_without_spark_finds_the_folder_by_its_name(
    tmp_path: Path, folder: str, form: str
) -> None:
    write_deltalake(tmp_path / "plain", pa.table({"sequence": [1, 2]}))
    (tmp_path / folder).mkdir()
    (tmp_path / "plain").rename(tmp_path / folder / "publications")
    table = form.format(tmp_path / folder / "publications")
    assert query(table, "SELECT count(*) AS rows FROM it") == [{"rows": 2}]
    assert query(f"{table}_none", "SELECT count(*) AS rows FROM it") is None


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("folder", [name for name in ODD if "\\" not in name and "'" not in name])
def test_the_job_writes_the_folder_that_the_report_reads(
    spark: "SparkSession", tmp_path: Path, folder: str
) -> None:
    job = Job(spark, tmp_path)
    job.publications = tmp_path / folder / "publications"
    job.publications.parent.mkdir()
    job.allow_unsigned()
    land(job.landing, "site", 1, [row("dev", 1)])
    job.run()
    where = ["--landing", str(job.landing), "--table", str(job.publications)]
    told = CliRunner().invoke(app, ["report", *where])
    assert told.exit_code == 0, (told.stdout, told.exception)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()].count(folder) == 1


@pytest.mark.parametrize("name", ["publications", "publications/", "./publications"])
def test_a_word_alone_is_a_folder_here_for_the_job_and_for_the_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site").mkdir()
    key = load_or_make(tmp_path / "site").public
    given = CliRunner().invoke(app, ["trust", "--table", name, "-"], input=f"{key} site\n")
    assert given.exit_code == 0, given.exception
    assert not is_named(name)
    assert absolute(name) == str(tmp_path / "publications")
    assert load(keys_url(absolute(name))).keys == {"site": [key]}


def test_a_folder_with_a_backtick_is_quoted_for_sql() -> None:
    spark: Any = None
    assert (
        Table(spark, "/srv/a`b/publications", PUBLICATIONS).sql == "delta.`/srv/a``b/publications`"
    )
    assert Table(spark, "`a b`.publications", PUBLICATIONS).sql == "`a b`.publications"


@pytest.mark.parametrize("name", ["default.publications", "spark_catalog.lake.publications"])
def test_a_name_with_a_dot_is_one_of_a_catalog(name: str) -> None:
    assert is_named(name)
    assert absolute(name) == name


def test_a_word_that_an_older_version_took_for_a_catalog_s_table_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spark-warehouse/publications/_delta_log").mkdir(parents=True)
    with pytest.raises(OncewayError, match=r"Write \./Publications for the folder, or default"):
        absolute("Publications")
    assert absolute("./Publications") == str(tmp_path / "Publications")


NO_PLACES = {
    "": "it is empty",
    " ": "it is empty",
    "/": "it is the root folder",
    "file:///": "it is the root folder",
    "delta.`/srv/lake/publications`": "write the path alone",
    "file:publications": "needs an absolute path",
    "file://localhost/srv/lake/publications": "names no machine",
    "FILE://centre/publications": "names no machine",
}


@pytest.mark.parametrize("name", NO_PLACES)
def test_a_name_that_spark_and_the_report_would_take_for_two_places_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = {"--landing": "l", "--table": "t", "--checkpoint": "c"}
    for option in whole:
        words = [word for pair in {**whole, option: name}.items() for word in pair]
        with pytest.raises(SystemExit):
            stream.parse_arguments(words)
        assert NO_PLACES[name] in " ".join(capsys.readouterr().err.split())
        told = CliRunner().invoke(app, ["run", *words])
        assert told.exit_code == 2
        assert NO_PLACES[name] in " ".join(told.output.replace("│", " ").split())
    for command in ("report", "clean"):
        told = CliRunner().invoke(app, [command, "--landing", "l", "--table", name])
        assert told.exit_code == 2, told.exception
    assert CliRunner().invoke(app, ["trust", "--table", name]).exit_code == 2
    with pytest.raises(SystemExit):
        upkeep.parse_arguments(["--table", name, "compact"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}"])
def test_a_landing_folder_is_found_in_each_form(tmp_path: Path, form: str) -> None:
    assert places.local_folder(form.format(tmp_path)) == str(tmp_path)
    assert places.local_folder("s3://bucket/landing") is None
    cli._check_landing(form.format(tmp_path))
    with pytest.raises(OncewayError, match="no such landing place"):
        cli._check_landing(form.format(tmp_path / "none"))


@pytest.mark.parametrize("form", ["{}", "file://{}"])
@pytest.mark.parametrize("one_pass", [True, False])
def test_a_file_in_place_of_the_landing_folder_ends_with_a_line(
    tmp_path: Path, form: str, one_pass: bool
) -> None:
    (tmp_path / "landing").write_text("a file")
    where = ["--landing", form.format(tmp_path / "landing"), "--table", str(tmp_path / "t")]
    where += ["--checkpoint", str(tmp_path / "c"), *(["--available-now"] if one_pass else [])]
    with pytest.raises(OncewayError) as raised:
        stream.run(stream.parse_arguments(where))
    assert str(tmp_path / "landing") in str(raised.value)
    assert "this is a file, not a folder" in str(raised.value)
    assert os.listdir(tmp_path) == ["landing"]


def test_a_gateway_s_folder_that_is_a_file_is_no_gateway(tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    (landing / "site").write_text("a file")
    where = ["--landing", str(landing), "--table", str(tmp_path / "t"), "--checkpoint", "c"]
    with pytest.raises(OncewayError, match="no gateway has landed a batch"):
        stream.run(stream.parse_arguments([*where, "--available-now"]))
    save(keys_url(str(tmp_path / "t")), Keys())
