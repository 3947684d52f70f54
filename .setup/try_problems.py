"""Notifications about silent boards: a board without power, a board without its cable, a board with
another key, a second board of the same name, and a radio board (`try_others.py`). Each becomes a
problem within three intervals, with exit code 3, an e-mail and a webhook. The end of each problem
is notified in the same way. The heartbeat ends with the gateway. For an account without rights,
commands print a sentence before they change anything.

In: a booted userland with the package and the board roof-1 at /run/board/tty. Raises Wrong.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from try_others import Others
from userland import Userland, Wrong, wait_for

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.links.certificates import Authority

CONFIG = """
[gateway]
name = "site-1"
trust_clock = true
[[listener]]
bind = "127.0.0.1:1883"
[[serial]]
port = "/run/board/tty"
[[serial]]
port = "/run/second/tty*"
[[lora]]
port = "/run/modem/tty"
[notify]
after_s = 1
mail_to = ["lena@example.org"]
mail_server = "smtps://127.0.0.1:8465"
mail_ca = "/etc/onceway/told.pem"
webhook = "http://127.0.0.1:8480/hook"
heartbeat = "http://127.0.0.1:8480/beat"
heartbeat_s = 1
"""
BOARD = "roof-1"
TOLD = "/srv/told"
LEAST_S = 30.0
"""Longest silence of a board, in seconds, that is not a problem (`gateway/boards/expected.py`)."""
SLOW_S = 30.0
"""Extra seconds, because checks run once a second and commands are slow on a busy machine."""
BEATS = 3
"""Seconds after the gateway's stop in which no heartbeat may arrive: three heartbeat intervals."""
SPEAK = """
import socket, sys
channel = socket.socket(socket.AF_UNIX)
channel.connect(sys.argv[2])
channel.sendall(sys.argv[1].encode() + b"\\n")
assert b'"ok":true' in channel.recv(1000)
"""
PYTHON = 'exec "$(ls /usr/bin/python3.* | head -1)" "$@"'
"""Shell command that starts the userland's only Python, whatever its version."""
PRIVATE = (
    "device list",
    "device pending",
    "device admit roof-9",
    "device revoke roof-1",
    "device add roof-9 --port /run/board/tty",
    "device flash roof-1 --port /run/board/tty",
    "device rekey roof-1 --port /run/board/tty",
    "device replace roof-1 --port /run/board/tty",
    "device rename roof-1 roof-9 --port /run/board/tty",
    "device update --all",
    "device expect roof-1 never",
    "device pause roof-1 3d",
    "registry export /tmp/backup",
)
"""Commands that need rights. In an earlier version they also ran for an account without rights, and
then wrote to a registry that no gateway reads.
"""
NOT_ALLOWED = 6


