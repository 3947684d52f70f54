"""The default firmware of a job. In: a board. Out: the HEX file of the sensor example for it, from
the source tree (built if need be) or from the installed package.
"""

import subprocess
import threading
from pathlib import Path

from gateway.errors import OncewayError
from provisioning.boards import Board

ROOT = Path(__file__).resolve().parents[1]
"""Root of the source tree; in an installed package, the folder of its Python packages."""
_one_at_a_time = threading.Lock()


def hex_for(board: Board, root: Path = ROOT) -> Path:
    """Return the HEX file for a board: in a source tree the built one, else the packaged one.

    Raises OncewayError if there is none, or it cannot be built.
    """
    if not (root / "firmware" / "Makefile").is_file():
        packed = root / "provisioning" / "hex" / board.packed
        if not packed.is_file():
            raise OncewayError(
                f"this installation includes no firmware for {board.title}",
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
        errors = [line for line in error.stderr.splitlines() if line.strip()] or [
            "make printed nothing"
        ]
        raise OncewayError(
            f"the firmware cannot be built ({errors[0].strip()})",
            str(folder),
            "For the full output, run `make firmware`",
        ) from error
