"""A clone of this repository in bare userlands of Debian 12 and 13, as root: README's `make demo`
and `make test`, by root and by a user with sudo, each in a home that is closed to other accounts.
Only git, make and sudo are installed before that. Prints times, and keeps the whole output in
build/try-clone. Exit code 1: a command failed. `try_clone.py 13 user` tries one release and one
account.

Each userland is made by debootstrap under /tmp, booted by systemd-nspawn with this machine's
network, and removed at the end. It gets this machine's settings for pip and its certificates: both
may be needed to reach the package registries.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from readme import lines
from userland import INCLUDE, NAMES, Userland, Wrong, debootstrap

ROOT = Path(__file__).parents[1]
HOMES = {"root": "/root", "user": "/home/user"}
CLONE = "git,make,sudo"
SETTINGS = ("etc/resolv.conf", "etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")
CERTIFICATES = "usr/local/share/ca-certificates"
LONGEST_S = 3 * 3600
"""Time limit of one command, in seconds."""
LOGS = ROOT / "build/try-clone"
OUTPUT = "var/tmp/output"
"""File in the userland with the output of the last command."""
LAST_LINES = 60
FAILURES = ("FAILED ", "ERROR ")
"""First words of pytest's lines about failures."""


def main() -> None:
    releases = [int(word) for word in sys.argv[1:] if word.isdigit()] or list(NAMES)
    accounts = [word for word in sys.argv[1:] if not word.isdigit()] or list(HOMES)
    os.environ["SYSTEMD_LOG_LEVEL"] = "err"
    LOGS.mkdir(parents=True, exist_ok=True)
    failed = False
    for release in releases:
        folder = Path(tempfile.mkdtemp(prefix="onceway-", dir="/tmp"))
        try:
            failed |= _try_release(release, folder / NAMES[release], accounts)
        except (Wrong, subprocess.TimeoutExpired) as wrong:
            print(f"Debian {release}: {wrong}", file=sys.stderr)
            failed = True
        finally:
            shutil.rmtree(folder)
    sys.exit(failed)


def _try_release(release: int, path: Path, accounts: list[str]) -> bool:
    """Run all commands, and return whether one of them failed."""
    start = time.monotonic()
    debootstrap(path, release, include=f"{INCLUDE},{CLONE}")
    _settings(path)
    userland = Userland(path, network=True)
    print(f"Debian {release}: a bare userland ({time.monotonic() - start:.1f} s)", flush=True)
    failed = False
    with userland.booted():
        userland.run("useradd", "--create-home", "--shell", "/bin/bash", "user")
        (path / "etc/sudoers.d/user").write_text("user ALL=(ALL) NOPASSWD: ALL\n")
        for account in accounts:
            _clone(userland, account)
            for command in (*_demo(), "make test"):
                start = time.monotonic()
                code = _make(userland, account, command)
                took = f"({time.monotonic() - start:.1f} s)"
                print(f"Debian {release}, {account}: {command}: rc {code} {took}")
                log = f"{release}-{account}-{command.split()[1]}.log"
                shutil.copy(path / OUTPUT, LOGS / log)
                output = (LOGS / log).read_text(errors="replace").splitlines()
                if code:
                    print(*(line for line in output if line.startswith(FAILURES)), sep="\n")
                    print(f"its whole output: {LOGS / log}")
                print("\n".join(output[-LAST_LINES if code else -1 :]), flush=True)
                failed |= code != 0
    return failed


def _demo() -> list[str]:
    """Return the command of README that runs the demo."""
    return [
        line
        for line in lines("The demo: everything, with faults on purpose")
        if line.startswith("make demo") and "ARGS" not in line
    ]


def _settings(path: Path) -> None:
    """Copy this machine's settings for package registries, and give the userland a host name."""
    for name in SETTINGS:
        if Path("/", name).exists():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path("/", name), path / name)
    if Path("/", CERTIFICATES).exists():
        shutil.copytree(Path("/", CERTIFICATES), path / CERTIFICATES, dirs_exist_ok=True)
    (path / "etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {os.uname().nodename}\n")


def _clone(userland: Userland, account: str) -> None:
    """Clone the commit that is checked out, and close the home to other accounts."""
    home = HOMES[account]
    target = userland.path / home[1:] / "onceway"
    subprocess.run(["git", "clone", "--quiet", ROOT, target], check=True)
    userland.run("chown", "--recursive", f"{account}:", f"{home}/onceway")
    userland.run("chmod", "0700", home)


def _make(userland: Userland, account: str, command: str) -> int:
    """Run the command in the clone with its output in `OUTPUT`. Return its exit code."""
    words = ["su", "--login", account, "--command", f"cd onceway && {command}"]
    to_file = ["sh", "-c", f'exec "$@" >/{OUTPUT} 2>&1', "sh"]
    return userland.enter([*to_file, *words], within=LONGEST_S).returncode


if __name__ == "__main__":
    main()
