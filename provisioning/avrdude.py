"""Runs avrdude as a process. In: a board, a port, a HEX file. Out: progress while avrdude runs, and
an OncewayError that explains a failure.

avrdude draws its progress bars on standard error as a title (`Reading`, `Writing`), a bar of fifty
`#`, and a time.
"""

import re
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

from gateway.errors import OncewayError
from provisioning.boards import Board

Progress = Callable[[str, float], None]
"""Callback with the stage ("connect", "save", "wipe", "write", "verify", "greet") and the finished
share of the stage, 0 to 1.
"""

_BAR = 50
_SILENCE_S = 6.0
"""Longest time without progress, in seconds. A connected board makes progress every second, and a
boot loader answers within two.
"""
_OUT_OF_STEP = re.compile(r"protocol expects (?:sync|OK) byte")
"""avrdude's error text if an answer came too late and was mistaken for the answer to the next
question.
"""

_NO_ANSWER = re.compile(
    r"not in sync|not responding|programmer is not responding|unable to open programmer.*sync"
)


def write(board: Board, port: str, image: Path, progress: Progress) -> None:
    """Write a HEX file to the board's flash and read it back.

    Raises OncewayError if avrdude is missing, the port is lost, no board answers, the chip is not
    the board's, or verification fails.
    """
    # -D: boot loaders erase page by page and know no chip erase.
    _run(board, port, ["-D", "-U", f"flash:w:{image}:i"], progress)


def read(board: Board, port: str, address: int, length: int, progress: Progress) -> bytes:
    """Read bytes of the board's flash. Uses avrdude's terminal mode, which reads only these bytes;
    `-U` would read the whole flash. Raises OncewayError.
    """
    output = _run(
        board, port, ["-t"], progress, commands=f"dump flash 0x{address:X} {length}\nquit\n"
    )
    lines = re.findall(r"^[0-9a-f]+ ((?: +[0-9a-f]{2})+) +\|", output, re.MULTILINE)
    data = bytes.fromhex("".join(lines))[:length]
    if len(data) < length:
        raise OncewayError(
            f"avrdude read {len(data)} of {length} bytes: {_last_line(output)}", port
        )
    return data


def save(board: Board, port: str, image: Path, progress: Progress) -> None:
    """Read the board's whole flash into a HEX file. Raises OncewayError, as `write` does."""
    _run(board, port, ["-U", f"flash:r:{image}:i"], lambda stage, share: progress("save", share))


def answers(board: Board, port: str) -> bool:
    """Whether a boot loader with this board's protocol answers at a port, and the chip has the
    board's signature. Resets the board and writes nothing.
    """
    reader, silent, code = _run_once(_command(board, port), "", lambda stage, share: None)
    return not silent and code == 0 and "evice signature" in reader.output


def _command(board: Board, port: str) -> list[str]:
    """Return the command line that starts avrdude. Raises OncewayError if avrdude is missing."""
    program = shutil.which("avrdude")
    if program is None:
        raise OncewayError("avrdude is not installed", hint="On Debian: apt-get install avrdude")
    return [
        program,
        "-p",
        board.chip,
        "-c",
        board.programmer,
        "-b",
        str(board.baud),
        "-P",
        port,
    ]


def _run(
    board: Board, port: str, operation: list[str], progress: Progress, commands: str = ""
) -> str:
    """Run avrdude to its end and return its output. commands: input for its terminal mode."""
    command = [*_command(board, port), *operation]
    reader, silent, code = _run_once(command, commands, progress)
    missed = silent or _OUT_OF_STEP.search(reader.output) or _NO_ANSWER.search(reader.output)
    if code != 0 and reader.stage == "connect" and missed:
        # A boot loader listens for a second, which a busy machine can miss. Opening the port resets
        # the board, so the next attempt starts from the beginning.
        reader, silent, code = _run_once(command, commands, progress)
    if silent and reader.stage != "connect":
        raise OncewayError(
            "the board stopped answering before avrdude was done",
            port,
            "Did the board lose its power? Run the same command again",
        )
    if code < 0 and not silent:
        raise OncewayError(
            f"avrdude was ended by signal {-code}", port, "Run the same command again"
        )
    if code != 0 and reader.stage != "connect" and _OUT_OF_STEP.search(reader.output):
        raise OncewayError(
            "the board's answers got out of step before avrdude was done",
            port,
            "Was the board reset, or its cable moved? Run the same command again",
        )
    if silent or code != 0:
        raise _explain(reader.output, board, port, silent)
    return reader.output


