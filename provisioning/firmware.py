"""The firmware that a job takes when nobody names one. In: a board. Out: the sensor example's HEX
file for it: built if need be, or the one that the package carries.
"""

import subprocess
import threading
from pathlib import Path

from gateway.errors import OncewayError
from provisioning.boards import Board

ROOT = Path(__file__).resolve().parents[1]
"""The source tree, when this is not an installed package."""
_one_at_a_time = threading.Lock()


def hex_for(board: Board, root: Path = ROOT) -> Path:
    """In a source tree its own HEX file, built first if it is not there; else the one that the
    package brought along.

    Raises OncewayError if there is none, or it cannot be built.
    """
    if not (root / "firmware" / "Makefile").is_file():
        packed = root / "provisioning" / "hex" / board.packed
        if not packed.is_file():
            raise OncewayError(
                f"this installation brought no firmware for {board.title} along",
                str(packed),
                "Name a HEX file with --hex",
            )
        return packed
    path = root / board.hex_file
    with _one_at_a_time:
        if not path.exists():
            _make(root / "firmware", f"../{board.hex_file}")
    return path


def _make(folder: Path, target: str) -> None:
    try:
        subprocess.run(
            ["make", "-s", "-C", str(folder), target], check=True, capture_output=True, text=True
        )
    except FileNotFoundError as error:
        raise OncewayError(
            "the firmware cannot be built: make is not installed",
            str(folder),
            "On Debian: apt-get install make",
        ) from error
    except subprocess.CalledProcessError as error:
        said = [line for line in error.stderr.splitlines() if line.strip()] or ["make said nothing"]
        raise OncewayError(
            f"the firmware cannot be built ({said[0].strip()})",
            str(folder),
            "`make firmware` says more",
        ) from error
