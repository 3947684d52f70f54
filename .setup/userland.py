"""A bare Debian in a folder, as root: made by debootstrap, booted by systemd-nspawn.

In: a release of Debian. Out: the output of commands that run there. Raises Wrong if a command
fails.
"""

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

NAMES = {12: "bookworm", 13: "trixie"}
INCLUDE = "systemd,systemd-sysv,dbus,udev"
PATIENCE_S = 300
_NOT_COUNTED = ("root", "srv", "var/cache", "var/lib/apt", "var/lib/onceway", "var/log")
"""Folders that `size_mb` leaves out because their content is not installed. apt fills some of them.
The gateway's data has 32 MB in reserve for a full disk, and the journal takes 8 MB with its first
line.
"""


class Wrong(Exception):
    """Error: a promise of the package does not hold."""


class Userland:
    """A bare Debian in a folder. `run` works while it is booted. leader: process id of its init.
    network: whether it has this machine's network; otherwise it has its own, without a connection.
    """

    def __init__(self, path: Path, network: bool = False) -> None:
        self.path = path
        self.leader = 0
        self._network = [] if network else ["--private-network"]

    @contextmanager
    def booted(self) -> Iterator[None]:
        command = ["systemd-nspawn", "--quiet", "--boot", *self._network, "--register=no"]
        with (self.path.with_suffix(".console")).open("ab") as console:
            nspawn = subprocess.Popen(
                [*command, "--keep-unit", "--directory", self.path],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )
        try:
            children = Path(f"/proc/{nspawn.pid}/task/{nspawn.pid}/children")

            def init() -> str:
                if nspawn.poll() is not None:
                    output = self.path.with_suffix(".console").read_text(errors="replace")
                    raise Wrong(f"systemd-nspawn has ended: {output[-2000:]}")
                return children.read_text()

            self.leader = int(wait_for("the userland's init", init))
            wait_for("the userland's boot", lambda: self._try("systemctl", "is-system-running"))
            yield
            self._try("systemctl", "poweroff")
            nspawn.wait(60)
        finally:
            nspawn.terminate()
            nspawn.wait()

    def run(self, *command: str) -> str:
        done = self.enter(command)
        if done.returncode:
            log = self.enter(("journalctl", "--no-pager", "--lines=40")).stdout
            raise Wrong(f"{' '.join(command)}: {done.stdout}\n{log}")
        return done.stdout

    def wait(self, subject: str, *command: str) -> str:
        """Wait until a command succeeds. Return its output, or "done" if it has none."""
        return wait_for(subject, lambda: self._try(*command))

    def outside(self, *command: str) -> None:
        """Run a command in the folder (chroot) before the userland boots. The command uses this
        machine's network."""
        done = subprocess.run(["chroot", self.path, *command], capture_output=True, text=True)
        if done.returncode:
            raise Wrong(f"{' '.join(command)}: {done.stdout}{done.stderr}")

    def size_mb(self) -> float:
        """Return the size of all installed files, in megabytes."""
        skip = [f"--exclude={self.path}/{part}" for part in _NOT_COUNTED]
        output = subprocess.run(
            ["du", "--summarize", "--one-file-system", "--block-size=1000", *skip, self.path],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return int(output.split()[0]) / 1000

    def _try(self, *command: str) -> str:
        done = self.enter(command)
        if command[-1] == "is-system-running":
            return done.stdout if done.stdout.strip() in ("running", "degraded") else ""
        return (done.stdout or "done") if done.returncode == 0 else ""

    def enter(
        self, command: Sequence[str], within: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command for at most `within` seconds. Errors are part of its output."""
        inside = ["nsenter", "--target", str(self.leader), "--all", "--wdns=/"]
        return subprocess.run(
            [*inside, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=within,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"},
        )


def debootstrap(path: Path, release: int, *options: str, include: str = INCLUDE) -> None:
    """Install a minimal Debian with the packages `include` in the folder `path`. Raises Wrong."""
    made = subprocess.run(
        [
            *("debootstrap", "--variant=minbase", *options, f"--include={include}"),
            *(NAMES[release], path),
        ],
        capture_output=True,
        text=True,
    )
    if made.returncode:
        raise Wrong(f"debootstrap: {made.stdout[-2000:]}")


def wait_for(subject: str, look: Callable[[], str]) -> str:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if found := look().strip():
            return found
        time.sleep(0.2)
    raise Wrong(f"{subject} did not come within {PATIENCE_S} s")
