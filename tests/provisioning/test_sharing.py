"""The registries of several gateways of a site, with the changes that commands make and the entries
that gateways exchange.
"""

import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.site.shared_state.board_entry import Entry, stamp
from provisioning.identity import Identity
from provisioning.radio_plan import RadioPlan
from provisioning.registry import Device, Registry


def written(
    registry: Registry,
    name: str,
    key: bytes,
    was: str | None = None,
    radio: RadioPlan | None = None,
) -> None:
    """Make the change that `device add`, `rekey` or `rename` makes. was: the previous name of a
    renamed board.
    """
    registry.finish(registry.begin(Identity(name, key), "uno", "/dev/here", was, radio), "f" * 64)


def entries(registry: Registry) -> list[Entry]:
    return registry.share([])[0]


def meet(*registries: Registry) -> None:
    for one in registries:
        for other in registries:
            one.share(entries(other))


def lost(*registries: Registry) -> list[list[str]]:
    """Let each registry receive the entries of all others. Return, for each registry, the texts of
    the conflicts that it finds.
    """
    names = "abc"[: len(registries)]
    known = {name: entries_of(*pair) for name, *pair in zip(names, registries, names, strict=True)}
    told = []
    for name, registry in zip(names, registries, strict=True):
        sent = [entry for other in names if other != name for entry in known[other]]
        told.append([found.sentence(names) for found in registry.share(sent, name).conflicts])
    return told


def entries_of(registry: Registry, name: str) -> list[Entry]:
    return registry.share([], name).entries


def shared(registry: Registry) -> list[tuple[object, ...]]:
    return [(d.name, d.board, d.key, d.status, d.firmware, d.radio) for d in registry.devices()]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Yield a folder in memory. On a disk, thousands of syncs would take long."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture
def two(tmp_path: Path) -> tuple[Registry, Registry]:
    return Registry(tmp_path / "a.db"), Registry(tmp_path / "b.db")


KEY, OTHER = b"k" * 16, b"o" * 16


def test_change_at_one_gateway_reaches_the_other_except_the_port(two) -> None:
    a, b = two
    written(a, "roof-1", KEY)
    a.admit("guest")
    meet(a, b)
    assert shared(a) == shared(b)
    assert [(d.name, d.status, d.port) for d in b.devices()] == [
        ("guest", "admitted", None),
        ("roof-1", "ready", None),
    ]
    assert b.get("roof-1").key == KEY
    written(b, "roof-1", OTHER)
    b.revoke("guest")
    meet(a, b)
    assert a.get("roof-1").key == OTHER
    assert a.get("guest").status == "revoked"
    assert a.get("roof-1").port == "/dev/here"
    written(a, "roof-2", OTHER, was="roof-1")
    meet(a, b)
    assert [d.name for d in b.devices()] == ["guest", "roof-2"]
    assert shared(a) == shared(b)


def test_exchange_without_news_writes_nothing(two) -> None:
    a, b = two
    written(a, "roof-1", KEY)
    meet(a, b)
    before = a.path.read_bytes(), b.path.read_bytes()
    meet(a, b)
    assert (a.path.read_bytes(), b.path.read_bytes()) == before


def test_revocation_wins_over_a_concurrent_change(two) -> None:
    a, b = two
    written(a, "roof-1", KEY)
    meet(a, b)
    a.revoke("roof-1")
    for key in (OTHER, KEY, OTHER):
        written(b, "roof-1", key)
    meet(a, b)
    assert {r.get("roof-1").status for r in two} == {"revoked"}
    assert {r.get("roof-1").key for r in two} == {OTHER}
    # any gateway that knows of the job may end it, and then it ends at all gateways
    b.admit("roof-1")
    meet(a, b)
    assert {r.get("roof-1").status for r in two} == {"ready"}


