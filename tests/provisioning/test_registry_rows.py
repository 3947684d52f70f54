"""Rows of the registry: under which conditions each is added, kept or removed."""

import errno
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import NotAllowed, OncewayError
from provisioning import registry as registry_module
from provisioning.identity import Identity
from provisioning.radio_plan import RadioPlan
from provisioning.registry import Registry

NEXT = "2999-01-01T00:00:00+00:00"
"""A time later than all others."""


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry.db")


def ready(registry: Registry, name: str, radio: RadioPlan | None = None) -> None:
    registry.finish(registry.begin(Identity.create(name), "uno", "p", radio=radio), "ab" * 32)


def statuses(registry: Registry) -> dict[str, str]:
    return {device.name: device.status for device in registry.devices()}


def test_registry_that_may_not_be_made_reads_as_empty(tmp_path: Path) -> None:
    missing = Registry(tmp_path / "none.db", make=False)
    assert missing.devices() == missing.works() == []
    assert not (tmp_path / "none.db").exists()
    ready(Registry(tmp_path / "there.db"), "roof-1")
    assert statuses(Registry(tmp_path / "there.db", make=False)) == {"roof-1": "ready"}


def test_closed_registry_cannot_be_used(registry: Registry) -> None:
    registry.close()
    with pytest.raises(OncewayError, match="the device registry cannot be used"):
        registry.devices()


@pytest.mark.parametrize(
    ("number", "kind", "todo"),
    [
        (errno.EACCES, NotAllowed, "Run the command with sudo"),
        (errno.EISDIR, OncewayError, "Name another registry with --registry"),
    ],
)
def test_file_that_cannot_be_opened_has_its_remedy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    kind: type[OncewayError],
    todo: str,
) -> None:
    def refused(path: Path) -> None:
        raise OSError(number, "refused")

    monkeypatch.setattr(registry_module, "_prepare", refused)
    with pytest.raises(OncewayError) as found:
        Registry(tmp_path / "registry.db")
    assert (type(found.value), found.value.hint) == (kind, todo)


def test_unreadable_database_is_another_error_than_a_foreign_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: Any) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(registry_module, "migrate", busy)
    with pytest.raises(OncewayError, match="cannot open the device registry: "):
        Registry(tmp_path / "registry.db")


def test_radio_number_belongs_to_one_board_of_a_network(registry: Registry) -> None:
    ready(registry, "roof-1", RadioPlan(4, 1))
    ready(registry, "roof-2")
    for free in (RadioPlan(4, 2), RadioPlan(5, 1)):
        registry.abandon(registry.begin(Identity.create("roof-3"), "uno", "p", radio=free), None)
    with pytest.raises(OncewayError, match="'roof-1' has the number 1 in network 4"):
        registry.begin(Identity.create("roof-3"), "uno", "p", radio=RadioPlan(4, 1))
    assert registry.works() == [], "nothing of it stays"
    registry.begin(Identity.create("roof-1"), "uno", "p", radio=RadioPlan(4, 1))
    registry.begin(Identity.create("roof-4"), "uno", "p", was="roof-1", radio=RadioPlan(4, 1))
    shown = registry.get("roof-1").public()
    assert shown["radio"] == str(RadioPlan(4, 1))
    assert "radio" not in registry.get("roof-2").public()
    assert registry.get("roof-2").channel is None
    assert [work.channel for work in registry.works()] == [RadioPlan(4, 1)] * 2
    registry.begin(Identity.create("roof-5"), "uno", "p")
    assert [work.channel for work in registry.works()][-1] is None


def test_job_that_was_replaced_is_not_abandoned(registry: Registry) -> None:
    first = registry.begin(Identity.create("roof-1"), "uno", "p")
    second = registry.begin(Identity.create("roof-1"), "uno", "q")
    registry.abandon(first, None)
    assert registry.works() == [second]
    assert registry.work("roof-1") == second
    assert registry.work("roof-2") is None


def test_finished_board_has_the_values_of_its_job(registry: Registry) -> None:
    identity = Identity.create("roof-1")
    first = registry.finish(registry.begin(identity, "uno", "p"), "ab" * 32)
    work = registry.begin(identity, "nano", "q", radio=RadioPlan(4, 1))
    kept = registry.finish(work, None, greets=False)
    assert kept == registry.get("roof-1")
    assert (kept.board, kept.key, kept.status, kept.port, kept.firmware, kept.created) == (
        *("nano", identity.key, "written", "q", "ab" * 32, first.created),
    )
    assert kept.flashed == kept.changed
    assert kept.channel == RadioPlan(4, 1)


