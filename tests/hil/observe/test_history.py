"""The history file: written events are read, a torn last line is ignored, anything else is refused
with its line.
"""

import threading
from pathlib import Path

import pytest

from gateway.errors import OncewayError
from hil.observe.history import Event, History, read


def test_written_is_read(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    history.add("wire", "noise", t=5, line="uno-1", offset=17)
    history.add("rig", "end")
    first, second = read(history.path)
    assert first == Event(5, "wire", "noise", {"line": "uno-1", "offset": 17})
    assert (second.hop, second.event, second.data) == ("rig", "end", {})
    assert second.t > 5
    history.close()


def test_threads_write_whole_lines(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")

    def work(name: str) -> None:
        for number in range(200):
            history.add(name, "step", number=number)

    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = list(read(history.path))
    for name in ("t0", "t1", "t2", "t3"):
        assert [event.data["number"] for event in events if event.hop == name] == list(range(200))
    history.close()


def test_a_torn_last_line_is_the_end(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"t":1,"hop":"rig","event":"run"}\n{"t":2,"hop":"ri')
    assert list(read(path)) == [Event(1, "rig", "run")]


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[]",
        '{"t":"x","hop":"rig","event":"run"}',
        '{"t":null,"hop":"rig","event":"run"}',
    ],
)
def test_a_line_that_is_no_event(tmp_path: Path, line: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(f'{{"t":1,"hop":"rig","event":"run"}}\n{line}\n')
    with pytest.raises(OncewayError, match="line 2 is not an event"):
        list(read(path))


def test_a_key_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"t":1,"hop":"rig","event":"run"}\n{"t":1,"event":"end"}\n')
    with pytest.raises(OncewayError, match="line 2 has no key 'hop'"):
        list(read(path))


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(OncewayError, match="cannot read the history"):
        list(read(tmp_path / "none"))


def test_a_history_is_never_written_over(tmp_path: Path) -> None:
    History(tmp_path / "history.jsonl").close()
    with pytest.raises(FileExistsError):
        History(tmp_path / "history.jsonl")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_bytes(b"\xff\xfe\x00\n")
    with pytest.raises(OncewayError, match="this is not text"):
        list(read(tmp_path / "history.jsonl"))