def test_a_board_that_is_being_written_while_it_is_revoked_elsewhere_stays_out(two) -> None:
    a, b = two
    written(a, "roof-1", KEY)
    meet(a, b)
    work = b.begin(Identity("roof-1", OTHER), "uno", "/dev/here")
    a.revoke("roof-1")
    meet(a, b)
    with pytest.raises(Exception, match="changed by another command"):
        b.finish(work, None)
    meet(a, b)
    assert {r.get("roof-1").status for r in two} == {"revoked"}


def test_a_board_that_is_renamed_while_it_is_revoked_elsewhere_is_revoked(two) -> None:
    for first, second in (two, two[::-1]):
        name = f"{first.path.stem}-1"
        written(first, name, KEY)
        meet(first, second)
        first.revoke(name)
        written(second, f"{name}-new", KEY, was=name)
        meet(first, second)
        for registry in two:
            assert registry.get(f"{name}-new").status == "revoked"
            assert registry.get(name).status == "revoked"
        first.admit(f"{name}-new")
        meet(first, second)
        assert {r.get(f"{name}-new").status for r in two} == {"ready"}
        first.revoke(f"{name}-new")
        meet(first, second)


def test_gateways_with_registries_of_their_own_agree_after_joining_a_site(two) -> None:
    a, b = two
    a.admit("left")
    b.admit("right")
    a.admit("both")
    b.admit("both")
    b.revoke("both")
    meet(a, b)
    assert shared(a) == shared(b)
    assert [(d.name, d.status) for d in a.devices()] == [
        ("both", "revoked"),
        ("left", "admitted"),
        ("right", "admitted"),
    ]


def test_registry_restored_from_a_backup_undoes_no_newer_change(two, tmp_path: Path) -> None:
    a, b = two
    written(a, "roof-1", KEY)
    a.admit("guest")
    meet(a, b)
    a.close()
    shutil.copy(tmp_path / "a.db", tmp_path / "backup.db")
    a = Registry(tmp_path / "a.db")
    written(a, "roof-1", OTHER)
    a.revoke("guest")
    meet(a, b)
    restored = Registry(tmp_path / "backup.db")
    meet(restored, b)
    assert shared(restored) == shared(b)
    assert b.get("roof-1").key == OTHER
    assert b.get("guest").status == "revoked"


def test_invalid_radio_plan_from_a_member_is_left_out(two) -> None:
    a, b = two
    written(a, "roof-7", KEY, radio=RadioPlan(1, 2))
    meet(a, b)
    assert b.get("roof-7").channel == RadioPlan(1, 2)
    (entry,) = entries(a)
    board = entry.board.model_copy(update={"radio": '{"network": 1, "device": 999}'})
    bad = entry.but(board=board, version=9)
    assert b.share([bad])[:2] == ([entry], ["roof-7"])
    assert b.get("roof-7").channel == RadioPlan(1, 2)


def test_three_registries_agree_after_random_changes_and_exchanges(tmp_path: Path) -> None:
    for seed in range(8):
        rng = random.Random(seed)
        three = [Registry(tmp_path / f"{seed}-{n}.db") for n in range(3)]
        for step in range(30):
            one = rng.choice(three)
            name = rng.choice(["x", "y"])
            do = rng.randrange(5)
            if do == 0:
                one.admit(name)
            elif do == 1 and one.find(name):
                one.revoke(name)
            elif do == 2:
                written(one, name, bytes([step]) * 16)
            elif do == 3 and one.find(name) and one.get(name).key:
                key = one.get(name).key
                assert key
                written(one, f"{name}-{step}", key, was=name)
            else:
                rng.choice(three).share(rng.sample(known := entries(one), len(known)))
        meet(*three)
        meet(*three)
        assert shared(three[0]) == shared(three[1]) == shared(three[2])
        for entry in entries(three[0]):
            found: Device | None = three[0].find(entry.name)
            assert (found is not None and found.status == "revoked") == entry.is_revoked


