"""avrdude as a process. In: a board, a port, a HEX file. Out: progress while it runs; an OncewayError in words if it fails.

avrdude draws its progress bars on standard error as a title (`Reading`, `Writing`), a bar of fifty `#`, and a time.
"""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO, cast

from gateway.errors import OncewayError
from provisioning.boards import Board

Progress = Callable[[str, float], None]
"""Called with the stage ("connect", "write", "verify") and the share of it that is done, 0 to 1."""

_BAR = 50
_TIMEOUT_S = 180


def write(board: Board, port: str, image: Path, progress: Progress) -> None:
    """Write a HEX file to the board's flash and read it back.

    Raises OncewayError: avrdude missing, port lost, no answer, wrong chip, verification failed.
    """
    # -D: boot loaders erase page by page; they know no chip erase.
    _run(board, port, ["-D", "-U", f"flash:w:{image}:i"], progress)


def read(board: Board, port: str, image: Path, progress: Progress) -> None:
    """Read the board's flash into a HEX file."""
    _run(board, port, ["-U", f"flash:r:{image}:i"], progress)


def _run(board: Board, port: str, operation: list[str], progress: Progress) -> None:
    program = shutil.which("avrdude")
    if program is None:
        raise OncewayError("avrdude is not installed", hint="On Debian: apt-get install avrdude")
    command = [program, "-p", board.chip, "-c", board.programmer, "-b", str(board.baud), "-P", port, *operation]
    process = subprocess.Popen(command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, bufsize=0)
    try:
        output = _follow(cast(IO[bytes], process.stdout), progress)
        code = process.wait(_TIMEOUT_S)
    except BaseException:
        process.kill()
        process.wait()
        raise
    if code != 0:
        raise _explain(output, board, port)


def _follow(stream: IO[bytes], progress: Progress) -> str:
    """Read avrdude's output as it comes and turn bars into progress calls."""
    output = ""
    stage, done = "connect", 0
    progress(stage, 0.0)
    while chunk := stream.read(256):
        for character in chunk.decode("utf-8", "replace"):
            output += character
            if character == "|" and (title := re.search(r"(Reading|Writing) \|$", output)):
                stage = _stage(title[1], stage)
                done = 0
                progress(stage, 0.0)
            elif character == "#" and stage != "connect":
                done += 1
                progress(stage, min(done / _BAR, 1.0))
    return output


def _stage(title: str, before: str) -> str:
    """avrdude reads the signature first, writes, then reads back to verify."""
    if title == "Writing":
        return "write"
    return "verify" if before in ("write", "verify") else "connect"


def _explain(output: str, board: Board, port: str) -> OncewayError:
    if signature := re.search(r"[Dd]evice signature = (0x[0-9a-fA-F]+)(?: \(probably (\w+)\))?", output):
        found, probably = signature[1], signature[2]
        if "xpected signature" in output:
            what = f"the chip is not an {board.chip_title}: its signature is {found}" + (f" ({probably})" if probably else "")
            return OncewayError(what, port, f"The board was named as {board.name} ({board.title}); name another one with --board")
    if mismatch := re.search(r"first mismatch at byte (0x[0-9a-fA-F]+)", output):
        return OncewayError(
            f"the board does not hold what was written, from byte {mismatch[1]} on", port, "Try again; if it stays, the flash is worn out"
        )
    if re.search(r"not in sync|not responding|programmer is not responding|unable to open programmer.*sync", output):
        return OncewayError(
            "the boot loader does not answer",
            port,
            f"Is it {board.title} (--board)? Does it have a boot loader at {board.baud} baud? Press its reset button as this starts",
        )
    if re.search(r"cannot open port|unable to open port|[Dd]evice or resource busy", output):
        return OncewayError("avrdude cannot open the port", port, _last_line(output))
    return OncewayError(f"avrdude failed: {_last_line(output)}", port)


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip() and "Thank you" not in line]
    return lines[-1].removeprefix("avrdude error: ") if lines else "it said nothing"
