"""Configured serial ports of boards and of radio modems: whether they exist, can be opened, and are
not used by other programs.

In: paths and shell patterns. Out: findings. No port is opened: that would reset its board. `root`
is the folder that contains /proc.
"""

import os
from collections.abc import Iterator
from glob import glob, has_magic
from pathlib import Path

from gateway.doctor.finding import Finding, ok, warning, wrong
from gateway.links.holders import holders

_MEDDLERS = {
    "ModemManager": "it sends modem commands to boards that are plugged in",
    "brltty": "it takes the ports of CH340 and CP2102, the USB chips of most Nano clones",
}
"""Programs that open serial ports by themselves, with the harm that they do."""

_GATEWAY = "onceway"


def ports(patterns: list[str], root: Path = Path("/")) -> Iterator[Finding]:
    for pattern in patterns:
        found = sorted(glob(pattern))
        if not found:
            yield _missing(pattern)
        for port in found:
            yield from _port(port)
    if patterns:
        yield from _meddlers(root)
        yield from _console(patterns, root)


def _missing(pattern: str) -> Finding:
    part = f"port {pattern}"
    todo = "Plug it in with a data cable; `onceway board ports` lists the ports"
    if has_magic(pattern):
        return warning(part, "no device that is plugged in matches", todo)
    return wrong(part, "there is no such port", todo)


def _port(port: str) -> Iterator[Finding]:
    part = f"port {port}"
    others = [name for name in holders(port) if not name.startswith(_GATEWAY)]
    if not Path(port).is_char_device():
        yield wrong(part, "this is not a serial port", "Correct `port` in its section")
    elif others:
        yield wrong(part, f"in use by {', '.join(others)}", "Stop that program")
    elif not os.access(port, os.R_OK | os.W_OK):
        yield wrong(
            part,
            "you may not open it",
            "Run the command with sudo; the service itself needs the group dialout",
        )
    else:
        yield ok(part, "present, and no other program uses it")


def _meddlers(root: Path) -> Iterator[Finding]:
    running = set()
    for name in (root / "proc").glob("[0-9]*/comm"):
        try:
            running.add(name.read_text().strip())
        except OSError:
            continue  # the process ended meanwhile
    for program in sorted(running & _MEDDLERS.keys()):
        yield warning(
            "ports",
            f"{program} runs: {_MEDDLERS[program]}",
            f"`sudo systemctl disable --now {program}`, if nothing here needs it",
        )


def _console(patterns: list[str], root: Path) -> Iterator[Finding]:
    """Yield a finding for each port that the kernel uses as a console: kernel and login would write
    to the board.
    """
    try:
        words = (root / "proc/cmdline").read_text().split()
    except OSError:
        return
    consoles = {word[8:].split(",")[0] for word in words if word.startswith("console=tty")}
    for pattern in patterns:
        for port in glob(pattern):
            name = Path(port).resolve().name
            if name in consoles:
                yield wrong(
                    f"port {port}",
                    "the kernel's console writes to it",
                    "`sudo raspi-config`: Interface Options, Serial Port: no login shell, yes to"
                    " hardware; then reboot",
                )
