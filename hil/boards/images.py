"""Memory images of a simulated board. In: an Intel HEX file. Out: a flash image of 32 KiB."""

import fcntl
from pathlib import Path

from intelhex import IntelHex, IntelHexError

from gateway.errors import OncewayError

FLASH_SIZE = 32_768


def read_firmware(firmware: Path) -> IntelHex:
    """Return the firmware. Raises OncewayError for an unreadable file, another format than Intel
    HEX, or a firmware that does not fit.
    """
    content = IntelHex()
    try:
        content.loadhex(str(firmware))
    except OSError as error:
        raise OncewayError(
            f"cannot read the firmware ({error.strerror})",
            str(firmware),
            "Build it with `make firmware`",
        ) from error
    except (IntelHexError, UnicodeDecodeError) as error:
        raise OncewayError(f"not an Intel HEX file ({error})", str(firmware)) from error
    last = content.maxaddr()
    if last is None or last >= FLASH_SIZE:
        raise OncewayError("the HEX file is empty or too large for the chip", str(firmware))
    return content


def write_flash(image: Path, firmware: Path) -> None:
    """Write a flash image with only this firmware, as a programmer does after a chip erase. Raises
    the errors of `read_firmware`, and OncewayError while a board runs from the image.
    """
    content = read_firmware(firmware)
    content.padding = 0xFF
    with image.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OncewayError(
                "a running board has this flash in use", str(image), "Stop it first"
            ) from error
        file.truncate(0)
        file.write(bytes(content.tobinarray(start=0, size=FLASH_SIZE)))