def _run_once(
    command: list[str], commands: str, progress: Progress
) -> tuple["_OutputReader", bool, int]:
    """Run avrdude once. Return its output, whether it was ended because it made no progress, and
    its exit code.
    """
    process = subprocess.Popen(
        command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, stdin=subprocess.PIPE, bufsize=0
    )
    # A broken pipe: avrdude has ended already, and its output says why.
    with (
        suppress(BrokenPipeError),
        cast(IO[bytes], process.stdin) as terminal,
    ):
        terminal.write(commands.encode())
    reader = _OutputReader(progress)
    try:
        silent = not reader.follow(cast(IO[bytes], process.stdout))
    finally:
        if process.poll() is None:
            process.terminate()  # no progress, or this process is being interrupted
        code = process.wait()
    return reader, silent, code


class _OutputReader:
    """Reads avrdude's output while avrdude runs, and turns its progress bars into calls of
    `progress`.
    """

    def __init__(self, progress: Progress) -> None:
        self.output = ""
        self.stage = "connect"
        self._progress = progress
        self._done = 0

    def follow(self, stream: IO[bytes]) -> bool:
        """Read avrdude's output to its end, and return True. Return False as soon as there was no
        progress for _SILENCE_S seconds, because avrdude itself would try for a minute.
        """
        self._progress(self.stage, 0.0)
        progressed = time.monotonic()
        while select.select([stream], [], [], max(0.0, progressed + _SILENCE_S - time.monotonic()))[
            0
        ]:
            chunk = stream.read(256)
            if not chunk:
                return True
            for character in chunk.decode("utf-8", "replace"):
                if self._take(character):
                    progressed = time.monotonic()
        return False

    def _take(self, character: str) -> bool:
        self.output += character
        if character == "|" and (title := re.search(r"(Reading|Writing) \|$", self.output)):
            if title[1] == "Writing":
                self.stage = "write"
            elif "evice signature" in self.output:  # the first bar belongs to the signature
                self.stage = "verify"
            self._done = 0
        elif character == "#" and self.stage != "connect":
            self._done += 1
        else:
            return False
        self._progress(self.stage, min(self._done / _BAR, 1.0))
        return True


def _explain(output: str, board: Board, port: str, silent: bool) -> OncewayError:
    if signature := re.search(
        r"[Dd]evice signature = (0x[0-9a-fA-F]+)(?: \(probably (\w+)\))?", output
    ):
        found, probably = signature[1], signature[2]
        if "xpected signature" in output:
            text = f"the chip is not an {board.chip_title}: its signature is {found}" + (
                f" ({probably})" if probably else ""
            )
            return OncewayError(
                text,
                port,
                f"The given kind is {board.name} ({board.title}); give another kind with --board",
            )
    if mismatch := re.search(r"(?:mismatch at byte|at addr) (0x[0-9a-fA-F]+)", output):
        return OncewayError(
            f"the flash differs from the written image from byte {mismatch[1]} on",
            port,
            "Run the same command again. If the error stays, the flash is worn out: replace the"
            " board",
        )
    if silent or _NO_ANSWER.search(output):
        return OncewayError(
            "the boot loader does not answer",
            port,
            f"Is the board {board.title} (--board), with a boot loader at {board.baud} baud?"
            f" `onceway board probe --port {port}` finds out. Then run the same command again, and"
            " press the board's reset button as the command starts",
        )
    if re.search(r"cannot open port|unable to open port|[Dd]evice or resource busy", output):
        return OncewayError("avrdude cannot open the port", port, _last_line(output))
    return OncewayError(f"avrdude failed: {_last_line(output)}", port)


def _last_line(output: str) -> str:
    lines = [
        line.strip()
        for line in output.splitlines()
        if line.strip() and "Thank you" not in line and "TIOCM" not in line
    ]
    return lines[-1].removeprefix("avrdude error: ") if lines else "it printed nothing"