def test_the_lost_one_of_two_concurrent_changes_is_reported(two) -> None:
    a, b = two
    written(a, "roof-1", KEY)
    assert lost(a, b) == [[], []]
    written(a, "roof-1", OTHER)
    written(b, "roof-1", b"b" * 16)
    entries_of(b, "b")
    written(b, "roof-1", b"c" * 16)
    for told in lost(a, b):
        assert len(told) == 1
        assert "device roof-1: the change at a (" in told[0]
        assert "because the change at b (" in told[0]
    assert a.get("roof-1").key == b"c" * 16
    assert lost(a, b) == [[], []], "each of them has one entry now"


def test_changes_that_follow_one_another_tell_nothing(two, tmp_path: Path) -> None:
    a, b = two
    c = Registry(tmp_path / "c.db")
    written(a, "roof-1", KEY)
    assert lost(a, b, c) == [[], [], []]
    for step in range(12):  # b sees each change at once, and c only the last one
        written(a, "roof-1", bytes([step]) * 16)
        assert lost(a, b) == [[], []]
    a.revoke("roof-1")
    assert lost(a, b, c) == [[], [], []]
    b.admit("roof-1")
    written(c, "roof-2", KEY)
    assert lost(a, b, c) == [[], [], []]


def test_same_change_on_both_sides_tells_nothing(two) -> None:
    a, b = two
    a.admit("guest")
    b.admit("guest")
    assert lost(a, b) == [[], []]


@pytest.mark.parametrize("edits", [1, 3])
def test_change_of_a_board_that_was_revoked_meanwhile_is_reported(two, edits: int) -> None:
    a, b = two
    written(a, "roof-1", KEY)
    lost(a, b)
    a.revoke("roof-1")
    for step in range(edits):
        written(b, "roof-1", bytes([step]) * 16)
        entries_of(b, "b")
    for told in lost(a, b):
        assert len(told) == 1
        assert "the change at b (" in told[0]
        assert "because a revocation elsewhere" in told[0]


def test_lost_change_of_two_boards_with_one_name_is_reported(two) -> None:
    a, b = two
    written(a, "roof-1", KEY)
    written(b, "roof-1", OTHER)
    told = lost(a, b)
    assert told[0] == told[1]
    assert "device roof-1: the change at " in told[0][0]


def test_entries_of_an_older_gateway_tell_only_what_is_certain(two) -> None:
    """The entries of Onceway 0.2.0 do not say which earlier changes they include."""
    a, _ = two
    written(a, "roof-1", KEY)
    (known,) = entries_of(a, "a")
    assert known.board is not None
    old = known.board.model_copy(update={"key": "0" * 32})
    later = known.but(version=5, at="2027-01-01T00:00:00+00:00", board=old)
    assert a.share([later], "a").conflicts == [], "it may know of the change here"
    same = later.but(at="2026-01-01T00:00:00+00:00", board=known.board)
    (found,) = a.share([same], "a").conflicts
    lost = "the change at another member (2026-01-01T00:00:00+00:00) is lost"
    assert lost in found.sentence("ab")


def test_two_boards_with_one_number_by_radio_are_reported(two) -> None:
    a, b = two
    written(a, "roof-1", KEY, radio=RadioPlan(1, 2))
    written(b, "roof-2", OTHER, radio=RadioPlan(1, 2))
    written(b, "roof-3", b"3" * 16, radio=RadioPlan(1, 3))
    for told in lost(a, b):
        (text,) = told
        assert text.startswith("devices roof-1 (at a (")
        assert ") and roof-2 (at b (" in text
    assert {device.name: device.channel for device in a.devices()} == {
        "roof-1": RadioPlan(1, 2),
        "roof-2": RadioPlan(1, 2),
        "roof-3": RadioPlan(1, 3),
    }
    a.revoke("roof-2")
    lost(a, b)
    assert lost(a, b) == [[], []]


def test_long_name_and_time_fit_into_a_stamp(two) -> None:
    a, _ = two
    for step in range(9):
        written(a, "roof-1", bytes([step]) * 16)
        (entry,) = entries_of(a, "x" * 64)
    assert len(entry.at) <= 64
    assert len(entry.before) == 5
    assert len(stamp("9" * 64, "x" * 64, entry)) <= 64
