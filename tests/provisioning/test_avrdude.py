"""Errors and progress from the output of avrdude. A stand-in for avrdude prints them."""

from pathlib import Path

import pytest

from gateway.errors import OncewayError
from provisioning import avrdude
from provisioning.boards import board

OUT_OF_STEP = "avrdude error: protocol expects OK byte 0x10 but got 0x14"
PAGE = "7d80  4f 57 31 |OW1|"


def _says(folder: Path, monkeypatch: pytest.MonkeyPatch, *runs: tuple[str, int]) -> None:
    """Let the next runs of avrdude print these texts and end with these exit codes, one pair for
    each run.
    """
    for number, (said, code) in enumerate(runs):
        (folder / str(number)).write_text(f"cat <<'END' >&2\n{said}\nEND\nexit {code}\n")
    program = folder / "avrdude"
    program.write_text(f'#!/bin/sh\ncd {folder}\nset -- [0-9]*\nmv "$1" now\n. ./now\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def _read() -> bytes:
    return avrdude.read(board("uno"), "/dev/ttyACM0", 0x7D80, 3, lambda stage, share: None)


def test_a_boot_loader_that_answered_late_is_asked_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _says(tmp_path, monkeypatch, (OUT_OF_STEP, 1), (PAGE, 0))
    assert _read() == b"OW1"


def test_late_boot_loader_is_asked_twice_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _says(tmp_path, monkeypatch, (OUT_OF_STEP, 1), (OUT_OF_STEP, 1), (PAGE, 0))
    with pytest.raises(OncewayError, match="avrdude failed: protocol expects OK byte"):
        _read()


def test_interrupted_write_is_not_restarted_without_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _says(tmp_path, monkeypatch, (f"Writing | ##\n{OUT_OF_STEP}", 1), (PAGE, 0))
    with pytest.raises(
        OncewayError,
        match=r"answers got out of step before avrdude was done.*Run the same command again",
    ):
        _read()


def test_killed_avrdude_is_reported_as_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "avrdude"
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(OncewayError, match="avrdude was ended by signal 9"):
        _read()
