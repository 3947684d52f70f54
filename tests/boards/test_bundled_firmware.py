"""The bundled firmware of each kind of board, for the page and the warnings about old firmware."""

import hashlib
import shutil
from pathlib import Path

import pytest

from gateway.boards.bundled_firmware import kinds
from provisioning.boards import catalogue

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("packed", [False, True], ids=["source tree", "package"])
def test_each_board_has_the_hash_of_the_file_that_is_flashed(tmp_path: Path, packed: bool) -> None:
    """A radio board shares its build folder with the board without a radio, and has another file.
    Without its own hash, each radio board would seem to have other firmware than the bundled one.
    """
    folder = tmp_path / "provisioning"
    (folder / "hex").mkdir(parents=True)
    shutil.copy(ROOT / "provisioning" / "boards.toml", folder)
    files = {
        name: folder / "hex" / board.packed if packed else tmp_path / board.hex_file
        for name, board in catalogue().items()
    }
    for file in files.values():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f":00000001FF {file.parent.name} {file.name}")

    found = kinds(tmp_path)

    assert len(set(files.values())) > 2
    for name, file in files.items():
        assert found[name].sha256 == hashlib.sha256(file.read_bytes()).hexdigest(), name


def test_a_board_without_a_file_has_no_hash(tmp_path: Path) -> None:
    (tmp_path / "provisioning").mkdir()
    shutil.copy(ROOT / "provisioning" / "boards.toml", tmp_path / "provisioning")
    assert {kind.sha256 for kind in kinds(tmp_path).values()} == {None}
