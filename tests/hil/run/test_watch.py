"""The message about a run that makes no progress."""

import io
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from gateway.store.copies import Copies
from gateway.store.schema import FILE, connect, prepare
from hil.bench.bench import Bench
from hil.observe.folder import Folder
from hil.observe.history import History, read
from hil.run import watch
from hil.run.display import Display


async def test_stuck_run_is_logged_before_the_run_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 0.0

    def done() -> bool:
        nonlocal clock
        clock += 10  # seconds between two looks
        return False

    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: clock))
    said, folder = io.StringIO(), Folder(tmp_path)
    display = Display("t", (), 1, 0, Console(file=said, width=100))
    history = History(folder.history)
    stuck = watch.Watch(Bench(title="t", stall_s=80), folder, history, display)
    await stuck.until(done)
    lines = [line.split("  ", 1)[1].strip() for line in said.getvalue().splitlines()]
    assert lines == [
        "nothing has moved for 30 s; the run gives up at 80 s",
        "nothing has moved for 60 s; the run gives up at 80 s",
        "nothing has moved for 80 s: the check begins",
    ]
    assert [event.event for event in read(history.path)] == ["stalled"]
    history.close()


def test_run_is_not_over_while_the_store_has_an_unseen_row(tmp_path: Path) -> None:
    """Since the rig's last look at the store, the gateway has committed and acknowledged a row."""
    folder = Folder(tmp_path)
    display = Display("t", (), 1, 0, Console(file=io.StringIO()))
    history = History(folder.history)
    seen = watch.Watch(Bench(title="t", until="batch"), folder, history, display)
    assert seen.empty()

    def look() -> None:
        seen.spools[""].committed = 1

    seen.spools[""].look = look  # type: ignore[method-assign]
    assert not seen.empty()
    seen.spools[""].landed = 1
    assert seen.empty()
    history.close()


def test_a_run_is_not_over_while_a_gateway_keeps_copies_for_another_one(tmp_path: Path) -> None:
    """The spool of the other gateway may be lost. The gateway with the copies then lands them."""
    folder = Folder(tmp_path)
    history = History(folder.history)
    bench = Bench(title="t", until="batch", gateway=[{"name": "attic"}, {"name": "barn"}])
    seen = watch.Watch(bench, folder, history, Display("t", (), 1, 0, Console(file=io.StringIO())))
    data = folder.of("barn").data
    data.mkdir()
    with closing(connect(data / FILE)) as database:
        prepare(database, "barn")
    row = (7, "uno-1", 1, 1, "uno-1", "t", b"x", 1, 1, 1)
    with closing(Copies(data)) as shelf:
        shelf.write([(1, "attic", 7, "{}")], [(1, row)], {}, [])
        assert not seen.empty()
        shelf.write([], [], {1: 8}, [])
        seen.spools["barn"].look()
        assert seen.empty()
    history.close()


def test_a_run_is_not_idle_while_a_micro_batch_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine, a micro-batch may take longer than IDLE_S."""
    folder = Folder(tmp_path)
    display = Display("t", (), 1, 0, Console(file=io.StringIO()))
    with closing(History(folder.history)) as history:
        seen = watch.Watch(Bench(title="t"), folder, history, display)
        monkeypatch.setattr(seen, "quiet_s", lambda: watch.IDLE_S + 1)
        assert seen.idle()
        for step, idle in (("offsets", False), ("commits", True)):
            (folder.checkpoint / step).mkdir(parents=True)
            (folder.checkpoint / step / "0").write_text("")
            assert seen.idle() is idle