def test_rename_ends_all_jobs_of_both_names_and_no_other(registry: Registry) -> None:
    for name in ("roof-1", "roof-2", "roof-3"):
        ready(registry, name)
    registry.begin(Identity.create("roof-1"), "uno", "p")
    other = registry.begin(Identity.create("roof-3"), "uno", "p")
    work = registry.begin(Identity.create("roof-9"), "uno", "p", was="roof-1")
    registry.finish(work, None)
    assert registry.works() == [other]
    assert statuses(registry) == {"roof-2": "ready", "roof-3": "flashing", "roof-9": "ready"}


def test_renamed_board_that_is_revoked_stays_revoked(registry: Registry) -> None:
    ready(registry, "roof-1")
    registry.begin(Identity.create("roof-2"), "uno", "p", was="roof-1")
    assert statuses(registry) == {"roof-1": "flashing", "roof-2": "flashing"}
    registry.revoke("roof-1")
    assert statuses(registry) == {"roof-1": "revoked"}, "with its job"
    registry.begin(Identity.create("roof-2"), "uno", "p", was="roof-1")
    assert statuses(registry)["roof-1"] == "revoked"


def test_revoked_board_is_what_it_was_when_it_is_admitted_again(registry: Registry) -> None:
    ready(registry, "roof-1")
    registry.begin(Identity.create("roof-2"), "uno", "p")
    registry.admit("roof-3")
    for name in ("roof-1", "roof-2", "roof-3"):
        registry.revoke(name)
        assert registry.admit(name).before is None
    assert statuses(registry) == {"roof-1": "ready", "roof-2": "written", "roof-3": "admitted"}
    before = registry.get("roof-1")
    assert registry.admit("roof-1") == before, "nothing changes"
    with registry._database.conn as connection:
        connection.execute("UPDATE device SET status = 'revoked', before = NULL")
    assert registry.admit("roof-1").status == "written", "it has a key"
    assert registry.admit("roof-3").status == "admitted"


@pytest.mark.parametrize(
    ("column", "here", "kept"),
    [
        ("status", "revoked", True),
        ("key", b"other", True),
        ("radio", RadioPlan(4, 9).to_json(), True),
        ("port", "elsewhere", False),
    ],
)
def test_newer_row_is_kept_if_it_differs_in_what_counts(
    registry: Registry, column: str, here: Any, kept: bool
) -> None:
    for name in ("roof-1", "roof-2"):
        ready(registry, name)
    backup = registry.dump()
    with registry._database.conn as connection:
        changed = f"UPDATE device SET {column} = ?, changed = ? WHERE name = 'roof-1'"
        connection.execute(changed, (here, NEXT))
    present = registry.dump()["device"][0][column]
    assert registry.load(backup) == ["roof-1"] * kept
    assert (registry.dump()["device"][0][column] == present) is kept
    with registry._database.conn as connection:
        connection.execute(f"UPDATE device SET {column} = ?, changed = '2000'", (here,))
    assert registry.load(backup) == [], "the backup is newer"
    assert registry.dump() == backup


def test_job_of_a_backup_returns_unless_its_board_changed_since(registry: Registry) -> None:
    ready(registry, "roof-1")
    ready(registry, "roof-2")
    registry.begin(Identity.create("roof-1"), "nano", "p")
    registry.begin(Identity.create("roof-3"), "nano", "p", was="roof-2")
    backup = registry.dump()
    other = Registry(registry.path.with_name("other.db"))
    assert other.load(backup) == []
    assert other.dump() == backup
    with registry._database.conn as connection:
        connection.execute("DELETE FROM work")
        connection.execute("UPDATE device SET changed = ? WHERE name = 'roof-1'", (NEXT,))
        connection.execute("UPDATE device SET status = 'revoked', changed = ?", (NEXT,))
    assert registry.load(backup) == ["roof-1", "roof-2"]
    assert registry.works() == []


def test_backup_of_the_first_version_has_no_time_of_a_change(registry: Registry) -> None:
    ready(registry, "roof-1")
    ready(registry, "roof-2")
    backup = registry.dump()
    for entry in backup["device"]:
        del entry["changed"]
    backup["device"][1]["flashed"] = None
    other = Registry(registry.path.with_name("other.db"))
    other.load(backup)
    first, second = other.devices()
    assert first.changed == first.flashed
    assert second.changed == second.created
