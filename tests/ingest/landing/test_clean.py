"""`onceway ingest clean` if a part of the landing place is unreadable or in quarantine."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import Result
from deltalake import CommitProperties, DeltaTable, write_deltalake
from typer.testing import CliRunner

from gateway.errors import OncewayError
from gateway.ingest import clean as cleaning
from gateway.ingest.cli import app
from gateway.ingest.landing.place import Landing
from gateway.uplink.manifest import cleaned_json
from tests.ingest.batches import EPOCH, land, row
from tests.ingest.landing.closed_places import open_folder, without_rights

FEEDS = {f"{gateway}/{EPOCH}": 3 for gateway in ("a", "bad", "z")}


def fill(folder: Path) -> tuple[Path, Path]:
    """Make a landing place with three batches of each of three gateways, and a table that has all
    of them. Return both paths.
    """
    landing, table = folder / "landing", folder / "lake"
    for feed in FEEDS:
        for number in (1, 2, 3):
            land(landing, feed.partition("/")[0], number, [row("dev", number)])
    note = {"onceway": {"micro_batch": 0, "feeds": FEEDS, "all": True}}
    rows = {
        "gateway": [feed.partition("/")[0] for feed in FEEDS],
        "epoch": [EPOCH] * 3,
        "batch": [3] * 3,
    }
    properties = CommitProperties(custom_metadata={"userMetadata": json.dumps(note)})
    write_deltalake(table, pa.table(rows), commit_properties=properties)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777)
        os.utime(path, (1e9, 1e9))
    return landing, table


def clean(landing: Path, table: Path, *more: str) -> Result:
    where = ["clean", "--landing", str(landing), "--table", str(table)]
    return CliRunner().invoke(app, [*where, *more])


def left(landing: Path) -> dict[str, list[int]]:
    return {
        feed: sorted(int(path.stem) for path in (landing / feed).glob("*.json")) for feed in FEEDS
    }


@pytest.mark.parametrize(
    ("what", "mode"),
    [("bad", 0), (f"bad/{EPOCH}", 0), ("bad/cleaned.json", 0), ("bad", 0o555)],
)
@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_feed_that_cannot_be_read_keeps_no_other_from_being_cleaned(
    what: str, mode: int, words: list[str]
) -> None:
    with open_folder() as folder:
        landing, table = fill(folder)
        if what.endswith(".json"):
            (landing / what).write_bytes(cleaned_json("bad", {"ffffffff": 7}))
        (landing / what).chmod(mode)
        with (
            open_folder() as another
        ):  # import the modules of `clean` first: without rights, the source tree may be closed
            clean(*fill(another))
        with without_rights():
            done = clean(landing, table, *words)
        assert isinstance(done.exception, OncewayError)
        assert f"1 feed was not cleaned: bad/{EPOCH}: " in str(done.exception)
        found = (
            [one["feed"] for one in json.loads(done.output)]
            if words
            else [line.split(":")[0] for line in done.output.splitlines()]
        )
        assert found == [f"a/{EPOCH}", f"z/{EPOCH}"]
        (landing / what).chmod(0o777)
        assert left(landing) == {feed: [1, 2, 3] if "bad" in feed else [] for feed in FEEDS}
        assert clean(landing, table).exit_code == 0
        assert left(landing) == {feed: [] for feed in FEEDS}
        expected = {"ffffffff": 7} if what.endswith(".json") else {}
        assert Landing(str(landing)).cleaned_epochs("bad") == expected | {EPOCH: 3}


def test_deletion_is_recorded_before_it_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash between the record and the deletion, the record says that the missing batches
    were deleted. Without the record, the feed would be held.
    """
    with open_folder() as folder:
        landing, table = fill(folder)

        def killed(self: Landing, *_: object) -> int:
            raise KeyboardInterrupt

        monkeypatch.setattr(Landing, "delete", killed)
        with pytest.raises(KeyboardInterrupt):
            next(cleaning.clean(Landing(str(landing)), str(table), 0))
        assert left(landing) == {feed: [1, 2, 3] for feed in FEEDS}
        assert Landing(str(landing)).cleaned(f"a/{EPOCH}") == 3