class Problems:
    """The trial, which changes the userland's configuration. plug_in: starts the board's unit."""

    def __init__(self, userland: Userland, plug_in: Callable[[Userland], None]) -> None:
        self._userland = userland
        self._run = userland.run
        self._plug_in = plug_in

    def run(self) -> None:
        self._servers()
        (self._userland.path / "etc/onceway/gateway.toml").write_text(CONFIG)
        self._run("systemctl", "restart", "onceway-gateway")
        self.well()
        self._without_rights()
        self.scene("silent", lambda: self.board("power off"), lambda: self.board("power on"))
        self.scene("unplugged", lambda: self.board("unplug"), lambda: self.board("plug"))
        self.scene("refused", self._old_key, self._new_key)
        Others(self._userland, self).run()
        self._heartbeat()

    def _servers(self) -> None:
        folder = self._userland.path / TOLD[1:]
        folder.mkdir(parents=True)
        with tempfile.TemporaryDirectory() as name:
            authority = Authority(Path(name))
            certificate, key = authority.issue("told")
            shutil.copy(certificate, folder / "cert.pem")
            shutil.copy(key, folder / "key.pem")
            trusted = self._userland.path / "etc/onceway/told.pem"
            shutil.copy(authority.path, trusted)
            trusted.chmod(0o644)
        shutil.copy(Path(__file__).with_name("told.py"), folder)
        self._run(
            *("systemd-run", "--unit=told", "sh", "-c", PYTHON, "sh"),
            *(f"{TOLD}/told.py", TOLD, "8465", "8480"),
        )
        self._userland.wait("the servers", "sh", "-c", "grep ':2120 ' /proc/net/tcp")  # 8480

    def board(self, command: str, unit: str = "board") -> None:
        """Send a command to the simulated board of a unit."""
        self._run("sh", "-c", PYTHON, "sh", "-c", SPEAK, command, f"/run/{unit}/control")

    def status(self, name: str = BOARD) -> tuple[int, dict[str, Any]]:
        """Return the exit code of `onceway status`, and the row of the board in its output."""
        done = self._userland.enter(("onceway", "status", "--json"))
        found = json.loads(done.stdout)
        if "error" in found:  # the gateway starts
            return done.returncode, {}
        (row,) = [row for row in found["boards"] if row["name"] == name] or [{}]
        return done.returncode, row | {"is_missing": name in found["missing"]}

    def well(self, name: str = BOARD) -> None:
        def look() -> str:
            _, row = self.status(name)
            return "well" if row.get("state") == "fine" and not row["is_missing"] else ""

        wait_for("a board that is well", look)

    def scene(
        self, state: str, begin: Callable[[], None], end: Callable[[], None], name: str = BOARD
    ) -> None:
        """Let a board's problem begin and end, and check that notifications report both."""
        interval = self.status(name)[1]["interval_s"] or 0.0
        begin()
        since = time.monotonic()
        row: dict[str, Any] = {}

        def look() -> str:
            code, found = self.status(name)
            row.update(found)
            if found.get("state") == state and (code, found["is_missing"]) != (3, True):
                raise Wrong(f"{state}: exit code {code}, and the status of the board is {found}")
            return "found" if found.get("state") == state else ""

        wait_for(f"a board that is {state}", look)
        took, limit = time.monotonic() - since, max(LEAST_S, 3 * interval) + SLOW_S
        if took > limit:
            raise Wrong(f"{state}: shown after {took:.0f} s, not within {limit:.0f} s")
        for words in (("onceway", "status"), ("onceway", "gateway", "status")):
            shown = self._userland.enter(words)
            if shown.returncode != 3 or row["problem"] not in shown.stdout:
                raise Wrong(f"{state}: {words} end with {shown.returncode}: {shown.stdout}")
        self.expect_report("begins", row["problem"])
        end()
        self.well(name)
        self.expect_report("ends", row["problem"])

    def expect_report(self, event: str, problem: str) -> None:
        """Wait until an e-mail and a webhook have reported an event. event: `begins` or `ends`.
        problem: the problem's sentence.
        """

        def look() -> str:
            folder = self._userland.path / TOLD[1:]
            try:
                mail = (folder / "mail").read_text()
                posts = [json.loads(line) for line in (folder / "web").read_text().splitlines()]
            except FileNotFoundError:
                return ""
            texts = [text for post in posts if post["event"] == event for text in post["problems"]]
            found = any(problem in text for text in texts)
            mails = {"begins": 1, "ends": 2}[event]
            return "told" if found and mail.count(problem) >= mails else ""

        wait_for(f"news that {problem!r} {event}", look)

    def _old_key(self) -> None:
        """Give the board another key, and then restore the firmware that contains the
        earlier key.
        """
        flash = "/var/lib/board/flash"
        self._run("cp", flash, f"{flash}.old")
        self._rekey()
        self._run("sh", "-c", "systemctl stop board; systemctl reset-failed board || true")
        self._run("sh", "-c", f"cat {flash}.old >{flash}")  # so that the file keeps its owner
        self._plug_in(self._userland)

    def _new_key(self) -> None:
        self._rekey()

    def _rekey(self) -> None:
        self._run("onceway", "device", "rekey", BOARD, "--port", "/run/board/tty")

    def _heartbeat(self) -> None:
        beats = self._userland.path / TOLD[1:] / "beats"
        wait_for("a heartbeat", lambda: "came" if beats.exists() else "")
        self._run("systemctl", "stop", "onceway-gateway")
        before = beats.stat().st_size
        time.sleep(BEATS)
        if beats.stat().st_size != before:
            raise Wrong("the heartbeat goes on without the gateway")
        self._run("systemctl", "start", "onceway-gateway")
        wait_for("a heartbeat again", lambda: "more" * (beats.stat().st_size > before))

    def _without_rights(self) -> None:
        """Check that each command fails for an account that may open serial ports but nothing else,
        and that the command then changes nothing.
        """
        sums = "sha256sum /var/lib/onceway/registry.db /var/lib/board/flash"
        before = self._run("sh", "-c", sums)
        person = ("setpriv", "--reuid=nobody", "--regid=dialout", "--clear-groups")
        home = ("env", "HOME=/tmp/nobody")
        for words in PRIVATE:
            done = self._userland.enter((*person, *home, "onceway", *words.split()))
            if done.returncode != NOT_ALLOWED or "onceway-admin" not in done.stdout:
                raise Wrong(f"{words}, without rights: {done.returncode}, {done.stdout}")
        if self._run("sh", "-c", sums) != before:
            raise Wrong("a command without rights has changed the registry or the board")
        self._run("sh", "-c", "[ ! -e /tmp/nobody ] && [ ! -e /tmp/backup ]")
