"""A firmware image. In: an Intel HEX file, a board, an identity. Out: the HEX file that avrdude
writes, identity page included.
"""

import hashlib
from io import StringIO
from pathlib import Path

from intelhex import IntelHex, IntelHexError

from gateway.errors import OncewayError
from provisioning.boards import Board
from provisioning.identity import Identity
from provisioning.radio_plan import RadioPlan, page

_SIGNATURE = b"OWFW\x01"


def write_identity(
    path: Path, board: Board, identity: Identity, radio: RadioPlan | None = None
) -> None:
    """Write a HEX file with only the identity page. It leaves a board's firmware unchanged."""
    alone = IntelHex()
    alone.puts(board.identity, page(identity, radio))
    path.touch(mode=0o600)
    alone.write_hex_file(str(path))


def without_identity(path: Path, board: Board) -> str:
    """Return a HEX file that was read from a board, as text, without its identity page (which holds
    the key) and without the boot loader.
    """
    program = IntelHex(str(path))[: board.identity]
    text = StringIO()
    program.write_hex_file(text)
    return text.getvalue()


class Image:
    """A firmware for one kind of board.

    Raises OncewayError if the file cannot be read, is not an Intel HEX file, or is empty; if it
    reaches into the identity page or the boot loader; or if it expects the identity page elsewhere.
    signed: whether the firmware has the Onceway library.
    """

    def __init__(self, path: Path, board: Board) -> None:
        self._hex = IntelHex()
        try:
            self._hex.loadhex(str(path))
        except OSError as error:
            hint = (
                "Run `make firmware`. If it builds none for this board, name a HEX file with --hex"
                f" for {board.chip_title} at {board.clock // 1_000_000} MHz, with the identity page"
                f" at 0x{board.identity:X}"
            )
            raise OncewayError(
                f"there is no firmware for {board.title} ({error.strerror})", str(path), hint
            ) from error
        except (IntelHexError, UnicodeDecodeError) as error:
            raise OncewayError(f"not an Intel HEX file ({error})", str(path)) from error
        last = self._hex.maxaddr()
        if last is None:
            raise OncewayError("the HEX file is empty", str(path))
        if last >= board.identity:
            raise OncewayError(
                f"the firmware ends at 0x{last:X}, but {board.title} has room below"
                f" 0x{board.identity:X} only",
                str(path),
                f"The chip is {board.chip_title}; is this HEX file made for another board?",
            )
        self._identity_address = board.identity
        self.signed = self._check_signature(path, board)
        self.sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        self.size = last + 1

    def _check_signature(self, path: Path, board: Board) -> bool:
        """Whether the file contains the library's signature (firmware/JOURNAL.md). Raises
        OncewayError if the firmware expects the identity page at another address than that of this
        kind of board.
        """
        content = self._hex.tobinstr()
        at = content.find(_SIGNATURE)
        if at < 0:
            return False
        looks_at = int.from_bytes(content[at + len(_SIGNATURE) :][:3])
        if looks_at != board.identity:
            raise OncewayError(
                f"this firmware looks for its name at 0x{looks_at:X}, but {board.title} has the"
                f" identity page at 0x{board.identity:X}",
                str(path),
                "Is this HEX file made for another board?",
            )
        return True

    def write(self, path: Path, identity: Identity, radio: RadioPlan | None = None) -> None:
        """Write the image with this identity as a HEX file that only its owner can read, because it
        holds the key. radio: the channel of a radio board.
        """
        image = IntelHex(self._hex)
        image.puts(self._identity_address, page(identity, radio))
        path.touch(mode=0o600)
        image.write_hex_file(str(path))