def test_a_batch_in_quarantine_stays_until_it_is_released() -> None:
    with open_folder() as folder:
        landing, table = fill(folder)
        row_of = {
            "gateway": ["bad"],
            "epoch": [EPOCH],
            "batch": pa.array([2], pa.int64()),
            "released": pa.array([None], pa.timestamp("us", "UTC")),
        }
        write_deltalake(f"{table}_quarantine", pa.table(row_of))
        assert clean(landing, table).exit_code == 0
        assert left(landing) == {feed: [2] if "bad" in feed else [] for feed in FEEDS}
        assert (landing / "bad" / EPOCH / f"{2:012d}.parquet").exists()
        assert clean(landing, table).output == ""
        assert Landing(str(landing)).cleaned(f"bad/{EPOCH}") == 3
        row_of["released"] = pa.array([datetime.now(UTC)], pa.timestamp("us", "UTC"))
        write_deltalake(f"{table}_quarantine", pa.table(row_of), mode="overwrite")
        assert clean(landing, table).exit_code == 0
        assert left(landing) == {feed: [] for feed in FEEDS}


@pytest.mark.parametrize(
    ("damaged", "says"),
    [
        ("*.parquet", "the table is damaged (its file "),
        (f"_delta_log/{0:020d}.json", "the table's log is damaged ("),
    ],
)
def test_no_batch_is_deleted_while_the_table_is_damaged(
    tmp_path: Path, damaged: str, says: str
) -> None:
    """The landing place may have the only copy of the damaged rows."""
    landing, table = fill(tmp_path)
    file = next(table.glob(damaged))
    file.write_bytes(file.read_bytes()[:50])
    before = left(landing)
    found = clean(landing, table, "--older-than", "0s")
    assert found.exit_code == 1
    assert isinstance(found.exception, OncewayError)
    assert says in str(found.exception)
    assert left(landing) == before


@pytest.mark.parametrize(
    ("harm", "refuses"), [("zeros", True), ("gone", True), ("new", False), ("later", False)]
)
def test_no_batch_is_deleted_while_delta_cannot_open_the_table(
    tmp_path: Path, harm: str, refuses: bool
) -> None:
    """The newest commit may name the progress although the table's checkpoint is damaged. A table
    with a feature that deltalake does not support is not damaged: Spark reads it.
    """
    landing, table = fill(tmp_path)
    log = table / "_delta_log"
    first = log / f"{0:020d}.json"
    if harm in ("new", "later"):
        actions = [json.loads(line) for line in first.read_text().splitlines()]
        protocol: dict[str, object] = {"minReaderVersion": 99, "minWriterVersion": 99}
        if harm == "new":
            features = {f"{who}Features": ["unknown"] for who in ("reader", "writer")}
            protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
        for action in actions:
            if "protocol" in action:
                action["protocol"] = protocol
        first.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    else:
        DeltaTable(table).create_checkpoint()
        (log / f"{1:020d}.json").write_text(
            next(line for line in first.read_text().splitlines() if "commitInfo" in line)
        )
        first.unlink()
        (checkpoint,) = log.glob("*.checkpoint.parquet")
        checkpoint.write_bytes(bytes(checkpoint.stat().st_size))
        if harm == "gone":
            checkpoint.unlink()
    before = left(landing)
    found = clean(landing, table, "--older-than", "0s")
    if refuses:
        assert isinstance(found.exception, OncewayError)
        assert "so no batch is deleted" in str(found.exception)
    assert left(landing) == (before if refuses else {feed: [] for feed in FEEDS})


def test_markers_that_cannot_be_deleted_are_only_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    landing, table = fill(tmp_path)

    def refused(_: Landing) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Landing, "tidy_markers", refused)
    assert clean(landing, table).exit_code == 0
    assert "old markers were not deleted: " in caplog.text
    assert left(landing) == {feed: [] for feed in FEEDS}
